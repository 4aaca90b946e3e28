from __future__ import annotations

from escrowmq.base.message import StoredMessage, Topic
from escrowmq.delivery.timer_rolls import RolledRecords

FAR_MS = 172_800_000


def record(times: int = 0, *, body: bytes = b"x") -> StoredMessage:
    properties = {"REAL_TOPIC": "T"} | ({"TIMER_ROLL_TIMES": f"{times}"} if times else {})
    return StoredMessage(
        topic=Topic.TIMER, body=body, properties=properties, queue_offset=0, log_offset=0,
        stored_ms=0, record_size=100,
    )  # fmt: skip


def test_a_copy_replaces_the_record_that_was_rolled_one_time_less() -> None:
    rolls = RolledRecords(1_000)
    rolls.begin_replacing()
    assert rolls.note_pending(record(), FAR_MS, 1) is None
    assert rolls.note_pending(record(body=b"y"), FAR_MS, 2) is None
    assert rolls.note_pending(record(2), FAR_MS, 3) is None
    assert rolls.note_pending(record(1), FAR_MS, 4) == 1
    assert rolls.stop_replacing([1, 2, 3, 4]) == [2, 3, 4]
    assert rolls.has_copy(record(1)), "it was read after its copy"
    assert not rolls.has_copy(record(2))


def test_records_are_passed_over_if_their_copy_comes_when_messages_are_delivered() -> None:
    rolls = RolledRecords(1_000)
    assert rolls.note_pending(record(), FAR_MS, 1) is None
    assert not rolls.has_copy(record())
    for key in (2, 3):
        assert rolls.note_pending(record(1), FAR_MS, key) is None
    assert [rolls.has_copy(record()) for _ in range(3)] == [True, True, False]


def test_a_copy_whose_record_was_never_seen_is_forgotten_when_it_is_due() -> None:
    rolls = RolledRecords(1_000)
    rolls.note_pending(record(1), FAR_MS, 1)
    assert not rolls.has_copy(record(1))
    assert not rolls.has_copy(record())
