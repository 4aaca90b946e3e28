"""Counters for clients and operators: numbers and sizes of messages by topic and group."""

from __future__ import annotations

import collections
from typing import Final

import msgspec

SAMPLE_MS: Final = 10_000
_MINUTE_SAMPLES: Final = 7
_HOUR_EVERY: Final = 60
_HOUR_SAMPLES: Final = 7
_DAY_EVERY: Final = 360
_DAY_SAMPLES: Final = 25

SIZE_BITS_MAX: Final = 40
"""Sizes are counted by powers of two, up to this power. No put is as large."""

PUT_COUNT: Final = "TOPIC_PUT_NUMS"
PUT_SIZE: Final = "TOPIC_PUT_SIZE"
GET_COUNT: Final = "GROUP_GET_NUMS"
GET_SIZE: Final = "GROUP_GET_SIZE"
BACK_COUNT: Final = "SNDBCK_PUT_NUMS"
BROKER_PUT: Final = "BROKER_PUT_NUMS"
BROKER_GET: Final = "BROKER_GET_NUMS"


class SpanRate(msgspec.Struct):
    """Statistics of a time span: the sum, the rate per second, and the average per call."""

    avgpt: float = 0.0
    sum: int = 0
    tps: float = 0.0


class StatMeter:
    """A counter with samples of its past values."""

    __slots__ = ("_days", "_hours", "_minutes", "calls", "total")

    def __init__(self) -> None:
        self.total = 0
        self.calls = 0
        self._minutes: collections.deque[tuple[int, int, int]] = collections.deque(
            maxlen=_MINUTE_SAMPLES
        )
        self._hours: collections.deque[tuple[int, int, int]] = collections.deque(
            maxlen=_HOUR_SAMPLES
        )
        self._days: collections.deque[tuple[int, int, int]] = collections.deque(maxlen=_DAY_SAMPLES)

    def sample(self, now_ms: int, serial: int) -> None:
        """Record a sample of the counter's value."""
        now = (now_ms, self.total, self.calls)
        self._minutes.append(now)
        if serial % _HOUR_EVERY == 0:
            self._hours.append(now)
        if serial % _DAY_EVERY == 0:
            self._days.append(now)

    def _rate(self, past: collections.deque[tuple[int, int, int]]) -> SpanRate:
        if len(past) < 2:
            return SpanRate()
        (first_ms, first, first_calls), (last_ms, last, last_calls) = past[0], past[-1]
        count, calls = last - first, last_calls - first_calls
        return SpanRate(
            avgpt=count / calls if calls else 0.0,
            sum=count,
            tps=count * 1000 / max(1, last_ms - first_ms),
        )

    def minute(self) -> SpanRate:
        """Return the statistics of the last minute."""
        return self._rate(self._minutes)

    def hour(self) -> SpanRate:
        """Return the statistics of the last hour."""
        return self._rate(self._hours)

    def day(self) -> SpanRate:
        """Return the statistics of the last day."""
        return self._rate(self._days)

    def tps(self, samples: int) -> float:
        """Return the events per second over the last samples, which are ten seconds apart."""
        past = self._minutes
        if len(past) < 2:
            return 0.0
        first_ms, first, _ = past[max(0, len(past) - 1 - samples)]
        last_ms, last, _ = past[-1]
        return (last - first) * 1000 / max(1, last_ms - first_ms)


_Meters = tuple[StatMeter, StatMeter, StatMeter]
"""The meters of a topic, or of a group in a topic: number of messages, bytes, and number in the
whole broker."""


def _note_call(meters: _Meters, count: int, size: int) -> None:
    counts, sizes, broker = meters
    counts.total += count
    counts.calls += 1
    sizes.total += size
    sizes.calls += 1
    broker.total += count
    broker.calls += 1


