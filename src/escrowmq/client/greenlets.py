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
"""The real one if this is imported before gevent patches; afterwards it is not used."""


class Latch(Protocol):
    """Opened once, by any thread; awaited by one at a time."""

    def acquire(self) -> object:
        """Wait until it is open."""

    def release(self) -> None:
        """Open it."""


class Joinable(Protocol):
    """A thread, as its owner sees it."""

    def join(self, timeout: float) -> None:
        """Wait for its end, up to a timeout."""

    def is_alive(self) -> bool:
        """Whether it runs."""

    @property
    def ident(self) -> int | None:
        """Distinguishes it from other real threads (`identify`)."""


class JobQueue(Protocol):
    """Filled by the loop's thread, emptied by worker threads."""

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


def latch() -> Latch:
    """Make a closed latch."""
    if "gevent.monkey" in sys.modules and is_patched():
        return HubLatch()
    lock = _allocate_lock()
    lock.acquire()
    return lock


def identify() -> Callable[[], int]:
    """A function that returns the id of the current real thread, even when gevent has replaced
    `threading`."""
    found: Callable[[], int] = (
        _original("_thread", "get_ident") if is_patched() else threading.get_ident
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
    """A loop for a real thread: uvloop's if installed, otherwise asyncio's own."""
    if not is_plain:
        with contextlib.suppress(ImportError):
            import uvloop

            return uvloop.new_event_loop()
    if is_patched():
        return asyncio.SelectorEventLoop(_original("selectors", "DefaultSelector")())
    return asyncio.new_event_loop()


class Hub:
    """gevent's hub of the thread in which it is made, for work passed from other threads."""

    def __init__(self) -> None:
        self._gevent: Any = sys.modules["gevent"]
        self._hub = self._gevent.get_hub()
        # What only other threads will wake is no reason for a hub to wait. This is one.
        self._stay = self._hub.loop.async_()
        self._stay.start(_do_nothing)

    def spawn(self, work: Callable[[], object]) -> None:
        """Run it in a greenlet."""
        self._hub.loop.run_callback_threadsafe(self._gevent.spawn, work)

    def queue(self) -> JobQueue:
        """A queue for greenlets of this hub."""
        return _HubQueue(self._hub)

    def close(self) -> None:
        """The client's thread is gone: the hub may end."""
        self._hub.loop.run_callback_threadsafe(self._stay.stop)


_hubs: dict[asyncio.AbstractEventLoop, Hub] = {}
"""The hub that runs users' code, by event loop; bounded by the number of running loops."""


def adopt(loop: asyncio.AbstractEventLoop) -> None:
    """Users' code for this loop will run on the hub of the caller's thread."""
    if is_patched():
        _hubs[loop] = Hub()
        loop.set_default_executor(_real_threads())


def hub_of(loop: asyncio.AbstractEventLoop) -> Hub | None:
    """The hub where a loop's users' code runs; None for threads."""
    return _hubs.get(loop)


def leave(loop: asyncio.AbstractEventLoop) -> None:
    """The loop has ended."""
    hub = _hubs.pop(loop, None)
    if hub is not None:
        hub.close()


class HubLatch:
    """A latch for greenlets: waiting lets the other greenlets of the hub run."""

    def __init__(self) -> None:
        self._is_open = False
        self._waiting: tuple[Any, Any] | None = None

    def acquire(self) -> None:
        """Wait until it is open."""
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
        """Open it."""
        self._is_open = True
        if self._waiting is not None:
            hub, waiter = self._waiting
            hub.loop.run_callback_threadsafe(waiter.switch, None)

    @property
    def is_open(self) -> bool:
        """Whether it is open."""
        return self._is_open


class _HubQueue:
    """Used only on the hub. (A queue of gevent's belongs to the thread that makes it.)"""

    def __init__(self, hub: Any) -> None:  # noqa: ANN401 - gevent's
        self._hub = hub
        self._jobs: collections.deque[Any] = collections.deque()
        self._waiting: collections.deque[Any] = collections.deque()

    def put(self, job: Any, /) -> None:  # noqa: ANN401 - whatever the owner takes out again
        """Add one."""
        self._hub.loop.run_callback_threadsafe(self._put, job)

    def _put(self, job: Any) -> None:  # noqa: ANN401 - the same
        if self._waiting:
            self._waiting.popleft().switch(job)
        else:
            self._jobs.append(job)

    def get(self) -> Any:  # noqa: ANN401 - the same
        """Wait for one."""
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
            self.ident = identify()()
            started.release()
            try:
                work()
            finally:
                self._over.release()

        _original("_thread", "start_new_thread")(run, ())
        started.acquire()

    def join(self, timeout: float) -> None:
        """Wait for its end, up to a timeout."""
        gevent: Any = sys.modules["gevent"]
        with gevent.Timeout(timeout, False):  # False: its end is not raised here
            self._over.acquire()

    def is_alive(self) -> bool:
        """Whether it runs."""
        return not self._over.is_open


def _real_threads() -> concurrent.futures.ThreadPoolExecutor:
    """For the few things for which asyncio itself needs threads: one thread each."""

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

            _original("_thread", "start_new_thread")(run, ())
            return future

    return RealThreads()


def _original(module: str, name: str) -> Any:  # noqa: ANN401 - a function or class of any kind
    return sys.modules["gevent.monkey"].get_original(module, name)


def _do_nothing() -> None:
    """The callback of a watcher that only keeps its hub alive."""
