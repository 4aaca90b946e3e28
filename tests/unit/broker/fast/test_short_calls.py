"""What a message costs on the fast path, pinned without a clock: calls of Python's and of C's
functions in a read of 64, and in one of its own, where each costs several times as much. Who makes
one more for each message has to say here why."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from escrowmq.base import runs
from escrowmq.lane.native import find_repeated, index_key, lay_out_sends
from escrowmq.testing import disk
from tests.unit.broker.both import Begun, Side, begun_of, end, half, pull, send
from tests.unit.broker.fast.test_publish_grants import ACCOUNTS, signed

BURST = 64
READS = 16

LEFT_OUT = (disk.__file__, runs.__file__)
"""A disk that is simulated; files in memory are read by the lane."""

Reads = Callable[[Side, int, int], bytes]

HASHING = (0, 0) if index_key is not None else (2, 5)
"""What a key of the index costs besides where plain Python hashes it."""


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


def ends(side: Side, first: int, count: int) -> bytes:
    """Of halves that nobody remembers."""
    side.heard.clear()
    side.feed((1, halves(side, first, count)))
    side.core.transactions.engine.halves.recent.forget()
    begun: list[Begun] = begun_of(b"".join(data for _, data in side.heard))
    return b"".join(end(one, flag=0) for one in begun)


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


def calls_a_message(reads: Reads, *, is_compiled: bool, burst: int = BURST) -> tuple[float, float]:
    """The fewest of some reads: others begin a segment, or write what was collected."""
    lane = lay_out_sends if is_compiled else None
    if reads is signed_sends:
        files = {"plain_acl.yml": ACCOUNTS}
        side = Side(is_short=True, lay_out=lane, files=files, acl_enabled=True)
    else:
        side = Side(is_short=True, lay_out=lane)
    found = []
    for number in range(READS):
        data = reads(side, 1_000 + number * burst, burst)
        before = side.served_count
        calls, calls_of_c = calls_of(side, data, disk.__file__)
        if side.served_count - before == burst:
            found.append((calls / burst, calls_of_c / burst))
        side.perform()
    return min(found)


@pytest.mark.parametrize(
    ("reads", "is_compiled", "most"),
    [
        (sends, True, (2, 3)),
        (sends, False, (15, 26)),
        (rich_sends, True, (2, 3)),
        (rich_sends, False, (15, 30)),
        (signed_sends, False, (29, 48)),
        (halves, True, (2, 4)),
        (halves, False, (18, 35)),
        (ends, True, (8, 12)),
        (ends, False, (41, 56)),
    ],
)
def test_a_message_takes_no_more_calls_than_it_did(
    reads: Reads, most: tuple[float, float], *, is_compiled: bool
) -> None:
    if is_compiled and lay_out_sends is None:
        pytest.skip("the lane is not built, or left aside")
    calls, calls_of_c = calls_a_message(reads, is_compiled=is_compiled)
    keys_count = 2 if reads is rich_sends else 1
    assert calls <= most[0] + keys_count * HASHING[0], (calls, calls_of_c)
    assert calls_of_c <= most[1] + keys_count * HASHING[1], (calls, calls_of_c)


@pytest.mark.parametrize(("reads", "most"), [(sends, 32), (halves, 42), (ends, 65)])
def test_a_message_alone_in_a_read_takes_no_more_calls_than_it_did(
    reads: Reads, most: float
) -> None:
    """With what each read takes: a producer of one thread pays it for each message."""
    if lay_out_sends is None:
        pytest.skip("the lane is not built, or left aside")
    calls, _ = calls_a_message(reads, is_compiled=True, burst=1)
    assert calls <= most, calls


def test_a_pull_alone_in_a_read_takes_no_more_calls_than_it_did() -> None:
    if find_repeated is None:
        pytest.skip("the lane is not built, or left aside")
    side = Side(is_short=True, lay_out=lay_out_sends)
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
