"""Which finals and discards in the log end which halves at a start, where no op record says so."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from escrowmq.base.message import Message, StoredMessage, Topic
from escrowmq.store.walk import walk_log
from escrowmq.txn import pending_recovery
from escrowmq.txn.engine import TransactionEngine
from escrowmq.txn.half_records import copy_to, make_final
from escrowmq.txn.pending_recovery import HalvesRecovery
from escrowmq.txn.state import State, Verdict

from .ground import HOST, Ground, GrudgingStore
from .test_pending_recovery import give_up, java_final, java_op, put_back


@pytest.fixture(name="ground")
def make_ground() -> Ground:
    made = Ground()
    made.store.put(Message(topic="Other", body=b"at the log's beginning"), made.now_ms)
    return made


def pending_of(ground: Ground) -> list[int]:
    return list(ground.engine.halves.pending)


def discard(ground: Ground, half: StoredMessage, *, named: int = 0) -> None:
    """A half in the topic of those that were given up; RocketMQ's names none."""
    copy = msgspec.structs.replace(copy_to(half, Topic.CHECK_MAX_TIME), prepared_log_offset=named)
    ground.store.put(copy, ground.now_ms)


def final_naming(ground: Ground, half: StoredMessage, log_offset: int) -> None:
    final = make_final(half)
    assert final is not None
    ground.store.put(msgspec.structs.replace(final, prepared_log_offset=log_offset), ground.now_ms)


# -- from where on is read -------------------------------------------------------------------------


@pytest.mark.parametrize("is_sound", [True, False])
def test_log_is_read_from_the_last_op_record_on_if_it_is_sound(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, *, is_sound: bool
) -> None:
    first, second = ground.prepare(b"1"), ground.prepare(b"2")
    ground.end(second, Verdict.COMMIT)
    (op,) = ground.messages(Topic.OP)
    starts: list[int] = []

    def noted(store: GrudgingStore, start: int, **named: Any) -> object:
        starts.append(start)
        return walk_log(store, start, **named)

    monkeypatch.setattr(pending_recovery, "walk_log", noted)
    engine = TransactionEngine(
        ground.store, ground.settings, host=HOST, as_delivered=lambda final, _: final
    )
    recovery = HalvesRecovery(engine, ground.store)
    recovery.run(ground.now_ms, half_offset=0, op_offset=0, is_sound=is_sound)
    assert starts == [op.log_offset if is_sound else first.log_offset]


# -- discards --------------------------------------------------------------------------------------


def fill_disk(ground: Ground) -> None:
    """From now on no queue can begin a file; the log has room."""
    ground.disk.room = ground.disk.used


def test_discard_that_has_no_unit_on_a_full_disk_ends_its_half(ground: Ground) -> None:
    half, other = ground.prepare(b"given up"), ground.prepare(b"other")
    fill_disk(ground)
    ground.store.put(Message(topic="Fresh", body=b"waits too"), ground.now_ms)
    give_up(ground, half)
    assert ground.store.bounds(Topic.CHECK_MAX_TIME, 0) == (0, 0)
    assert ground.reopen().derived_count == 1
    assert pending_of(ground) == [other.queue_offset]


def test_discard_on_a_full_disk_that_cannot_be_read_keeps_no_broker_from_starting(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = ground.prepare(b"given up")
    fill_disk(ground)
    give_up(ground, half)
    (waiting,) = ground.store.dispatcher.waiting
    read = GrudgingStore.read
    monkeypatch.setattr(
        GrudgingStore, "read",
        lambda store, place: None if place == waiting.log_offset else read(store, place),
    )  # fmt: skip
    assert ground.reopen().derived_count == 0
    assert pending_of(ground) == [half.queue_offset]


def test_half_that_has_no_unit_on_a_full_disk_is_pending(ground: Ground) -> None:
    fill_disk(ground)
    ground.store.put(Message(topic="Fresh", body=b"waits before"), ground.now_ms)
    halves = [ground.prepare(b"%d" % number) for number in range(3)]
    assert ground.store.bounds(Topic.HALF, 0) == (0, 0)
    ground.store.put(Message(topic="Fresh", body=b"waits behind"), ground.now_ms)
    assert ground.reopen().pending_count == 3
    assert pending_of(ground) == [half.queue_offset for half in halves]


@pytest.mark.parametrize("names", [b"ab", b"ba"])
def test_discard_that_names_another_half_ends_none(ground: Ground, names: bytes) -> None:
    one, other = (ground.prepare(names[at : at + 1]) for at in (0, 1))
    discard(ground, one, named=other.log_offset)
    assert ground.reopen().derived_count == 0
    assert pending_of(ground) == [0, 1]


@pytest.mark.parametrize("has_copy", [False, True])
def test_discard_that_names_what_is_gone_ends_none(ground: Ground, *, has_copy: bool) -> None:
    half = ground.prepare(b"paid")
    if has_copy:
        put_back(ground, half, 1)
        java_op(ground, b"0,")
    discard(ground, half, named=1 << 20)
    assert ground.reopen().derived_count == 0
    assert pending_of(ground) == [int(has_copy)]


def test_discard_that_names_none_ends_the_newest_copy_and_nothing_else(ground: Ground) -> None:
    alone, half = ground.prepare(b"alone"), ground.prepare(b"paid")
    copy = put_back(ground, half, 15)
    java_op(ground, b"1,")
    discard(ground, alone)  # nothing says that it was checked
    discard(ground, copy)
    discard(ground, copy)
    found = ground.reopen()
    assert found.derived_count == 1
    assert pending_of(ground) == [alone.queue_offset]
    assert ground.engine.halves.ledger.outcome(copy.queue_offset) == State.EXPIRED


# -- finals ----------------------------------------------------------------------------------------


def test_final_ends_the_copy_where_the_first_half_is_gone(ground: Ground) -> None:
    half = ground.prepare(b"paid")
    copy = put_back(ground, half, 1)
    java_op(ground, b"0,")
    final_naming(ground, half, 1 << 20)
    assert ground.reopen().derived_count == 1
    assert ground.engine.halves.ledger.outcome(copy.queue_offset) == State.COMMITTED


def test_final_that_names_what_is_no_half_ends_none(ground: Ground) -> None:
    half = ground.prepare(b"paid")
    put_back(ground, half, 1)
    java_op(ground, b"0,")
    for topic in ("A topic before those of halves", "zzz"):
        like = msgspec.structs.replace(copy_to(half, topic), sys_flag=0)
        named = ground.store.put(like, ground.now_ms).log_offset
        final_naming(ground, half, named)
    assert ground.reopen().derived_count == 0
    assert pending_of(ground) == [1]


def test_delayed_final_whose_half_cannot_be_named_ends_none(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names offset 0, and no record is there any more."""
    half = ground.prepare(b"paid")
    put_back(ground, half, 1)
    java_op(ground, b"0,")
    final_naming(ground, half, 0)
    read = GrudgingStore.read
    monkeypatch.setattr(
        GrudgingStore, "read", lambda store, place: read(store, place) if place else None
    )
    assert ground.reopen().derived_count == 0
    assert pending_of(ground) == [1]


def test_second_final_of_a_copy_ends_nothing_more(ground: Ground) -> None:
    half = ground.prepare(b"paid")
    put_back(ground, half, 1)
    for _ in range(2):
        java_final(ground, half)
    found = ground.reopen(half_offset=1)
    assert (found.derived_count, found.pending_count) == (1, 0)
