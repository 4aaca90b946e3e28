"""Stores old check points again at the end of their revive queue, so that a start reads few
records, also that of a new master of a group.

A start reads a revive queue from its oldest open check point on. One message that a consumer holds
for a long time would make it read all pops and acks since then. So an old check point gets another
record, with the same identity, as soon as the records after it are many for those that are open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from escrowmq.delivery.pop_check_points import CheckPoint, CheckPoints

CARRY_MIN: Final = 20_000
"""The least number of records of a revive queue at which its oldest check points are stored
again."""

_RECORDS_PER_POINT: Final = 16
"""There must also be so many records for each open check point. Each round ends when half of them
are left, so at most one record in eight is such a repetition."""

_PLANNED_MAX: Final = 65_536
"""The most check points of one round; others follow in the next one."""

CARRIED_AT_ONCE: Final = 256
"""The most check points that are stored again in one turn, some 6 ms."""


class CheckPointCarrier:
    """Stores the old check points of one broker again. `store_again` stores one and returns its new
    offset in the revive queue; None if the store accepts nothing now."""

    def __init__(
        self, popped: CheckPoints, store_again: Callable[[CheckPoint, int], int | None]
    ) -> None:
        self._popped = popped
        self._store_again = store_again
        self._waiting: deque[CheckPoint] = deque()

    @property
    def is_under_way(self) -> bool:
        """Whether check points of this round wait."""
        return bool(self._waiting)

    def begin_round(self, ends: Mapping[int, int]) -> None:
        """Begin a round for revive queues with many records; `ends` are the ends of the queues."""
        counts, limits = self._popped.open_counts(), {}
        for revive_queue, oldest in self._popped.oldest_records().items():
            end = ends.get(revive_queue, 0)
            count_max = max(CARRY_MIN, _RECORDS_PER_POINT * counts[revive_queue])
            if end - oldest >= count_max:
                limits[revive_queue] = end - count_max // 2
        self._waiting.clear()
        if limits:
            self._waiting.extend(self._popped.points_before(limits, _PLANNED_MAX))

    def carry(self, now_ms: int) -> int:
        """Store some of this round's check points again. Return how many."""
        count = 0
        while self._waiting and count < CARRIED_AT_ONCE:
            point = self._waiting.popleft()
            # Meanwhile it may have been acknowledged, renewed or postponed.
            if point.is_finished or not self._popped.may_move_record(point):
                continue
            revive_offset = self._store_again(point, now_ms)
            if revive_offset is None:
                self._waiting.clear()
                break
            self._popped.move_record(point, revive_offset)
            count += 1
        return count
