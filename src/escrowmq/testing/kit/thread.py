"""An event loop on a thread of its own, called from blocking code and from other event loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from escrowmq.client import greenlets
from escrowmq.errors import UsageError

T = TypeVar("T")
_JOIN_S: Final = 10.0


class LoopThread:
    """A thread with an event loop, until it is closed."""

    def __init__(self, name: str) -> None:
        if greenlets.is_patched():
            raise UsageError(
                "gevent has replaced the threads of this process, which a broker inside it "
                "needs: run `escrowmq serve --data FOLDER --nameserver-port 0 --broker-port "
                "0` as a process of its own, whose first line has its address"
            )
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name=name, daemon=True)
        self._thread.start()

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller runs on this thread."""
        return threading.get_ident() == self._thread.ident

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the thread's loop; return its result. It may wait only for things on
        this loop."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        finally:
            future.cancel()

    def run(self, function: Callable[..., T], *given: Any) -> T:  # noqa: ANN401
        """Run a function on the thread; return its result."""

        async def call_function() -> T:
            return function(*given)

        return self.call(call_function())

    def wait_for(self, work: Coroutine[Any, Any, T], name: str) -> T:
        """Run a coroutine that waits for clients; return its result. Raises UsageError inside an
        event loop, which it would block."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self.call(work)
        work.close()
        raise UsageError(
            f"{name}() would block the event loop on which it is called, and the clients there; "
            f"use `await broker.aio.{name}(...)` in coroutines"
        )

    async def await_from_other_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine like `wait_for`, for callers on another event loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    def close(self) -> None:
        """End the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_JOIN_S)
        assert not self._thread.is_alive(), "the loop of a test's broker does not end"

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        finally:
            self.loop.close()
