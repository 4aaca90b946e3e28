"""What a message costs on the fast path, pinned without a clock: calls of Python's and of C's
functions in a read of 64, and in one of its own, where each costs several times as much. Who makes
one more for each message has to say here why."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from escrowmq.base import runs
from escrowmq.testing import disk
from tests.unit.broker.both import Begun, Side, begun_of, end, half, pull, send
from tests.unit.broker.fast.test_publish_grants import ACCOUNTS, signed

BURST = 64
READS = 16

LEFT_OUT = (disk.__file__, runs.__file__)
"""A disk that is simulated; files in memory are read by the lane."""

Reads = Callable[[Side, int, int], bytes]


def key_of(number: int) -> str:
    return f"0A000001ABCD18B4AAC20000{number:08X}"


def sends(_: Side, first: int, count: int) -> bytes:
    return b"".join(
        send({"UNIQ_KEY": key_of(n), "WAIT": "true"}, b"x" * 99, e=str(n % 4))
        for n in range(first, first + count)
    )


def rich_sends(_: Side, first: int, count: int) -> bytes:
    return b"".join(
        send({"KEYS": f"k{n}", "UNIQ_KEY": key_of(n), "TAGS": "a", "more": "of it"}, b"x" * 99)
        for n in range(first, first + count)
    )


def halves(_: Side, first: int, count: int) -> bytes:
    return b"".join(half(n) for n in range(first, first + count))


def signed_sends(side: Side, first: int, count: int) -> bytes:
    return signed(sends(side, first, count))


def halves_that_want_ids(_: Side, first: int, count: int) -> bytes:
    properties = {"TRAN_MSG": "true", "PGROUP": "load"}
    return b"".join(
        send({"UNIQ_KEY": key_of(n), **properties}, f="4", escrowWantsId="true")
        for n in range(first, first + count)
    )


def ends_in_json(side: Side, first: int, count: int) -> bytes:
    return ends(side, first, count, is_binary=False)


def ends(side: Side, first: int, count: int, *, is_binary: bool = True) -> bytes:
    """Of halves that nobody remembers."""
    side.heard.clear()
    side.feed((1, halves(side, first, count)))
    side.core.transactions.engine.halves.recent.clear()
    begun: list[Begun] = begun_of(b"".join(data for _, data in side.heard))
    return b"".join(end(one, flag=0, is_binary=is_binary) for one in begun)


def calls_of(side: Side, data: bytes, *left_out: str) -> tuple[int, int]:
    """Calls of Python's and of C's functions in a read, but those in some files."""
    counts = {"call": 0, "c_call": 0}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event in counts and frame.f_code.co_filename not in left_out:
            counts[event] += 1

    sys.setprofile(note)
    side.core.receive(1, data, side.now_ms)
    sys.setprofile(None)
    return counts["call"], counts["c_call"]


def calls_a_message(reads: Reads, *, burst: int = BURST) -> tuple[float, float]:
    """The fewest of some reads: others begin a segment, or write what was collected."""
    if reads is signed_sends:
        side = Side(is_fast=True, files={"plain_acl.yml": ACCOUNTS}, acl_enabled=True)
    else:
        side = Side(is_fast=True)
    found = []
    # Alone, until what was learnt at first is made up for.
    for number in range(READS if burst > 1 else 4 * READS):
        data = reads(side, 1_000 + number * burst, burst)
        before = side.served_count
        calls, calls_of_c = calls_of(side, data, disk.__file__)
        if side.served_count - before == burst:
            found.append((calls / burst, calls_of_c / burst))
        side.perform()
    return min(found)


@pytest.mark.parametrize(
    ("reads", "most"),
    [
        (sends, (1, 3)),
        (rich_sends, (1, 3)),
        (signed_sends, (15, 20)),
        (halves, (2, 4)),
        (halves_that_want_ids, (33, 53)),
        (ends, (8, 12)),
        (ends_in_json, (8, 12)),
    ],
)
def test_a_message_takes_no_more_calls_than_it_did(reads: Reads, most: tuple[float, float]) -> None:
    found = calls_a_message(reads)
    assert found[0] <= most[0], found
    assert found[1] <= most[1], found


@pytest.mark.parametrize(
    ("reads", "most"), [(sends, 32), (halves, 42), (ends, 65), (signed_sends, 60)]
)
def test_a_message_alone_in_a_read_takes_no_more_calls_than_it_did(
    reads: Reads, most: float
) -> None:
    """With what each read takes: a producer of one thread pays it for each message."""
    calls, _ = calls_a_message(reads, burst=1)
    assert calls <= most, calls


def test_a_pull_alone_in_a_read_takes_no_more_calls_than_it_did() -> None:
    side = Side(is_fast=True)
    side.feed((1, sends(side, 1_000, 400)))
    found = []
    for number in range(READS):
        data = pull(number, opaque=number)
        found.append(calls_of(side, data, *LEFT_OUT))
        side.perform()
    pulls = side.core.remoting.pulls
    assert pulls is not None
    assert pulls.served_count >= READS - 4  # the first of each size are learnt from
    calls, calls_of_c = min(found)
    assert calls <= 25, found
    assert calls_of_c <= 20, found
