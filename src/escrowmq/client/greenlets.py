"""Support for programs in which gevent has replaced threads by greenlets (`monkey.patch_all()`).

The blocking clients need one real thread: an event loop inside a greenlet would block the hub, and
with it everything else in the process. That thread is started by the functions that gevent has
replaced. Callers wait for it cooperatively, so that other greenlets run meanwhile. Users' code
(handlers, checks) runs in greenlets of the hub where the client was made, like the rest of their
program.

gevent is never imported here: only programs that have patched themselves use it."""

from __future__ import annotations

import _thread
import asyncio
import collections
import concurrent.futures
import contextlib
import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol

from escrowmq.errors import UsageError

_allocate_lock = _thread.allocate_lock
"""Makes real locks, if this module is imported before gevent replaces threads; otherwise it is not
used."""


class Latch(Protocol):
    """A gate that any thread opens once, and for which one thread at a time waits."""

    def acquire(self) -> object:
        """Wait until the latch is open."""

    def release(self) -> None:
        """Open the latch."""


class Joinable(Protocol):
    """A thread that can be waited for."""

    def join(self, timeout: float) -> None:
        """Wait for its end, up to a timeout."""

    def is_alive(self) -> bool:
        """Whether the thread runs."""

    @property
    def ident(self) -> int | None:
        """The thread's id, as the function made by `make_thread_identifier` returns it in that
        thread."""


class JobQueue(Protocol):
    """A queue of jobs that the event loop's thread fills and worker threads empty."""

    def put(self, job: Any, /) -> None:  # noqa: ANN401 - whatever the owner takes out again
        """Add a job."""

    def get(self) -> Any:  # noqa: ANN401 - the same
        """Wait for a job."""


def is_patched() -> bool:
    """Whether gevent has replaced this process's threads. Raises UsageError if eventlet has."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        return True
    patcher = sys.modules.get("eventlet.patcher")
    if patcher is not None and patcher.is_monkey_patched("thread"):
        raise UsageError(
            "eventlet has replaced the threads of this process, and a blocking client's "
            "thread would block all its green threads: use gevent or real threads with "
            "`escrowmq`, or escrowmq.aio in an unpatched process"
        )
    return False


def make_latch() -> Latch:
    """Make a closed latch."""
    if "gevent.monkey" in sys.modules and is_patched():
        return HubLatch()
    lock = _allocate_lock()
    lock.acquire()
    return lock


def make_thread_identifier() -> Callable[[], int]:
    """Return a function that returns the id of the current real thread, even if gevent has replaced
    `threading`."""
    found: Callable[[], int] = (
        _unpatched_function("_thread", "get_ident") if is_patched() else threading.get_ident
    )
    return found


def start_thread(work: Callable[[], object], *, name: str) -> Joinable:
    """Start a real daemon thread."""
    if is_patched():
        return _RealThread(work)
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


def new_event_loop(*, is_plain: bool = False) -> asyncio.AbstractEventLoop:
    """Make an event loop for a real thread: uvloop's if installed, otherwise asyncio's own."""
    if not is_plain:
        with contextlib.suppress(ImportError):
            import uvloop

            return uvloop.new_event_loop()
    if is_patched():
        return asyncio.SelectorEventLoop(_unpatched_function("selectors", "DefaultSelector")())
    return asyncio.new_event_loop()


class Hub:
    """gevent's hub of the thread that makes this object; other threads pass work to it."""

    def __init__(self) -> None:
        self._gevent: Any = sys.modules["gevent"]
        self._hub = self._gevent.get_hub()
        # A hub does not wait for wake-ups that only other threads make, unless a watcher is active.
        self._stay = self._hub.loop.async_()
        self._stay.start(_do_nothing)

    def spawn(self, work: Callable[[], object]) -> None:
        """Run the work in a greenlet."""
        self._hub.loop.run_callback_threadsafe(self._gevent.spawn, work)

    def make_queue(self) -> JobQueue:
        """Make a job queue for greenlets of this hub."""
        return _HubQueue(self._hub)

    def close(self) -> None:
        """Let the hub end, because the client's thread has ended."""
        self._hub.loop.run_callback_threadsafe(self._stay.stop)


_hubs: dict[asyncio.AbstractEventLoop, Hub] = {}
"""The hub that runs users' code, by event loop; there are no more entries than running loops."""


def set_hub(loop: asyncio.AbstractEventLoop) -> None:
    """Let the hub of the caller's thread run users' code for this loop."""
    if is_patched():
        _hubs[loop] = Hub()
        loop.set_default_executor(_real_thread_pool())


