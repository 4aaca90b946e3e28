"""Conditions as bounds."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from escrowmq.client.core.routes import MessageQueue
from escrowmq.pipeline.brokers.ranges import Positions, QueueRange
from escrowmq.pipeline.source.pruning import CLOCK_SLACK_MS, ReadBounds, bounds_from_filters


@dataclass
class EqualTo:
    attribute: tuple[str, ...]
    value: Any


class In(EqualTo):
    pass


class GreaterThan(EqualTo):
    pass


class GreaterThanOrEqual(EqualTo):
    pass


class LessThan(EqualTo):
    pass


class LessThanOrEqual(EqualTo):
    pass


@dataclass
class Not:
    child: Any


Q0, Q1 = MessageQueue("t", "b", 0), MessageQueue("u", "c", 1)
RANGES = [QueueRange(Q0, 0, 100), QueueRange(Q1, 50, 80)]


def test_queues() -> None:
    assert bounds_from_filters([EqualTo(("topic",), "t")]).clip(RANGES) == RANGES[:1]
    assert bounds_from_filters([In(("queueId",), [1, 2])]).clip(RANGES) == RANGES[1:]
    assert bounds_from_filters([EqualTo(("brokerName",), "x")]).clip(RANGES) == []
    both = [In(("topic",), ["t", "u"]), EqualTo(("topic",), "u")]
    assert bounds_from_filters(both).clip(RANGES) == RANGES[1:]


def test_offsets() -> None:
    found = bounds_from_filters([GreaterThan(("queueOffset",), 9), LessThan(("queueOffset",), 60)])
    assert found.clip(RANGES) == [QueueRange(Q0, 10, 60), QueueRange(Q1, 50, 60)]
    found = bounds_from_filters(
        [GreaterThanOrEqual(("queueOffset",), 9), LessThanOrEqual(("queueOffset",), 40)]
    )
    assert found.clip(RANGES) == [QueueRange(Q0, 9, 41)]
    assert bounds_from_filters([In(("queueOffset",), [70, 3])]).clip(RANGES[:1]) == [
        QueueRange(Q0, 3, 71)
    ]


def test_times_leave_room_for_clocks_that_were_set_back() -> None:
    low, high = (dt.datetime(2026, 1, day, tzinfo=dt.UTC) for day in (1, 2))
    asked: list[int] = []

    def at(times: dict[MessageQueue, int]) -> Positions:
        asked.append(times[Q0])
        return dict.fromkeys(times, 20 * len(asked))

    found = bounds_from_filters(
        [GreaterThan(("storeTimestamp",), low), LessThanOrEqual(("storeTimestamp",), high)]
    )
    assert found.clip_times(RANGES, at) == [QueueRange(Q0, 20, 40)]
    expected = (low.timestamp() * 1000 - CLOCK_SLACK_MS, high.timestamp() * 1000 + CLOCK_SLACK_MS)
    assert asked[0] == expected[0]
    assert 0 <= asked[1] - expected[1] <= 1


def test_other_conditions_are_passed_over() -> None:
    filters = [
        Not(EqualTo(("queueId",), 1)),
        EqualTo(("tags",), "x"),
        EqualTo(("properties", "a"), "x"),
        GreaterThan(("storeTimestamp",), dt.datetime(2026, 1, 1)),  # noqa: DTZ001 - no zone
    ]
    assert bounds_from_filters(filters) == ReadBounds()
