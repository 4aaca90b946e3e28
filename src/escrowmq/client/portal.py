"""Connects blocking clients to the asyncio engine: one event loop in a thread, for the whole
process.

One loop serves all blocking clients of a process: it starts with the first and ends with the last.
So many producers and consumers share one selector and wake it together, and a program has one more
thread, not one per client. Users' code (checks, handlers) runs on other threads, so that no client
waits for another's code.

A call costs one thread switch there and one back. Calls that come while the loop is awake need no
further wake-up."""

from __future__ import annotations

import asyncio
import atexit
import collections
import contextlib
import contextvars
import functools
import inspect
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from escrowmq.client import greenlets
from escrowmq.client.fork_detection import ForkCounter
from escrowmq.errors import ClientClosed, ClientForked, EscrowMQError, WrongThread

_log = logging.getLogger(__name__)

JOIN_S: Final = 5.0
"""For this many seconds the end of the last client waits for the thread; then the thread is left to
the process."""

CANCEL_S: Final = 1.0
"""For this many seconds calls in flight may continue when the loop ends."""

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class FinishCallback(Protocol[T_contra]):
    """A callback for the result of work that was begun: a value, an error, or a function that makes
    the coroutine to continue with."""

    def __call__(
        self,
        result: T_contra | None,
        error: BaseException | None = None,
        go_on: Callable[[], Coroutine[Any, Any, T_contra]] | None = None,
    ) -> None:
        """Pass the result; call it once, on the loop's thread."""


GoOn = Callable[[], Coroutine[Any, Any, T]]
"""Makes the coroutine that continues work that was begun."""

Begin = Callable[[FinishCallback[T]], bool]
"""Begins work without waiting; returns False if it would have to wait."""


class Caller(Protocol):
    """Runs coroutines on an event loop of another thread, and waits for them."""

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the coroutine's result, or raise its error."""


class LoopCaller:
    """Calls into the event loop of an asyncio client, from the threads of blocking handlers."""

    def __init__(self, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._loop = loop

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the coroutine's result, or raise its error."""
        loop = self._loop()
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            coroutine.close()
            raise WrongThread(
                "the delivery of a blocking handler was used on the event loop; make the "
                "handler an `async def`, whose deliveries are awaited"
            )
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, loop).result()
        except EscrowMQError as error:
            raise without_traceback(error)  # noqa: B904 - itself
        except RuntimeError:
            if not loop.is_closed():
                raise
            coroutine.close()
            raise _closed_error() from None


class _Call(Generic[T]):
    """One call that the loop's thread executes for another thread."""

    __slots__ = (
        "context", "coroutine", "done", "error", "is_dropped", "is_over", "result", "task",
    )  # fmt: skip

    def __init__(self, coroutine: Coroutine[Any, Any, T] | None) -> None:
        self.coroutine = coroutine
        # The caller's context variables: from them interceptors see to which span a message
        # belongs.
        self.context = contextvars.copy_context()
        self.done = greenlets.make_latch()
        self.is_over = False
        self.is_dropped = False
        """Whether its caller no longer waits."""
        self.result: T | None = None
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None

    def begin(self, portal: Portal) -> None:
        """Start a task for the call."""
        if self.is_dropped:
            self.fail()
        else:
            portal.start_task(self)

    async def run(self) -> None:
        """Run the coroutine and wake the caller."""
        assert self.coroutine is not None
        try:
            self.result = await self.coroutine
        except asyncio.CancelledError:
            self.error = _closed_error()
        except BaseException as error:  # noqa: BLE001 - raised again at the caller
            self.error = error
        finally:
            self.is_over = True
            self.done.release()

    def fail(self) -> None:
        """Wake the caller with an error, because the coroutine does not run, or does not end."""
        if not self.is_over:
            self.is_over = True
            coroutine = self.coroutine
            if (
                coroutine is not None
                and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
            ):
                coroutine.close()  # one that was begun is its task's
            self.error = _closed_error()
            self.done.release()


class _PostedWork:
    """Queued work whose end no caller waits for."""

    __slots__ = ("_work",)

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work

    def begin(self, _portal: Portal) -> None:
        """Do the queued work."""
        try:
            self._work()
        except Exception:  # noqa: BLE001 - it must not end the loop
            _log.exception("work in the client's thread failed")

    def fail(self) -> None:
        """Drop the work, which will not be done."""


