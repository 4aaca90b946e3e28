from __future__ import annotations

from escrowmq.group.tables import PendingTables, deletion_key

TOPICS, OFFSETS = "config/topics.json", "config/consumerOffset.json"


def test_a_table_of_the_log_comes_behind_the_log_that_it_speaks_of() -> None:
    pending = PendingTables()
    pending.add(OFFSETS, b"1", 100)
    pending.add(OFFSETS, b"2", 200)
    assert pending.first_due_offset() == 200
    assert pending.take_due(199) == []
    assert pending.take_due(200) == [b"2"]
    assert pending.first_due_offset() is None


def test_the_others_come_before_the_record_that_their_answer_waits_for() -> None:
    pending = PendingTables()
    pending.add(TOPICS, b"1", 100)
    pending.add(TOPICS, b"2", 200)
    assert pending.first_due_offset() == 100
    assert pending.take_due(100) == [b"2"]


def test_a_deletion_comes_behind_the_last_record_of_its_topic() -> None:
    pending = PendingTables()
    pending.add(deletion_key("t"), b"1", 100)
    pending.add(deletion_key("t"), b"2", 200)
    assert pending.take_due(100) == []
    assert pending.take_due(200) == [b"2"]
