"""Threads for users' code, which may block. They are started when needed, and the end of the
program does not wait for them."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, Final

from escrowmq.client import greenlets

ABANDONED_MAX: Final = 64
"""Limit of abandoned threads that have not ended; beyond that, a hanging thread is not replaced."""

Job = tuple[Callable[..., Any], tuple[Any, ...], "asyncio.Future[Any]"]


class Workers:
    """A limited number of threads. If one hangs, it can be abandoned; another takes its place.

    The threads are daemons: hanging code does not keep the process from ending. Where gevent has
    replaced threads, they are greenlets of the hub where the client was made."""

    def __init__(self, *, threads_max: int, name: str) -> None:
        self._threads_max = threads_max
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hub: greenlets.Hub | None = None
        self._jobs: greenlets.JobQueue = queue.SimpleQueue()
        self._threads_count = 0
        self._under_way: set[asyncio.Future[Any]] = set()
        self._left_alone: set[asyncio.Future[Any]] = set()

    def run(self, work: Callable[..., Any], *given: Any) -> asyncio.Future[Any]:  # noqa: ANN401
        """Run a function on a thread and return its future. Call it on the event loop."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop, self._hub = loop, greenlets.hub_of(loop)
            if self._hub is not None:
                self._jobs = self._hub.make_queue()
        future: asyncio.Future[Any] = loop.create_future()
        self._under_way.add(future)
        try:
            self._start_thread_if_needed()
        except RuntimeError as error:  # the machine has none: those that are there do it
            if not self._threads_count:
                self._under_way.discard(future)
                future.set_exception(error)
                return future
        self._jobs.put((work, given, future))
        return future

    def abandon(self, future: asyncio.Future[Any]) -> bool:
        """Abandon the thread that runs a call, and let another replace it. Return False if too many
        abandoned threads hang already: then this one is not replaced."""
        if future not in self._under_way:  # it came to its end meanwhile
            return True
        future.cancel()
        if len(self._left_alone) >= ABANDONED_MAX:
            return False
        self._left_alone.add(future)
        self._threads_count -= 1
        assert self._threads_count >= 0, self._threads_count
        with contextlib.suppress(RuntimeError):  # the machine has none: the next `run` tries again
            self._start_thread_if_needed()  # work may wait for the one that hangs
        return True

    def close(self) -> None:
        """Let the threads end when they have finished their work."""
        for _ in range(self._threads_count + len(self._left_alone)):
            self._jobs.put(None)

    @property
    def _busy_count(self) -> int:
        """The calls that a thread runs, or will take next, except abandoned ones."""
        return len(self._under_way) - len(self._left_alone)

    def _start_thread_if_needed(self) -> None:
        """Start a thread if calls wait for one, and it is allowed. Raises RuntimeError if the
        machine has none."""
        if self._threads_count < min(self._busy_count, self._threads_max):
            self._start_thread()
            self._threads_count += 1

    def _start_thread(self) -> None:
        if self._hub is not None:
            self._hub.spawn(self._run_jobs)
        else:
            threading.Thread(target=self._run_jobs, name=self._name, daemon=True).start()

    def _run_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, given, future = job
            result: Any = None
            error: BaseException | None = None
            try:
                # If it was cancelled before its turn, its message already belongs to another
                # member.
                result = None if future.cancelled() else work(*given)
            except Exception as raised:  # noqa: BLE001 - handed to who asked
                error = raised
            except BaseException as raised:  # noqa: BLE001 - SystemExit ends no client's loop
                error = RuntimeError(f"{type(raised).__name__} was raised: {raised}")
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits for it
                assert self._loop is not None
                self._loop.call_soon_threadsafe(self._finish_job, future, result, error)
            del job, work, given, future, result, error  # an idle thread would keep them alive

    def _finish_job(
        self, future: asyncio.Future[Any], result: object, error: BaseException | None
    ) -> None:
        self._under_way.discard(future)
        if future in self._left_alone:  # another thread has its place; one is too many now
            self._left_alone.discard(future)
            self._jobs.put(None)
            return
        if future.cancelled():
            return
        if isinstance(error, StopIteration):  # which no future can hold
            error = RuntimeError(f"StopIteration was raised: {error}")
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
