"""Messages that a RocketMQ broker popped before it left its store to this one.

RocketMQ sends check points and acks through its timer, so that some may still be there: an ack has
to follow its check point, and a check point must not be due before acks that are overdue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.message import Message, Property
from escrowmq.delivery.revive_records import (
    ACK_TAG,
    CheckPointKey,
    encode_ack,
    revive_record,
    revive_topic,
)
from escrowmq.delivery.timer import TimerQueue

VISIBLE_MS: Final = 1_000
"""How long an ack that has left the timer may need to become visible."""

_ACKS_MAX: Final = 1_024


class PopsOfRocketMQ:
    """Says what may be in the timer, and puts acks there. `later` stores a message through it."""

    def __init__(
        self,
        settings: BrokerSettings,
        timer: TimerQueue,
        later: Callable[[Message, int], object],
        *,
        host: bytes,
    ) -> None:
        self._settings = settings
        self._timer = timer
        self._later = later
        self._host = host
        self._topic = revive_topic(settings.cluster)
        self._started_ms = self._acks_late_until_ms = 0

    def start(self, now_ms: int) -> None:
        """Note the start of this broker, after that of the timer."""
        self._started_ms = now_ms
        self.may_have_acks_late(now_ms)

    def may_have_acks_late(self, now_ms: int) -> bool:
        """Whether acks may be overdue in the timer, or have left it so recently that they are not
        visible yet."""
        if self._timer.may_be_late(self._topic, now_ms):
            self._acks_late_until_ms = now_ms + VISIBLE_MS
        return now_ms < self._acks_late_until_ms

    def may_include(self, handle: CheckPointKey, invisible_ms: int, now_ms: int) -> bool:
        """Whether an unknown check point may be in the timer. The acks that follow it there are the
        only others of the revive topic."""
        return (
            self._timer.may_hold(self._topic)
            and handle.pop_ms < self._started_ms
            and handle.pop_ms + invisible_ms > now_ms
            and 0 <= handle.revive_queue < self._settings.revive_queues_count
        )

    def store_ack(
        self, handle: CheckPointKey, queue_offsets: list[int], invisible_ms: int, now_ms: int
    ) -> None:
        """Store an ack in the timer, to follow its check point there, as RocketMQ does."""
        offsets, name = queue_offsets[:_ACKS_MAX], self._settings.name
        tag, body = encode_ack(handle, offsets, broker_name=name)
        due_ms = handle.pop_ms + invisible_ms
        message = revive_record(
            self._topic, tag, body, handle.revive_queue, deliver_ms=due_ms, host=self._host
        )
        message.born_ms = now_ms
        message.properties[Property.UNIQ_KEY] = (
            f"{handle.topic}@{handle.queue_id}@{offsets[0]}@"
            f"{handle.group}@{handle.pop_ms}@{name}@{ACK_TAG}"
        )
        self._later(message, now_ms)
