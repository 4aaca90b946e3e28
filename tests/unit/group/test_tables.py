from __future__ import annotations

from escrowmq.group.tables import Pending, gone_key

TOPICS, OFFSETS = "config/topics.json", "config/consumerOffset.json"


def test_a_table_of_the_log_comes_behind_the_log_that_it_speaks_of() -> None:
    pending = Pending()
    pending.add(OFFSETS, b"1", 100)
    pending.add(OFFSETS, b"2", 200)
    assert pending.first() == 200
    assert pending.take(199) == []
    assert pending.take(200) == [b"2"]
    assert pending.first() is None


def test_the_others_come_before_the_record_that_their_answer_waits_for() -> None:
    pending = Pending()
    pending.add(TOPICS, b"1", 100)
    pending.add(TOPICS, b"2", 200)
    assert pending.first() == 100
    assert pending.take(100) == [b"2"]


def test_a_deletion_comes_behind_the_last_record_of_its_topic() -> None:
    pending = Pending()
    pending.add(gone_key("t"), b"1", 100)
    pending.add(gone_key("t"), b"2", 200)
    assert pending.take(100) == []
    assert pending.take(200) == [b"2"]
