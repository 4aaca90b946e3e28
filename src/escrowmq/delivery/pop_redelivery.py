"""Redelivers popped messages to their group, as copies in the group's retry topic.

If the disk cannot read a message, only its check point is postponed: it may be one file that cannot
be opened, while the messages of other groups are elsewhere. So is one whose retry topic cannot be
created, because there are too many.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.log_throttle import RepeatedErrors
from escrowmq.base.measure import KeyedCounts
from escrowmq.base.message import StoredMessage
from escrowmq.codec.pop_receipt import RETRY_V1, RETRY_V2, original_topic, retry_kind, retry_topic
from escrowmq.delivery.groups import GroupTable
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.delivery.pop_check_points import CheckPoint, CheckPoints
from escrowmq.delivery.retry_topics import RetryTopics
from escrowmq.delivery.revive_records import CheckPointKey, redelivery_copy
from escrowmq.delivery.topics import TopicTable
from escrowmq.errors import StorageError
from escrowmq.store.store import PutStatus, Store

_LASTING: Final = frozenset({PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED})

_log = logging.getLogger(__name__)


class TooManyTopics(Exception):
    """Raised if a message needs a retry topic, and there are too many topics."""


class Redelivery:
    """Stores messages in retry topics. `read` returns a record, or None if it is invalid.
    `came_again` is called for each message that was redelivered or skipped."""

    def __init__(  # noqa: PLR0913 - what it works on
        self,
        store: Store,
        settings: BrokerSettings,
        *,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        host: bytes,
        read: Callable[[int, int], StoredMessage | None],
        popped: CheckPoints,
        came_again: Callable[[CheckPoint, int], None],
    ) -> None:
        self._store = store
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._undelivered, self._lost = RepeatedErrors(), RepeatedErrors()
        self._retries = RetryTopics(topics, groups, offsets)
        self._host = host
        self._read = read
        self._popped = popped
        self._on_redelivered = came_again
        self._failing: set[tuple[str, str, int]] = set()
        """Groups and queues whose messages could not be read the last time."""

        self.dropped_count = 0
        self.counts = KeyedCounts()
        """The number of messages by group, topic and outcome."""

    def redeliver(self, point: CheckPoint, now_ms: int) -> bool:
        """Redeliver the messages of a due check point; postpone it if some cannot be read, or there
        are too many topics. Return False if the store accepts no messages now."""
        handle = point.identity()
        failure: Exception | None = None
        for queue_offset in point.open_offsets():
            try:
                is_done = self._try_to_redeliver(handle, queue_offset, now_ms)
            except (OSError, StorageError, TooManyTopics) as error:
                failure = error
                continue
            if not is_done:
                return False
            self._on_redelivered(point, queue_offset)
        self._postpone(point, failure, now_ms)
        return True

    def _postpone(self, point: CheckPoint, failure: Exception | None, now_ms: int) -> None:
        """Postpone a check point after a failure. Log the first failure of a group and queue, and
        the end of it."""
        line = (group, topic, queue_id) = point.identity()[:3]
        if failure is None:
            if line in self._failing:
                self._failing.discard(line)
                _log.info(
                    "messages of %s/%d are redelivered to group %s now", topic, queue_id, group
                )
        elif self._popped.postpone(point, now_ms) and line not in self._failing:
            self._failing.add(line)
            _log.error(
                "messages of %s/%d are redelivered to group %s later: %s",
                topic, queue_id, group, failure,
            )  # fmt: skip

    def _try_to_redeliver(self, handle: CheckPointKey, queue_offset: int, now_ms: int) -> bool:
        """Store a message in the retry topic; skip one that can never be delivered. Return False if
        it must be retried later."""
        try:
            return self._redeliver_message(handle, queue_offset, now_ms)
        except (OSError, StorageError, TooManyTopics):
            raise  # of the disk or the table of topics, not of the message
        except Exception as error:  # noqa: BLE001 - one message; set aside, the others' turn comes
            self.dropped_count += 1
            _log.exception(
                "message %d of %s/%d is not redelivered to %s: %s",
                queue_offset, handle.topic, handle.queue_id, handle.group, error,
            )  # fmt: skip
            return True

    def _redeliver_message(self, handle: CheckPointKey, queue_offset: int, now_ms: int) -> bool:
        group, topic = handle.group, handle.topic
        if (
            self._topics.get(original_topic(topic, group)) is None
            or self._groups.find(group) is None
        ):
            return True  # as in RocketMQ: a message that no longer exists gets nothing
        is_v2 = self._retries.uses_newer_name(topic, group, is_v2=self._settings.has_retry_topic_v2)
        if not retry_kind(topic):
            self._check_quota(topic, group, is_v2=is_v2)
        entries = self._store.read_units(topic, handle.queue_id, queue_offset, 1)
        source = self._read(*entries[0][:2]) if entries else None
        if source is None:
            queue = f"{topic}/{handle.queue_id}"
            if (end := self._lost.suppressed_note(queue, now_ms)) is not None:
                _log.warning("%s no longer has message %d%s", queue, queue_offset, end)
            return True
        message = redelivery_copy(source, handle, host=self._host, is_v2=is_v2)
        if self._topics.get(message.topic) is None:
            account = self._groups.made.account_of(group)
            self._topics.create_retry_topic(message.topic, account, now_ms)
            if self._offsets.get(group, message.topic, 0) < 0:
                self._offsets.commit(group, message.topic, 0, 0, now_ms)  # marks it as this group's
        put = self._store.put(message, now_ms)
        self.counts.add(group, topic, put.status.name)
        if put.status is PutStatus.OK:
            return True
        if (end := self._undelivered.suppressed_note(topic, now_ms)) is not None:
            reason = put.reason or put.status.value
            _log.warning("%s: not redelivered: %s%s", topic, reason, end)
        return put.status in _LASTING

    def _check_quota(self, topic: str, group: str, *, is_v2: bool) -> None:
        """Raise TooManyTopics if a message needs a retry topic that the group may not get."""
        if self._topics.get(retry_topic(topic, group, RETRY_V2 if is_v2 else RETRY_V1)) is None:
            fault = self._topics.retry_topic_fault(self._groups.made.account_of(group))
            if fault:
                raise TooManyTopics(fault)
