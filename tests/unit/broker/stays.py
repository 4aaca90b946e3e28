"""How far a reader of one request has to go: which files its calls are in, one after the other.

    python -m tests.unit.broker.stays        # a table of all requests
    python -m tests.unit.broker.stays END    # the calls of one on the general path, by file

A stay is a run of successive calls in one file; a return is a stay in a file that was left
before."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

import escrowmq
from escrowmq.testing import disk
from tests.unit.broker.both import Side, begun_of, end, half, pull, send

PACKAGE: Final = Path(escrowmq.__file__).parent
WARM_COUNT: Final = 50
"""Requests before the one that is traced, so that nothing is looked up for the first time."""

COMPREHENSIONS: Final = ("<listcomp>", "<setcomp>", "<dictcomp>")


class Walk(NamedTuple):
    """The calls of one input of a warm broker: file and function of each."""

    calls: list[tuple[str, str]]

    @property
    def stays(self) -> list[str]:
        """The files, each as often as it is entered."""
        return [file for file, _ in groupby(file for file, _ in self.calls)]

    @property
    def files(self) -> set[str]:
        """The files that are entered at all."""
        return set(self.stays)

    @property
    def returns_count(self) -> int:
        """How often a file is entered again."""
        return len(self.stays) - len(self.files)


def walk_of(side: Side, data: bytes) -> Walk:
    """Trace what a broker does with one input. The disk of the tests is left out."""
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if frame.f_code.co_name in COMPREHENSIONS:
            return  # no calls, in later releases of Python
        if event == "call" and path.is_relative_to(PACKAGE) and str(path) != disk.__file__:
            calls.append((str(path.relative_to(PACKAGE)), frame.f_code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        side.core.receive(1, data, side.now_ms)
    finally:
        sys.setprofile(before)
    side.perform()
    return Walk(calls)


def _send(_: Side, number: int) -> bytes:
    return send({"UNIQ_KEY": f"0A000001ABCD18B4AAC20000{number:08X}", "WAIT": "true"})


def _half(_: Side, number: int) -> bytes:
    return half(number)


def _end(side: Side, number: int, verdict: str = "8") -> bytes:
    side.heard.clear()
    side.feed((1, half(number)))
    (begun,) = begun_of(b"".join(data for _, data in side.heard))
    return end(begun, verdict, flag=0)


def _rollback(side: Side, number: int) -> bytes:
    return _end(side, number, "12")


def _pull(side: Side, number: int) -> bytes:
    if not number:
        side.feed((1, b"".join(_send(side, nth) for nth in range(WARM_COUNT + 1))))
    return pull(number, opaque=number)


REQUESTS: Final[dict[str, Callable[[Side, int], bytes]]] = {
    "send": _send,
    "half": _half,
    "END": _end,
    "END that rolls back": _rollback,
    "pull": _pull,
}


def walk_for(request: str, *, is_short: bool) -> Walk:
    """Trace one request of a kind, on the fast path or on the general path."""
    side, make = Side(is_fast=is_short), REQUESTS[request]
    for number in range(WARM_COUNT):
        side.feed((1, make(side, number)))
    return walk_of(side, make(side, WARM_COUNT))


def report() -> str:
    """A table of all requests."""
    lines = [f"{'request':20} {'path':8} {'calls':>6} {'stays':>6} {'files':>6} {'returns':>8}"]
    for request in REQUESTS:
        for path, is_short in (("general", False), ("fast", True)):
            walk = walk_for(request, is_short=is_short)
            counts = len(walk.calls), len(walk.stays), len(walk.files), walk.returns_count
            lines.append(f"{request:20} {path:8} {'{:6} {:6} {:6} {:8}'.format(*counts)}")
    return "\n".join(lines)


def report_of(request: str, *, is_short: bool = False) -> str:
    """The calls of one request, a line for each stay."""
    calls = groupby(walk_for(request, is_short=is_short).calls, key=lambda call: call[0])
    return "\n".join(f"{file:40} {', '.join(name for _, name in some)}" for file, some in calls)


if __name__ == "__main__":
    asked = sys.argv[1:]
    sys.stdout.write("\n".join(map(report_of, asked)) if asked else report())
    sys.stdout.write("\n")
