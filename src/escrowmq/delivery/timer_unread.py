"""Remembers records of the timer that the disk could not read, to retry them. It may be one file of
the log that cannot be opened, while all other messages are elsewhere."""

from __future__ import annotations

import heapq
import logging
from typing import Final, NamedTuple

COUNT_MAX: Final = 10_000
"""If there are this many, the whole disk seems to fail, and the error is raised."""

WAIT_MS: Final = 1_000
"""The first pause before a retry; it doubles each time."""

WAIT_MAX_MS: Final = 32_000

QUEUE_RETRY_MS: Final = 10_000
"""The pause before the timer's queue is read again after that has failed."""

UNKNOWN_KEY: Final = -1
"""Used in place of a key: the record was never read, so its delivery time is unknown."""

_NEVER_MS: Final = 1 << 62

_log = logging.getLogger(__name__)


class UnreadRecord(NamedTuple):
    """An unreadable record: its key, and when it is retried."""

    retry_ms: int
    queue_offset: int
    key: int


class UnreadRecords:
    """Schedules the retries of unreadable records, with growing pauses."""

    def __init__(self) -> None:
        self._waiting: list[UnreadRecord] = []
        self._waits_ms: dict[int, int] = {}
        self.queue_retry_ms = 0
        """Not before this time, the timer's queue is read again."""

    @property
    def count(self) -> int:
        """The number of unreadable records, including those that are being retried."""
        return len(self._waits_ms)

    @property
    def waiting(self) -> list[UnreadRecord]:
        """The records that wait for their retry."""
        return self._waiting

    def schedule_retry(self, queue_offset: int, key: int, now_ms: int, error: Exception) -> None:
        """Schedule a retry of an unreadable record. The failure is logged unless other records are
        unreadable already. Raises the error if there are too many."""
        wait_ms = self._waits_ms.get(queue_offset, 0)
        if not wait_ms and self.count >= COUNT_MAX:
            raise error
        if not self._waits_ms:
            _log.error("delayed messages that cannot be read are delivered later: %s", error)
        wait_ms = self._waits_ms[queue_offset] = min(max(2 * wait_ms, WAIT_MS), WAIT_MAX_MS)
        heapq.heappush(self._waiting, UnreadRecord(now_ms + wait_ms, queue_offset, key))

    def schedule_queue_retry(self, now_ms: int, error: Exception) -> None:
        """Schedule a retry after the timer's queue could not be read, so that new records are
        unknown."""
        self.queue_retry_ms = now_ms + QUEUE_RETRY_MS
        _log.error("new delayed messages cannot be read, and are delivered later: %s", error)

    def take_due(self, now_ms: int) -> UnreadRecord | None:
        """Return a record to retry now; None if there is none."""
        if self._waiting and self._waiting[0].retry_ms <= now_ms:
            return heapq.heappop(self._waiting)
        return None

    def forget_read(self, queue_offset: int) -> None:
        """Forget a record that was read successfully."""
        if self._waits_ms.pop(queue_offset, None) and not self._waits_ms:
            _log.info("all delayed messages can be read again")

    def wake_at_ms(self) -> int:
        """The time at which `take_due` returns the next record."""
        return self._waiting[0].retry_ms if self._waiting else _NEVER_MS
