"""What is promised about a record waits for the disk, for replicas, or for neither."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.codes import Response
from escrowmq.base.message import Message
from escrowmq.store.log_ends import NO_END, LogEnds
from escrowmq.store.store import Store
from escrowmq.testing.disk import SimDisk
from tests.unit.store.stores import SMALL, opened

DISK, SLAVE = Response.FLUSH_DISK_TIMEOUT, Response.FLUSH_SLAVE_TIMEOUT


def ends_of(*, is_sync_flush: bool = False, copies_timeout_ms: int = 0) -> tuple[Store, LogEnds]:
    """Of a log with a record in it, of which nothing is durable or copied."""
    settings = msgspec.structs.replace(SMALL, is_sync_flush=is_sync_flush, sync_timeout_ms=5_000)
    store, _ = opened(SimDisk(), settings)
    if copies_timeout_ms:
        store.ends.wait_for_copies(timeout_ms=copies_timeout_ms)
    store.put(Message(topic="t", body=b"x" * 500), 1_000)
    return store, store.ends


def test_with_nothing_to_wait_for_what_is_written_is_seen_and_answered() -> None:
    store, ends = ends_of()
    assert (ends.visible_end, ends.answerable_end) == (NO_END, NO_END)
    assert not ends.holds_answers
    assert ends.safety == {"escrowDurability": "memory"}
    assert ends.durable < ends.written_end == store.end_offset
    assert ends.timeout_code(ends.written_end, 1 << 40) is None


def test_with_sync_flush_both_wait_for_the_disk() -> None:
    _, ends = ends_of(is_sync_flush=True)
    assert (ends.visible_end, ends.answerable_end) == (0, 0)
    assert ends.holds_answers
    assert ends.safety == {"escrowDurability": "disk"}
    ends.set_durable(ends.written_end)
    assert (ends.visible_end, ends.answerable_end) == (ends.written_end, ends.written_end)


def test_replicas_are_waited_for_by_senders_alone() -> None:
    _, ends = ends_of(copies_timeout_ms=3_000)
    assert (ends.visible_end, ends.answerable_end) == (NO_END, 0)
    ends.set_confirmed(ends.written_end)
    assert ends.answerable_end == ends.written_end
    ends.set_confirmed(10)  # a replica that knows less is connected now
    assert ends.answerable_end == ends.written_end
    ends.wait_for_copies(timeout_ms=0)
    assert not ends.holds_answers


@pytest.mark.parametrize(
    ("is_durable", "is_confirmed", "waited_ms", "code"),
    [
        (False, False, 2_999, None),
        (False, False, 3_000, SLAVE),
        (False, False, 5_000, DISK),
        (False, True, 4_999, None),
        (False, True, 5_000, DISK),
        (True, False, 2_999, None),
        (True, False, 3_000, SLAVE),
        (True, True, 9_000, None),
    ],
)
def test_the_code_is_that_of_whoever_is_late(
    *, is_durable: bool, is_confirmed: bool, waited_ms: int, code: int | None
) -> None:
    _, ends = ends_of(is_sync_flush=True, copies_timeout_ms=3_000)
    log_end = ends.written_end
    if is_durable:
        ends.set_durable(log_end)
    if is_confirmed:
        ends.set_confirmed(log_end)
    assert ends.timeout_code(log_end, waited_ms) == code
    if code is not None:
        assert ends.answer_timeout_ms(log_end) <= waited_ms
    else:
        assert ends.answer_timeout_ms(log_end) > waited_ms


@given(
    moves=st.lists(st.tuples(st.sampled_from(["durable", "confirmed"]), st.integers(0, 500))),
    waits_for_disk=st.booleans(),
    waits_for_copies=st.booleans(),
)
def test_no_promise_is_taken_back(
    moves: list[tuple[str, int]], *, waits_for_disk: bool, waits_for_copies: bool
) -> None:
    _, ends = ends_of(is_sync_flush=waits_for_disk, copies_timeout_ms=waits_for_copies * 3_000)
    answerable, visible = ends.answerable_end, ends.visible_end
    for kind, offset in moves:
        (ends.set_durable if kind == "durable" else ends.set_confirmed)(offset)
        assert answerable <= ends.answerable_end <= ends.visible_end
        assert visible <= ends.visible_end
        answerable, visible = ends.answerable_end, ends.visible_end
        assert not waits_for_disk or visible <= ends.durable
        assert not waits_for_copies or answerable <= ends.confirmed


def test_an_end_beyond_what_is_written_is_believed_by_nobody() -> None:
    _, ends = ends_of(copies_timeout_ms=3_000)
    for move in (ends.set_durable, ends.set_confirmed):
        with pytest.raises(AssertionError):
            move(ends.written_end + 1)


def test_what_senders_are_told_follows_the_copies() -> None:
    _, ends = ends_of()
    ends.lead_group(timeout_ms=3_000)
    ends.set_in_sync(3)
    shared = ends.safety
    assert shared == {"escrowDurability": "memory", "escrowCopies": "3"}
    ends.set_confirmed(ends.written_end)
    assert ends.safety is shared
    ends.set_in_sync(1)
    assert ends.safety == {"escrowDurability": "disk"}
    _, ends = ends_of(is_sync_flush=True)
    ends.wait_for_copies(timeout_ms=3_000, copies=2)
    assert ends.safety == {"escrowDurability": "disk", "escrowCopies": "2"}