class Stats:
    """All message counters of one broker."""

    def __init__(self) -> None:
        self._meters: dict[tuple[str, str], StatMeter] = {}
        self._puts: dict[str, tuple[StatMeter, StatMeter, StatMeter, list[int]]] = {}
        """For each topic: the meters of its puts, and the number of puts of each size, in powers of
        two. One table for both saves look-ups."""
        self._gets: dict[tuple[str, str], _Meters] = {}
        """The meters of gets by group and topic."""
        self._serial = 0
        self._sample_at_ms = 0
        self.put_failed_count = 0
        self.pulls_found = StatMeter()
        self.pulls_missed = StatMeter()

    def meter(self, name: str, key: str) -> StatMeter | None:
        """Return a counter; None if nothing was counted."""
        return self._meters.get((name, key))

    def _get_or_create_meter(self, name: str, key: str) -> StatMeter:
        meter = self._meters.get((name, key))
        if meter is None:
            meter = self._meters[name, key] = StatMeter()
        return meter

    def _add(self, name: str, key: str, count: int) -> None:
        meter = self._get_or_create_meter(name, key)
        meter.total += count
        meter.calls += 1

    def count_puts(self, topic: str, count: int, size: int) -> None:
        """Count messages that were stored together in a topic."""
        counts, sizes, broker, bits = self._puts.get(topic) or self._puts_of(topic)
        bits[(size - 1).bit_length()] += 1
        _note_call((counts, sizes, broker), count, size)

    def count_each_put(self, topic: str, sizes: list[int]) -> None:
        """Count messages of these sizes that were stored one by one."""
        counts, totals, broker, bits = self._puts.get(topic) or self._puts_of(topic)
        for size in sizes:
            bits[(size - 1).bit_length()] += 1
            totals.total += size
        count = len(sizes)
        for meter in (counts, broker):
            meter.total += count
        for meter in (counts, totals, broker):
            meter.calls += count

    def _puts_of(self, topic: str) -> tuple[StatMeter, StatMeter, StatMeter, list[int]]:
        found = self._puts[topic] = (
            self._get_or_create_meter(PUT_COUNT, topic),
            self._get_or_create_meter(PUT_SIZE, topic),
            self._get_or_create_meter(BROKER_PUT, ""),
            [0] * (SIZE_BITS_MAX + 1),
        )
        return found

    def put_sizes(self) -> list[tuple[str, list[int], int]]:
        """Return, for each topic, the histogram of put sizes and the sum of all sizes. The
        histogram has the number of puts of up to 1, 2, 4, 8, ... bytes; each put counts once."""
        return [(topic, found[3], found[1].total) for topic, found in self._puts.items()]

    def count_gets(self, group: str, topic: str, count: int, size: int) -> None:
        """Count messages that a group received."""
        _note_call(self._gets.get((group, topic)) or self._gets_of(group, topic), count, size)

    def _gets_of(self, group: str, topic: str) -> _Meters:
        key = f"{topic}@{group}"
        found = self._gets[group, topic] = (
            self._get_or_create_meter(GET_COUNT, key),
            self._get_or_create_meter(GET_SIZE, key),
            self._get_or_create_meter(BROKER_GET, ""),
        )
        return found

    def note_sent_back(self, group: str, topic: str) -> None:
        """Count a message that a consumer sent back for redelivery."""
        self._add(BACK_COUNT, f"{topic}@{group}", 1)

    def totals(self, name: str) -> dict[str, int]:
        """Return all counters of one name, by topic or by topic@group."""
        return {key: meter.total for (of, key), meter in self._meters.items() if of == name}

    def forget_topic(self, topic: str) -> None:
        """Remove the counters of a deleted topic."""
        self._puts.pop(topic, None)
        for place in [place for place in self._gets if place[1] == topic]:
            del self._gets[place]
        for item in [i for i in self._meters if i[1].partition("@")[0] == topic and topic]:
            del self._meters[item]

    def forget_group(self, group: str) -> None:
        """Remove the counters of a deleted group."""
        for place in [place for place in self._gets if place[0] == group]:
            del self._gets[place]
        for item in [i for i in self._meters if i[1].endswith(f"@{group}")]:
            del self._meters[item]

    def wake(self, now_ms: int) -> None:
        """Sample every counter if it is time."""
        if now_ms < self._sample_at_ms:
            return
        self._sample_at_ms = now_ms + SAMPLE_MS
        for meter in (*self._meters.values(), self.pulls_found, self.pulls_missed):
            meter.sample(now_ms, self._serial)
        self._serial += 1

    def wake_at_ms(self) -> int:
        """The time of the next sample."""
        return self._sample_at_ms
