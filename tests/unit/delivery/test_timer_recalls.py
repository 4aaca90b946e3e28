from __future__ import annotations

import pytest

from escrowmq.base.message import StoredMessage
from escrowmq.delivery import timer_recalls
from escrowmq.delivery.timer_recalls import PendingRecalls


def is_dropped(recalls: PendingRecalls, **properties: str) -> bool:
    fields = {"REAL_TOPIC": "T", "TIMER_OUT_MS": "1000", **properties}
    message = StoredMessage(
        topic="rmq_sys_wheel_timer", body=b"", properties=fields, queue_offset=0, log_offset=0,
        stored_ms=0, record_size=99,
    )  # fmt: skip
    return recalls.apply_to(message)


def test_a_message_is_dropped_if_a_recall_names_its_key_and_slot() -> None:
    recalls = PendingRecalls()
    assert not is_dropped(recalls, UNIQ_KEY="u1")
    recalls.add("T+u1", "1000")
    assert is_dropped(recalls, UNIQ_KEY="u1")
    assert not is_dropped(recalls, UNIQ_KEY="u2")
    assert not is_dropped(recalls, UNIQ_KEY="u1", REAL_TOPIC="U")
    assert not is_dropped(recalls, UNIQ_KEY="u1", TIMER_OUT_MS="2000")


def test_a_recall_is_dropped_and_forgotten_when_it_is_due() -> None:
    recalls = PendingRecalls()
    recalls.add("T+u1", "1000")
    assert len(recalls) == 1
    assert is_dropped(recalls, UNIQ_KEY="u1", TIMER_DEL_UNIQKEY="T+u1")
    assert len(recalls) == 0
    assert not is_dropped(recalls, UNIQ_KEY="u1")


def test_a_long_key_takes_no_more_memory() -> None:
    recalls = PendingRecalls()
    recalls.add("T+" + "\ud800" * 700, "1000")
    assert [len(each) for each in recalls._recalls] == [16]
    assert is_dropped(recalls, UNIQ_KEY="\ud800" * 700)


def test_no_more_are_remembered_than_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer_recalls, "TIMER_RECALLS_MAX", 2)
    recalls = PendingRecalls()
    for number in range(3):
        recalls.add(f"T+u{number}", "1000")
    assert [is_dropped(recalls, UNIQ_KEY=f"u{number}") for number in range(3)] == [
        True,
        True,
        False,
    ]
