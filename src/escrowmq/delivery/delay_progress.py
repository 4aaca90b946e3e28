"""Delivers each delayed record exactly once, even across crashes.

Progress is saved periodically, with the end of the log at that moment. After a crash, the log after
that position is read, and records that it shows as delivered are not delivered again. Only progress
whose deliveries are durable is saved, so no delivery is lost.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from escrowmq.base.message import Message, Property, StoredMessage
from escrowmq.codec.hashes import body_crc
from escrowmq.codec.record import decode_record
from escrowmq.errors import CorruptRecord
from escrowmq.store.store import PutResult, PutStatus, Store
from escrowmq.store.walk import walk_log

RETRY_MS: Final = 100
"""The pause after a failed put, as in RocketMQ."""

BATCH_MAX: Final = 256
"""The most deliveries in one turn; others follow in later turns."""

NEVER_MS: Final = 1 << 62

SCAN_SIZE_MAX: Final = 64 * 1024 * 1024
"""The most bytes of log that are read if no progress was ever saved. A longer log was written by
another broker, which would have saved its progress."""

PutMessage = Callable[[Message, int], PutResult]

_log = logging.getLogger(__name__)
_LASTING: Final = frozenset({PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED})


def fingerprint(message: Message) -> int:
    """Return a number that is the same for a delayed record, its copies and its delivery."""
    get = message.properties.get
    return hash(
        (
            get(Property.REAL_TOPIC),
            get(Property.REAL_QID),
            get(Property.UNIQ_KEY),
            get(Property.DELAY),
            get(Property.TIMER_OUT_MS),
            message.born_ms,
            message.born_host,
            message.reconsume_times,
            body_crc(message.body),
        )
    )


class PastDeliveries:
    """The deliveries that the log shows after the saved progress. Records that seem due are
    compared with them."""

    def __init__(self, store: Store, mark: str) -> None:
        self._store = store
        self._mark = mark
        self._counts: Counter[int] = Counter()
        self._scan_from = 0

    def read_log(self, log_offset: int, oldest_pending: int | None) -> None:
        """Read deliveries from a log offset on. Pending records cannot have been delivered before
        they were stored, so reading starts at the oldest of them; without one, nothing is read."""
        if oldest_pending is None:
            return
        self._scan_from = log_offset = max(log_offset, oldest_pending)
        for message in walk_log(self._store, log_offset):
            properties = message.properties
            if self._mark in properties and properties.get(Property.REAL_TOPIC) == message.topic:
                self._counts[fingerprint(message)] += 1

    def read_without_progress(self, oldest_pending: int | None) -> None:
        """Read deliveries from the beginning of the log, if no progress was saved and the log is
        short."""
        if not self.read_if_short(oldest_pending) and oldest_pending is not None:
            _log.warning(
                "no file says which delayed messages were delivered, and the log is too long to be "
                "searched for it: those in it may be delivered a second time"
            )

    def read_if_short(self, oldest_pending: int | None) -> bool:
        """Read deliveries from the beginning of the log; return False, with nothing read, if
        it is longer than SCAN_SIZE_MAX."""
        if self._store.end_offset - self._store.min_log_offset > SCAN_SIZE_MAX:
            return False
        self.read_log(self._store.min_log_offset, oldest_pending)
        return True

    @property
    def has_any(self) -> bool:
        """Whether there are any that no record has matched yet."""
        return bool(self._counts)

    @property
    def scan_from(self) -> int:
        """The log offset from which a later start must read deliveries."""
        return self._scan_from if self._counts else self._store.end_offset

    def match_delivery(self, source: StoredMessage) -> bool:
        """Return whether a delayed record was delivered. A delivery is used up by the first record
        that matches it."""
        if not self._counts:
            return False
        found = fingerprint(source)
        if self._counts[found] <= 1:
            return self._counts.pop(found, 0) == 1
        self._counts[found] -= 1
        assert self._counts[found] >= 0, found
        return True

    def clear(self) -> None:
        """Forget the deliveries, because all due records have been compared with them."""
        self._counts.clear()


class DelayedDeliverer:
    """Reads delayed records and delivers their messages.

    `put` must not delay messages: the delivered record keeps the properties of its delay.
    """

    def __init__(self, store: Store, put: PutMessage | None = None) -> None:
        self._store = store
        self._put = put or store.put
        self.delivered_count = 0
        self.dropped_count = 0
        """The number of records that were unreadable or can never be delivered. Each is logged."""

    def read_record(self, log_offset: int, size: int) -> StoredMessage | None:
        """Return a delayed record; None, after counting it, if it is invalid. A disk error is
        raised, because a retry may succeed."""
        try:
            return decode_record(self._store.read_record(log_offset, size))
        except CorruptRecord as error:
            self.skip_record(log_offset, str(error))
            return None

    def skip_record(self, log_offset: int, reason: str) -> None:
        """Count and log a record that is skipped, so that others can be delivered."""
        self.dropped_count += 1
        _log.error("delayed message at log offset %d is skipped: %s", log_offset, reason)

    def deliver(self, source: StoredMessage, message: Message | None, now_ms: int) -> bool:
        """Store a due message. Return False if that must be retried later."""
        if message is None:
            self.skip_record(source.log_offset, "it names no topic and queue to be delivered to")
            return True
        put = self._put(message, now_ms)
        if put.status is PutStatus.OK:
            self.delivered_count += 1
            return True
        if put.status in _LASTING:
            self.skip_record(source.log_offset, put.reason or put.status.value)
            return True
        return False
