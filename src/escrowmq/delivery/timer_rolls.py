"""Knows which of the timer's records have a copy that is delivered in their place.

RocketMQ's wheel has room for two days (timerRollWindowSlot). When a record that is due later has
been in it for that long, or half of it, RocketMQ stores a copy in the topic, with TIMER_ROLL_TIMES
one higher, and forgets the record. So the copy alone tells: a record may have come into the wheel
long after it was stored, and needed no copy then, or the window may be another one.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from escrowmq.base.fixed_limits import INT_MAX
from escrowmq.base.message import Property, StoredMessage
from escrowmq.codec.properties import parse_number
from escrowmq.delivery.delay_progress import fingerprint

_WINDOW_SLOTS: Final = 172_800
_SLOTS_SLACK: Final = 2
"""RocketMQ compares the time of its last slot, which may be before the store time."""


class RolledRecords:
    """The pending records that have copies, and the copies."""

    def __init__(self, precision_ms: int) -> None:
        self._span_min_ms = (_WINDOW_SLOTS - _SLOTS_SLACK) * precision_ms
        self._far: dict[int, int] | None = None
        """While a store of RocketMQ's is read: the keys of records that are due so much later that
        there may be copies."""
        self._copies: Counter[int] = Counter()
        """The copies, by the identity of the record that each replaces."""
        self._replaced: set[int] = set()
        """The keys of records for which copies were found before anything was delivered."""

    def begin_replacing(self) -> None:
        """Note that a store of RocketMQ's is read, and nothing is delivered meanwhile."""
        self._far = {}

    def note_pending(self, source: StoredMessage, slot_ms: int, key: int) -> int | None:
        """Note a record that waits. If it is a copy, and the record that it replaces is known,
        return that one's key: it waits no longer."""
        times = _times_rolled(source)
        far = self._far
        replaced = None
        if times:
            former = _identity(source, times - 1)
            replaced = far.pop(former, None) if far is not None else None
            if replaced is None:
                self._copies[former] += 1
            else:
                self._replaced.add(replaced)
        if far is not None and slot_ms - source.stored_ms >= self._span_min_ms:
            far[_identity(source, times)] = key
        return replaced

    def stop_replacing(self, heap: list[int]) -> list[int]:
        """Note that delivery begins. Return the heap of keys without those of replaced records.
        From now on, a record with a copy is passed over when it is due."""
        self._far, replaced = None, self._replaced
        self._replaced = set()
        return sorted(key for key in heap if key not in replaced) if replaced else heap

    def has_copy(self, source: StoredMessage) -> bool:
        """Whether a due record has a copy, which is delivered instead. Each is asked about once, a
        record before its copy."""
        if not self._copies:
            return False
        times = _times_rolled(source)
        if times:
            self._drop(_identity(source, times - 1))
        return self._drop(_identity(source, times))

    def _drop(self, identity: int) -> bool:
        left = self._copies.pop(identity, 0) - 1
        if left > 0:
            self._copies[identity] = left
        return left >= 0


def _times_rolled(source: StoredMessage) -> int:
    return parse_number(source.properties.get(Property.TIMER_ROLL_TIMES), most=INT_MAX) or 0


def _identity(source: StoredMessage, times: int) -> int:
    return hash((fingerprint(source), times))
