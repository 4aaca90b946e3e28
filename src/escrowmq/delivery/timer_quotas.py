"""Shares the timer's memory between topics: if one filled it with messages for a later day, those
of others, due earlier, would not even be read."""

from __future__ import annotations

import logging
from typing import Final

from escrowmq.base import fixed_limits
from escrowmq.base.log_throttle import RepeatedErrors
from escrowmq.base.message import Topic
from escrowmq.delivery.timer import TimerQueue
from escrowmq.store.store import Store

FEW: Final = 1_000
"""Topics with fewer waiting messages than this may use the reserve."""

_log = logging.getLogger(__name__)


class TimerQuotas:
    """Decides whether a topic may have one more message with a delivery time."""

    def __init__(self, timer: TimerQueue, store: Store) -> None:
        self._timer = timer
        self._store = store
        self._refused, self._refused_recalls = RepeatedErrors(), RepeatedErrors()

    def why_full(self, topic: str, now_ms: int) -> str:
        """Return why no further message of a topic may wait; an empty text if it may. The reason is
        logged."""
        total_max = fixed_limits.TIMER_PENDING_MAX
        total = self._waiting_count()
        if total < total_max // 2:
            return ""
        count = self._timer.counts.waiting_of(topic)
        if count >= FEW:
            total_max -= fixed_limits.TIMER_PENDING_RESERVED
        if total >= total_max:
            reason = f"{total} messages wait for their time"
        elif count >= fixed_limits.TIMER_PENDING_OF_TOPIC_MAX:
            reason = f"{count} messages of {topic} wait for their time"
        else:
            return ""
        if (end := self._refused.suppressed_note(topic, now_ms)) is not None:
            _log.warning("%s gets no more delayed messages for now: %s%s", topic, reason, end)
        return reason

    def why_no_recall(self, topic: str, now_ms: int) -> str:
        """Return why no further message of a topic may be recalled; an empty text if it may. The
        timer could not remember it, and would deliver the message."""
        total, count = len(self._timer.recalls), self._timer.counts.recalls_of(topic)
        if total >= fixed_limits.TIMER_RECALLS_MAX:
            reason = f"{total} recalls wait for the time of their message"
        elif count >= fixed_limits.TIMER_RECALLS_OF_TOPIC_MAX:
            reason = f"{count} recalls of messages of {topic} wait for their time"
        else:
            return ""
        if (end := self._refused_recalls.suppressed_note(topic, now_ms)) is not None:
            _log.warning("no messages of %s are recalled for now: %s%s", topic, reason, end)
        return reason

    def _waiting_count(self) -> int:
        """Return how many records wait, with those that are not read yet. After a start, most of
        these were delivered before."""
        timer = self._timer
        if not timer.is_rebuilt:
            return timer.pending_count
        end = self._store.bounds(Topic.TIMER, 0)[1]
        return timer.pending_count + max(0, end - timer.next_read_offset)