class _TasklessCall(_Call[T]):
    """A call that usually needs no task, because most work only makes a request and waits for the
    answer."""

    __slots__ = ("_begin", "_portal", "_wait")

    def __init__(self, begin: Begin[T], wait: Callable[[], Coroutine[Any, Any, T]]) -> None:
        super().__init__(None)
        self._begin = begin
        self._wait = wait
        self._portal: Portal | None = None

    def begin(self, portal: Portal) -> None:
        """Begin the work; if it would have to wait, start a task for its coroutine."""
        if self.is_dropped:
            self.fail()
            return
        self._portal = portal
        portal.running.add(self)
        try:
            is_begun = self._begin(self.finish)
        except BaseException as error:  # noqa: BLE001 - raised again at the caller
            self.finish(None, error)
            return
        if not is_begun:
            self.finish(None, None, self._wait)

    def finish(
        self,
        result: T | None,
        error: BaseException | None = None,
        go_on: Callable[[], Coroutine[Any, Any, T]] | None = None,
    ) -> None:
        """Wake the caller, or start a task for the rest."""
        assert self._portal is not None
        if self.is_over:
            return  # the loop ended meanwhile
        if go_on is not None:
            self.coroutine = go_on()
            self._portal.start_task(self)
        else:
            self._portal.running.discard(self)
            self.result, self.error = result, error
            self.is_over = True
            self.done.release()


async def result_or_raise(
    result: T | None, error: BaseException | None, go_on: GoOn[T] | None
) -> T:
    """Return the result or raise the error that a `FinishCallback` was given."""
    if error is not None:
        raise error
    return await go_on() if go_on is not None else cast("T", result)


class PendingCall(Generic[T]):
    """A call in flight, whose result is fetched later, once."""

    __slots__ = ("_call", "_portal")

    def __init__(self, portal: Portal, call: _Call[T]) -> None:
        self._portal = portal
        self._call = call

    def result(self) -> T:
        """Wait for the call; return its result or raise its error. An interrupt cancels the
        call."""
        return self._portal.wait_for_result(self._call)


def without_traceback(error: BaseException) -> BaseException:
    """Return the error as the caller's thread should raise it. Our own errors explain themselves,
    and frames of the client's thread would only clutter their traceback. Any other error is a bug,
    and keeps its frames."""
    if isinstance(error, EscrowMQError):
        found: BaseException | None = error
        while found is not None:
            if isinstance(found.__cause__, TimeoutError):
                found.__cause__ = None  # asyncio's error says less than this one
            found.__traceback__ = None
            found.__context__ = found.__cause__  # errors handled meanwhile explain nothing
            found = found.__cause__
    return error


def _closed_error() -> ClientClosed:
    return ClientClosed("the client was closed while the call was under way; make a new one")