def hub_of(loop: asyncio.AbstractEventLoop) -> Hub | None:
    """Return the hub that runs users' code for a loop; None if threads do."""
    return _hubs.get(loop)


def forget_hub(loop: asyncio.AbstractEventLoop) -> None:
    """Forget the hub of a loop that has ended."""
    hub = _hubs.pop(loop, None)
    if hub is not None:
        hub.close()


class HubLatch:
    """A latch for greenlets: waiting lets the other greenlets of the hub run."""

    def __init__(self) -> None:
        self._is_open = False
        self._waiting: tuple[Any, Any] | None = None

    def acquire(self) -> None:
        """Wait until the latch is open."""
        gevent: Any = sys.modules["gevent"]
        hub = gevent.get_hub()
        waiter = sys.modules["gevent.hub"].Waiter(hub)
        self._waiting = (hub, waiter)
        if self._is_open:  # asked once `release` can find the waiter
            return
        # A hub with nothing else to wait for would say that this blocks for ever.
        stay = hub.loop.async_()
        stay.start(_do_nothing)
        try:
            waiter.get()
        finally:
            stay.stop()
            stay.close()

    def release(self) -> None:
        """Open the latch."""
        self._is_open = True
        if self._waiting is not None:
            hub, waiter = self._waiting
            hub.loop.run_callback_threadsafe(waiter.switch, None)

    @property
    def is_open(self) -> bool:
        """Whether the latch is open."""
        return self._is_open


class _HubQueue:
    """A job queue that is used only on the hub. (gevent's own queues belong to the thread that
    makes them.)"""

    def __init__(self, hub: Any) -> None:  # noqa: ANN401 - gevent's
        self._hub = hub
        self._jobs: collections.deque[Any] = collections.deque()
        self._waiting: collections.deque[Any] = collections.deque()

    def put(self, job: Any, /) -> None:  # noqa: ANN401 - whatever the owner takes out again
        """Add a job."""
        self._hub.loop.run_callback_threadsafe(self._put, job)

    def _put(self, job: Any) -> None:  # noqa: ANN401 - the same
        if self._waiting:
            self._waiting.popleft().switch(job)
        else:
            self._jobs.append(job)

    def get(self) -> Any:  # noqa: ANN401 - the same
        """Wait for a job."""
        if self._jobs:
            return self._jobs.popleft()
        waiter = sys.modules["gevent.hub"].Waiter(self._hub)
        self._waiting.append(waiter)
        try:
            return waiter.get()
        except BaseException:  # the greenlet was killed
            with contextlib.suppress(ValueError):
                self._waiting.remove(waiter)
            raise


class _RealThread:
    """A thread made by the functions that gevent has replaced."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._over = HubLatch()
        self.ident: int | None = None
        started = HubLatch()

        def run() -> None:
            self.ident = make_thread_identifier()()
            started.release()
            try:
                work()
            finally:
                self._over.release()

        _unpatched_function("_thread", "start_new_thread")(run, ())
        started.acquire()

    def join(self, timeout: float) -> None:
        """Wait for its end, up to a timeout."""
        gevent: Any = sys.modules["gevent"]
        with gevent.Timeout(timeout, False):  # False: its end is not raised here
            self._over.acquire()

    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return not self._over.is_open


def _real_thread_pool() -> concurrent.futures.ThreadPoolExecutor:
    """Make a pool of real threads for asyncio itself, which needs them for a few things; each job
    gets a thread of its own."""

    # Here, because its base class is imported only when this is needed.
    class RealThreads(concurrent.futures.ThreadPoolExecutor):
        def submit(
            self, work: Callable[..., Any], /, *args: object, **kwargs: object
        ) -> concurrent.futures.Future[Any]:
            future: concurrent.futures.Future[Any] = concurrent.futures.Future()

            def run() -> None:
                if not future.set_running_or_notify_cancel():
                    return
                try:
                    result = work(*args, **kwargs)
                except BaseException as error:  # noqa: BLE001 - raised again at who asked
                    future.set_exception(error)
                else:
                    future.set_result(result)

            _unpatched_function("_thread", "start_new_thread")(run, ())
            return future

    return RealThreads()


def _unpatched_function(module: str, name: str) -> Any:  # noqa: ANN401 - a function or class of any kind
    return sys.modules["gevent.monkey"].get_original(module, name)


def _do_nothing() -> None:
    """The callback of a watcher that only keeps its hub alive."""
