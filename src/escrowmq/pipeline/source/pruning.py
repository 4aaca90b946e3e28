"""Restricts the reading to what a query's conditions can match. Spark still evaluates all
conditions; here they only skip messages that cannot match."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from escrowmq.client.core.routes import MessageQueue
from escrowmq.pipeline.brokers.ranges import Positions, QueueRange

CLOCK_SLACK_MS: Final = 600_000
"""Slack in milliseconds that is read before and after a range of times. Times in a queue go back if
its broker's clock is set back, and a search by time may then miss messages."""

_TIMES: Final = "storeTimestamp"
_OFFSETS: Final = "queueOffset"
FAR: Final = 1 << 62


class ReadBounds(msgspec.Struct):
    """Bounds of the messages that can match the conditions."""

    texts: dict[str, frozenset[str]] = {}
    """Allowed values of `topic` and `brokerName`, by column."""
    queue_ids: frozenset[int] | None = None
    offset_low: int = 0
    offset_high: int = FAR
    """The first offset that is too high."""
    time_low_ms: int = -1
    time_high_ms: int = FAR

    def allows_queue(self, queue: MessageQueue) -> bool:
        """Whether a queue can have matching messages."""
        topics, brokers = self.texts.get("topic"), self.texts.get("brokerName")
        return (
            (topics is None or queue.topic in topics)
            and (brokers is None or queue.broker_name in brokers)
            and (self.queue_ids is None or queue.queue_id in self.queue_ids)
        )

    def clip(self, ranges: Iterable[QueueRange]) -> list[QueueRange]:
        """Return the parts of ranges that can have matching messages, by queue and offset."""
        found = [
            QueueRange(
                each.queue,
                max(each.low, self.offset_low),
                min(each.high, self.offset_high),
            )
            for each in ranges
            if self.allows_queue(each.queue)
        ]
        return [each for each in found if each.count > 0]

    def clip_times(
        self,
        ranges: list[QueueRange],
        at: Callable[[dict[MessageQueue, int]], Positions],
    ) -> list[QueueRange]:
        """Return the parts of ranges that can have matching messages, by store time. `at` finds the
        first message stored at a time or later."""
        queues = [each.queue for each in ranges]
        lows: Positions = {}
        highs: Positions = {}
        if self.time_low_ms >= 0:
            lows = at(dict.fromkeys(queues, max(0, self.time_low_ms - CLOCK_SLACK_MS)))
        if self.time_high_ms < FAR:
            highs = at(dict.fromkeys(queues, self.time_high_ms + CLOCK_SLACK_MS))
        found = [
            QueueRange(
                each.queue,
                max(each.low, lows.get(each.queue, 0)),
                min(each.high, highs.get(each.queue, FAR)),
            )
            for each in ranges
        ]
        return [each for each in found if each.count > 0]


def bounds_from_filters(filters: Iterable[Any]) -> ReadBounds:
    """Return the bounds that follow from Spark's filters, all of which must hold; filters that have
    no meaning here are ignored."""
    bounds = ReadBounds()
    for each in filters:
        if len(each.attribute) == 1 if hasattr(each, "attribute") else False:
            _apply(bounds, type(each).__name__, each.attribute[0], getattr(each, "value", None))
    return bounds


def _apply(bounds: ReadBounds, kind: str, column: str, value: object) -> None:
    values = value if kind == "In" else [value] if kind == "EqualTo" else None
    if isinstance(values, list | tuple):
        _apply_values(bounds, column, list(values))
        return
    if column == _OFFSETS and isinstance(value, int):
        _apply_offset(bounds, kind, value)
    elif column == _TIMES and isinstance(value, dt.datetime) and value.tzinfo is not None:
        _apply_time(bounds, kind, int(value.timestamp() * 1000))


def _apply_values(bounds: ReadBounds, column: str, values: list[object]) -> None:
    if column in ("topic", "brokerName"):
        allowed = frozenset(each for each in values if isinstance(each, str))
        bounds.texts = {**bounds.texts, column: bounds.texts.get(column, allowed) & allowed}
        return
    numbers = frozenset(each for each in values if isinstance(each, int))
    if column == "queueId":
        bounds.queue_ids = numbers if bounds.queue_ids is None else bounds.queue_ids & numbers
    elif column == _OFFSETS and numbers:
        _apply_offset(bounds, "GreaterThanOrEqual", min(numbers))
        _apply_offset(bounds, "LessThanOrEqual", max(numbers))


def _apply_offset(bounds: ReadBounds, kind: str, value: int) -> None:
    if kind == "GreaterThan":
        bounds.offset_low = max(bounds.offset_low, value + 1)
    elif kind == "GreaterThanOrEqual":
        bounds.offset_low = max(bounds.offset_low, value)
    elif kind == "LessThan":
        bounds.offset_high = min(bounds.offset_high, value)
    elif kind == "LessThanOrEqual":
        bounds.offset_high = min(bounds.offset_high, value + 1)


def _apply_time(bounds: ReadBounds, kind: str, value_ms: int) -> None:
    if kind in ("GreaterThan", "GreaterThanOrEqual"):
        bounds.time_low_ms = max(bounds.time_low_ms, value_ms)
    elif kind in ("LessThan", "LessThanOrEqual"):
        bounds.time_high_ms = min(bounds.time_high_ms, value_ms + 1)