class Portal:
    """Runs coroutines on the loop's thread for callers on any other thread."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._forks_count = ForkCounter.count
        self._calls: collections.deque[_Call[Any] | _PostedWork] = collections.deque()
        self._is_woken = False
        self._is_closed = False
        self.running: set[_Call[Any]] = set()
        """Calls in flight; only this module uses it."""
        self._identify = greenlets.make_thread_identifier()
        self._loop = greenlets.new_event_loop()
        greenlets.set_hub(self._loop)
        self._thread = greenlets.start_thread(self._run_loop, name="escrowmq")

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine on the loop's thread; return its result or raise its error. An
        interrupt of the caller cancels it. What it has done by then stays done, but its result is
        lost; store results that must not be lost in an object of the caller."""
        try:
            self._check_usable()
        except BaseException:
            coroutine.close()
            raise
        return self._start_call(_Call(coroutine)).result()

    def call_without_task(self, begin: Begin[T], wait: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `begin` on the loop's thread, without a task. If `begin` would have to wait, run the
        coroutine that `wait` makes instead. Return the result or raise the error; an interrupt
        cancels the work."""
        return self.begin_without_task(begin, wait).result()

    def begin_without_task(
        self, begin: Begin[T], wait: Callable[[], Coroutine[Any, Any, T]]
    ) -> PendingCall[T]:
        """Like `call_without_task`, but return immediately an object from which the caller gets the
        result later."""
        self._check_usable()
        return self._start_call(_TasklessCall(begin, wait))

    def _start_call(self, call: _Call[T]) -> PendingCall[T]:
        try:
            self._enqueue(call)
        except BaseException:
            self._cancel_call(call)
            raise
        return PendingCall(self, call)

    def wait_for_result(self, call: _Call[T]) -> T:
        """Wait for a call and return its result; only this module uses it."""
        try:
            call.done.acquire()
            if call.error is None:
                return cast("T", call.result)
        except BaseException:
            self._cancel_call(call)
            raise
        try:
            raise without_traceback(call.error)
        finally:
            del call  # no cycle of frame and exception

    def _enqueue(self, entry: _Call[Any] | _PostedWork) -> None:
        """Add an entry to the queue of calls, and wake the loop."""
        try:
            self._calls.append(entry)
            if not self._is_woken:
                self._is_woken = True
                self._wake()
        except BaseException:
            # An interrupt may have come between the flag and the wake-up, for which all callers
            # would wait.
            self.post(self._run_queued)
            raise

    def post(self, work: Callable[[], object]) -> None:
        """Run a function on the loop's thread soon; do not wait for it."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(work)

    def post_in_order(self, work: Callable[[], object]) -> None:
        """Run a function on the loop's thread without waiting for it, but before all later calls of
        this thread. Raises if the client cannot be used now."""
        self._check_usable()
        self._enqueue(_PostedWork(work))

    def close(self) -> None:
        """End the thread; calls in flight fail with ClientClosed."""
        if self._forks_count != ForkCounter.count or self._is_closed:
            return
        self._is_closed = True
        self.post(self._loop.stop)
        if self._identify() != self._thread.ident:
            self._thread.join(JOIN_S)
            if self._thread.is_alive():
                _log.warning(
                    "the client's thread did not end within %.0f s; it is abandoned", JOIN_S
                )

    # -- inside ------------------------------------------------------------------------------

    def _check_usable(self) -> None:
        if ForkCounter.count != self._forks_count:
            raise ClientForked(
                f"the client was opened in process {self._process} and this is its fork "
                f"{os.getpid()}; make a new client after the fork"
            )
        if self._identify() == self._thread.ident:
            raise WrongThread(
                "a blocking client was called inside the thread that serves it; use "
                "escrowmq.aio in coroutines"
            )
        if self._is_closed:
            raise ClientClosed("the client is closed; make a new one")

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._run_queued)
        except RuntimeError:  # the loop was closed meanwhile
            self._fail_queued_calls()

    def _fail_queued_calls(self) -> None:
        """Fail the queued calls, which the closed loop will not execute. The wake-up flag is
        cleared first: a caller that saw it set has already queued its call."""
        self._is_woken = False
        with contextlib.suppress(IndexError):  # other threads may be here too
            while True:
                self._calls.popleft().fail()

    def _run_queued(self) -> None:
        # The flag is cleared first: everything appended from now on wakes the loop again.
        self._is_woken = False
        calls = self._calls
        while calls:
            calls.popleft().begin(self)

    def start_task(self, call: _Call[Any]) -> None:
        """Start a call's task; only this module uses it."""
        call.task = self._loop.create_task(call.run(), context=call.context)
        self.running.add(call)
        call.task.add_done_callback(functools.partial(self._on_task_done, call))

    def _on_task_done(self, call: _Call[Any], _task: asyncio.Task[None]) -> None:
        self.running.discard(call)
        call.fail()  # when it was cancelled before its first step

    def _cancel_call(self, call: _Call[Any]) -> None:
        call.is_dropped = True

        def cancel_task() -> None:
            if call.task is not None:
                call.task.cancel()

        self.post(cancel_task)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._shut_down()

    def _shut_down(self) -> None:
        """End everything in flight, then close the loop."""
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            with contextlib.suppress(Exception):
                self._loop.run_until_complete(asyncio.wait(tasks, timeout=CANCEL_S))
        self._loop.close()
        greenlets.forget_hub(self._loop)
        self._fail_queued_calls()  # later callers try to wake the closed loop, and get an error
        for call in list(self.running):
            call.fail()


class _SharedPortal:
    """The process's portal, and the number of clients that use it."""

    def __init__(self) -> None:
        # A signal handler may close one client while this thread opens another.
        self.lock = threading.RLock()
        self.portal: Portal | None = None
        self.users_count = 0


_shared = _SharedPortal()


def acquire_portal() -> Portal:
    """Return the process's portal; start it for its first user. Each user must `release_portal` it
    once."""
    with _shared.lock:
        if _shared.portal is None:
            _shared.portal = Portal()
            _shared.users_count = 0
        _shared.users_count += 1
        return _shared.portal


def call_if_open(make: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine on the process's loop and wait for it, if there are blocking clients."""
    with _shared.lock:
        portal = _shared.portal
    if portal is not None:
        portal.call(make())


def release_portal(portal: Portal) -> None:
    """Stop using the process's portal. When its last user stops, the thread ends."""
    with _shared.lock:
        if portal is not _shared.portal:
            return  # a parent's, in a forked child
        _shared.users_count -= 1
        assert _shared.users_count >= 0, _shared.users_count
        if _shared.users_count > 0:
            return
        _shared.portal = None
    portal.close()


def _forget_parents_portal() -> None:
    """Forget the parent's portal, in a forked child: no thread of this process runs the parent's
    loop."""
    global _shared
    _shared = _SharedPortal()


os.register_at_fork(after_in_child=_forget_parents_portal)


def _close_at_exit() -> None:
    portal = _shared.portal
    if portal is not None:
        portal.close()


atexit.register(_close_at_exit)
