"""The state of a transaction whose half is in the log twice."""

from __future__ import annotations

import msgspec
import pytest

from escrowmq.base.message import Message, StoredMessage, Topic
from escrowmq.txn.doubled_halves import has_final, newest_copy, status_of
from escrowmq.txn.half_records import copy_to
from escrowmq.txn.open_half import OpenHalf
from escrowmq.txn.state import OutcomeLedger, State, Verdict

from .ground import Ground


@pytest.fixture(name="ground")
def make_ground() -> Ground:
    return Ground()


def give_up(ground: Ground, half: StoredMessage) -> None:
    ground.decide(half, Verdict.EXPIRE)
    ground.engine.unsealed.seal(ground.now_ms)


def put_copy(ground: Ground, half: StoredMessage, **changed: str) -> StoredMessage:
    """A copy of a half, as a resumed one is, with other properties; it is not pending yet."""
    copy = copy_to(half, Topic.HALF)
    properties = {**half.properties, "TRANSACTION_CHECK_TIMES": "1", **changed}
    properties = {name: value for name, value in properties.items() if value}
    put = ground.store.put(
        msgspec.structs.replace(copy, properties=properties, flag=0), ground.now_ms
    )
    found = ground.store.read(put.log_offset)
    assert found is not None
    return found


def status(ground: Ground, half: StoredMessage) -> tuple[State, int, int]:
    named = OpenHalf(half.queue_offset, half)
    state, (number, message, _) = status_of(named, ground.engine.halves, ground.store)
    return state, number, message.queue_offset


def test_resumed_transaction_has_the_age_of_its_copy(ground: Ground) -> None:
    half = ground.prepare()
    give_up(ground, half)
    copy = put_copy(ground, half)
    ground.reopen()
    assert status(ground, half) == (State.PENDING, copy.queue_offset, copy.queue_offset)


def test_copy_of_a_half_that_was_not_given_up_has_the_age_of_the_first(ground: Ground) -> None:
    half = ground.prepare()
    copy = put_copy(ground, half)
    ground.store.put(Message(topic=Topic.OP, body=b"0,", properties={"TAGS": "d"}), 1)
    ground.reopen()
    assert status(ground, half) == (State.PENDING, copy.queue_offset, half.queue_offset)


@pytest.mark.parametrize("verdict", [Verdict.COMMIT, Verdict.ROLLBACK])
def test_resumed_transaction_that_ended_before_the_last_start_has_its_copys_outcome(
    ground: Ground, verdict: Verdict
) -> None:
    half = ground.prepare()
    give_up(ground, half)
    copy = put_copy(ground, half)
    ground.reopen()
    ground.end(copy, verdict)
    state = status(ground, half)[0]
    assert state == {Verdict.COMMIT: State.COMMITTED, Verdict.ROLLBACK: State.ROLLED_BACK}[verdict]
    ground.reopen(half_offset=copy.queue_offset + 1)
    assert not ground.engine.halves.aliases
    assert status(ground, half) == (state, half.queue_offset, half.queue_offset)


@pytest.mark.parametrize(
    "changed",
    [
        {"PGROUP": "AA"},  # of another sender, whichever way one compares
        {"PGROUP": "ZZ"},
        {"TRANSACTION_CHECK_TIMES": ""},  # sent twice by its client
    ],
)
def test_half_with_the_same_key_that_is_no_copy_has_no_say(
    ground: Ground, changed: dict[str, str]
) -> None:
    half = ground.prepare()
    give_up(ground, half)
    other = put_copy(ground, half, **changed)
    ground.reopen()
    ground.end(other, Verdict.ROLLBACK)
    ground.reopen(half_offset=other.queue_offset + 1)
    assert newest_copy(half, ground.engine.halves, ground.store) == -1
    assert status(ground, half) == (State.EXPIRED, half.queue_offset, half.queue_offset)


def test_half_that_rocketmq_ended_is_settled_whatever_became_of_its_copy(ground: Ground) -> None:
    half = ground.prepare()
    copy = put_copy(ground, half)
    ground.store.put(Message(topic=Topic.OP, body=b"0,", properties={"TAGS": "d"}), 1)
    ground.reopen()
    assert newest_copy(copy, ground.engine.halves, ground.store) == -1, "it is the newest itself"
    ground.end(copy, Verdict.ROLLBACK)
    assert newest_copy(half, ground.engine.halves, ground.store) == copy.queue_offset
    assert status(ground, half) == (State.SETTLED, half.queue_offset, half.queue_offset)


def test_half_is_no_copy_of_itself(ground: Ground) -> None:
    half = ground.prepare(TRANSACTION_CHECK_TIMES="1")
    give_up(ground, half)
    ground.reopen(half_offset=1)
    assert newest_copy(half, ground.engine.halves, ground.store) == -1


def test_half_of_which_nothing_is_recorded_is_committed_if_its_final_is_there(
    ground: Ground,
) -> None:
    halves = [ground.prepare(b"%d" % n) for n in range(2)]
    ground.end(halves[0], Verdict.COMMIT)
    ground.reopen(half_offset=2)
    ground.engine.halves.ledger = OutcomeLedger()
    assert status(ground, halves[0])[0] == State.COMMITTED
    assert status(ground, halves[1])[0] == State.SETTLED


def test_final_of_another_half_with_the_same_key_is_not_this_ones(ground: Ground) -> None:
    ground.store.put(Message(topic="T", body=b"x"), 1)  # a half at 0 is named by delayed finals too
    first, second = ground.prepare(b"same"), ground.prepare(b"same")
    ground.end(first, Verdict.COMMIT)
    assert has_final(first, ground.store)
    assert not has_final(second, ground.store)


def test_half_that_names_no_topic_has_no_final(ground: Ground) -> None:
    half = ground.prepare()
    properties = {name: text for name, text in half.properties.items() if name != "REAL_TOPIC"}
    assert not has_final(msgspec.structs.replace(half, properties=properties), ground.store)
