from __future__ import annotations

import json
from typing import Any

from escrowmq.base.message import Message
from escrowmq.delivery.timer_counts import WaitingCounts


def waiting(topic: str) -> Message:
    return Message(topic="rmq_sys_wheel_timer", body=b"x", properties={"REAL_TOPIC": topic})


def shown(counts: WaitingCounts) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(counts.encode())
    return found


def test_counts_are_kept_by_topic_with_the_time_of_their_last_change() -> None:
    counts = WaitingCounts()
    for topic, step, now_ms in (("T", 1, 5), ("U", 1, 6), ("T", 1, 7), ("U", 1, 8), ("U", -1, 9)):
        counts.add(waiting(topic), step, now_ms)
    assert shown(counts) == {
        "dataVersion": {"counter": 5, "stateVersion": 0, "timestamp": 9},
        "timingCount": {"T": {"count": 2, "timeStamp": 7}, "U": {"count": 1, "timeStamp": 9}},
    }


def test_topic_of_which_nothing_waits_is_forgotten() -> None:
    counts = WaitingCounts()
    counts.add(waiting("T"), 1, 5)
    counts.add(waiting("T"), -1, 6)
    assert shown(counts)["timingCount"] == {}


def test_a_deleted_topic_has_only_what_waits() -> None:
    counts = WaitingCounts()
    message = Message(topic="t", body=b"", properties={"REAL_TOPIC": "T"})
    counts.add(message, 1, 5)
    counts.add(message, 1, 5)
    counts.add(message, -1, 6)
    counts.forget_topic("T")
    assert (counts.taken.of, counts.passed.of, counts.waiting()) == ({}, {}, {"T": 1})
    counts.add(message, -1, 7)
    assert (counts.passed.of, counts.waiting()) == ({}, {})
