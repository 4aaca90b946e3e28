"""Interrupts at each bytecode of a plain call, cancellations at each await of a coroutine."""

from __future__ import annotations

import asyncio
import dis
import functools
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Final

import escrowmq

POINTS_MAX: Final = 20_000
"""More points than any call has: whoever comes so far goes in a circle."""

_OURS: Final = str(Path(escrowmq.__file__).parent)


_LOOKING: Final = frozenset(
    dis.opmap[name]
    for name in ("RESUME", "CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD")
    if name in dis.opmap
)
"""Behind these CPython looks for signals, and behind no others: a `with` on a lock, for example,
cannot be interrupted between its body and its end."""


@functools.cache
def _codes(code: CodeType) -> bytes:
    return code.co_code


TALLY: Final[dict[str, Counter[str]]] = {}
"""What was tried of each call, and what became of it; told at the end of the session."""


def interrupt(work: Callable[[], object], number: int) -> str:
    """Call `work`, and raise KeyboardInterrupt at the nth bytecode at which a signal can raise it,
    of those that it, or what it calls of escrowmq, runs on this thread. Whether it was `raised` to
    the caller or the call `came through`; empty when it ended before."""
    seen = 0
    latest: dict[FrameType, int] = {}
    home = work.__code__.co_filename if hasattr(work, "__code__") else _OURS

    def at_opcode(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal seen
        if event == "opcode":
            before = latest.get(frame)
            latest[frame] = frame.f_lasti
            if before is not None and _codes(frame.f_code)[before] in _LOOKING:
                seen += 1
                if seen == number:
                    raise KeyboardInterrupt
        elif event == "exception":
            # CPython does not look for signals behind a call that raised. Interrupted in front of
            # its first instruction, a handler would also leave its exception as the thread's
            # current one, and each later exception of the process would get that as its context.
            latest.pop(frame, None)
        return at_opcode

    def at_call(frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        if code.co_name == "__del__" or not code.co_filename.startswith((_OURS, home)):
            return None
        frame.f_trace_opcodes = True
        return at_opcode

    before, handled = sys.gettrace(), sys.exc_info()[1]
    outcome = ""
    sys.settrace(at_call)
    try:
        work()
    except KeyboardInterrupt:
        outcome = "raised"
    finally:
        sys.settrace(before)
        latest.clear()  # frames, which lead back here: the call's objects are to be gone now
    assert sys.exc_info()[1] is handled, "an interrupt left its exception behind"
    # Without an outcome it was caught, or raised where nobody hears it.
    return outcome or ("came through" if seen >= number else "")


def interrupted_at(work: Callable[[], object], method: Callable[..., object]) -> None:
    """Raise KeyboardInterrupt in place of the first instruction of a method."""

    assert isinstance(method, FunctionType)
    code = method.__code__

    def at_call(frame: FrameType, event: str, arg: object) -> None:
        if frame.f_code is code:
            raise KeyboardInterrupt

    before = sys.gettrace()
    sys.settrace(at_call)
    try:
        work()
    finally:
        sys.settrace(before)


def interrupted_everywhere(work: Callable[[], object], name: str) -> int:
    """Interrupt it at every bytecode in turn; how many there were."""
    tally = TALLY.setdefault(f"{name}, interrupted", Counter())
    # From Python 3.12 on bytecodes are told only of code that was asked for them before it ran.
    interrupt(work, 0)
    for number in range(1, POINTS_MAX):
        outcome = interrupt(work, number)
        if not outcome:
            return number - 1
        tally[outcome] += 1
    raise AssertionError(f"{POINTS_MAX} points and no end")


class _CancelAt:
    """Awaits a coroutine, and cancels its task when it is suspended for the nth time."""

    def __init__(self, work: Coroutine[Any, Any, object], number: int) -> None:
        self._work = work
        self._number = number
        self.seen = 0

    def __await__(self) -> Generator[Any, Any, object]:
        steps = self._work.__await__()
        task = asyncio.current_task()
        assert task is not None
        given: Any = None
        error: BaseException | None = None
        while True:
            try:
                waits = steps.throw(error) if error is not None else steps.send(given)
            except StopIteration as ended:
                return ended.value
            error = None
            self.seen += 1
            if self.seen == self._number:
                asyncio.get_running_loop().call_soon(task.cancel)
            try:
                given = yield waits
            except BaseException as raised:  # noqa: BLE001 - handed on to the coroutine
                error = raised


async def cancelled_everywhere(make: Callable[[], Coroutine[Any, Any, object]], name: str) -> int:
    """Cancel a coroutine at every await in turn; how many there were."""
    tally = TALLY.setdefault(f"{name}, cancelled", Counter())
    for number in range(1, POINTS_MAX):
        steps = _CancelAt(make(), number)

        async def run(steps: _CancelAt = steps) -> None:
            await steps

        (outcome,) = await asyncio.gather(asyncio.create_task(run()), return_exceptions=True)
        if outcome is not None and not isinstance(outcome, asyncio.CancelledError):
            raise outcome
        if steps.seen < number:
            return number - 1
        tally["came through" if outcome is None else "raised"] += 1
    raise AssertionError(f"{POINTS_MAX} points and no end")
