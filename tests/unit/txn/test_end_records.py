from __future__ import annotations

import pytest

from escrowmq.base.message import StoredMessage, Topic
from escrowmq.txn.end_records import EndRecord, end_records
from escrowmq.txn.open_half import OpenHalf
from escrowmq.txn.state import State, Verdict

from .ground import Ground


@pytest.fixture(name="ground")
def make_ground() -> Ground:
    return Ground()


def records_of(ground: Ground, half: StoredMessage, state: State) -> list[EndRecord] | None:
    return end_records(
        OpenHalf(half.queue_offset, half),
        state,
        ground.engine.halves,
        now_ms=ground.now_ms,
        as_delivered=lambda final, now_ms: final,
    )


def bodies(records: list[EndRecord] | None) -> list[tuple[int, bytes]]:
    assert records is not None
    return [(number, message.body) for number, message, _ in records if message is not None]


def test_messages_of_a_transaction_keep_their_order_whichever_is_named(ground: Ground) -> None:
    halves = [ground.prepare(b"m%d" % n, escrowTransaction="tx") for n in range(3)]
    records = records_of(ground, halves[2], State.COMMITTED)
    assert bodies(records) == [(0, b"m0"), (1, b"m1"), (2, b"m2")]
    dropped = records_of(ground, halves[1], State.ROLLED_BACK)
    assert dropped == [EndRecord(number) for number in range(3)]


def test_a_part_of_a_transaction_is_not_committed_and_says_what_it_was_a_part_of(
    ground: Ground,
) -> None:
    halves = [
        ground.prepare(b"m%d" % n, escrowTransaction="tx", escrowMessages="3") for n in range(2)
    ]
    assert records_of(ground, halves[0], State.COMMITTED) is None
    discards = records_of(ground, halves[0], State.EXPIRED)
    assert bodies(discards) == [(0, b"m0"), (1, b"m1")]
    assert discards is not None
    assert {message and message.topic for _, message, _ in discards} == {Topic.CHECK_MAX_TIME}
    assert {message and message.properties["escrowMessages"] for _, message, _ in discards} == {"3"}


def test_discards_of_a_transaction_that_did_not_say_are_counted(ground: Ground) -> None:
    halves = [ground.prepare(b"m%d" % n, escrowTransaction="tx") for n in range(2)]
    discards = records_of(ground, halves[0], State.EXPIRED)
    assert discards is not None
    assert [message and message.properties["escrowMessages"] for _, message, _ in discards] == [
        "2"
    ] * 2


def test_the_rest_of_a_commit_is_stored_however_little_is_left(ground: Ground) -> None:
    halves = [ground.prepare(b"m%d" % n, escrowTransaction="tx") for n in range(3)]
    ground.damage(halves[1])
    assert records_of(ground, halves[0], State.COMMITTED) is None
    assert halves[1].queue_offset in ground.engine.halves.quarantine
    ground.engine.halves.partly_ended[0] = ground.engine.halves.partly_ended[2] = Verdict.COMMIT
    rest = records_of(ground, halves[0], State.COMMITTED)
    assert bodies(rest) == [(0, b"m0"), (2, b"m2")]


def test_a_transaction_that_is_as_large_as_it_says_is_committed(ground: Ground) -> None:
    for said, is_committed in (("2", True), ("1", True), ("3", False), ("x", True)):
        name = f"tx-{said}"
        halves = [
            ground.prepare(b"%s %d" % (name.encode(), n), escrowTransaction=name,
                           escrowMessages=said)
            for n in range(2)
        ]  # fmt: skip
        assert (records_of(ground, halves[0], State.COMMITTED) is not None) is is_committed


def test_a_discard_of_one_message_says_no_number(ground: Ground) -> None:
    records = records_of(ground, ground.prepare(b"x"), State.EXPIRED)
    assert records is not None
    (discard,) = records
    assert discard.message is not None
    assert "escrowMessages" not in discard.message.properties
