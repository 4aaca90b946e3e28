"""Stores messages in the log on behalf of senders, and translates failures to RocketMQ's
answers."""

from __future__ import annotations

from typing import Final

import msgspec

from escrowmq.base.answer import Refusal
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Response
from escrowmq.base.message import Message, Property, Topic
from escrowmq.base.store_settings import StoreSettings
from escrowmq.broker.sends.send_rules import DELAY_PROPERTIES
from escrowmq.broker.sends.wanted_answers import wants_to_wait
from escrowmq.codec import recall_handle
from escrowmq.delivery.delayed_messages import DelayRules, delay_message
from escrowmq.delivery.stats import Stats
from escrowmq.store.store import PutResult, PutStatus, Store

_ILLEGAL: Final = (
    "the message is illegal, maybe msg body or properties length not matched. "
    "msg body length limit {size}B, msg properties length limit 32KB."
)
_UNAVAILABLE: Final = (
    "service not available now. It may be caused by one of the following reasons: "
    "the broker's disk is full [{disk}], messages are put to the slave, "
    "message store has been shut down, etc."
)


class DelayedPut(PutResult, kw_only=True):
    """The result of storing a message that will be delivered later."""

    recall_handle: str = ""
    timer_slot: str = ""
    """Its property TIMER_OUT_MS; empty unless the timer delivers it."""


class MessageStorer:
    """Stores messages of all senders in the log. Delayed messages are stored in a topic of delayed
    delivery."""

    def __init__(
        self,
        settings: BrokerSettings,
        store_settings: StoreSettings,
        store: Store,
        stats: Stats,
        delays: DelayRules,
    ) -> None:
        self._settings = settings
        self._body_size_max = store_settings.body_size_max
        self._store = store
        self._stats = stats
        self._delays = delays

    def store_sent(self, message: Message, now_ms: int) -> PutResult | Refusal:
        """Store a sender's message if its body is within the limit."""
        if len(message.body) > self._body_size_max:
            return self.put_refusal(PutResult(PutStatus.MESSAGE_ILLEGAL))
        return self.store_message(message, now_ms)

    def store_message(self, message: Message, now_ms: int) -> PutResult | Refusal:
        """Store a message, whatever the size of its body: it may be a copy of one that was accepted
        before the limit was lowered. A delayed one is stored in a timer or delay-level topic first,
        and gives a DelayedPut."""
        if not DELAY_PROPERTIES.isdisjoint(message.properties):
            return self._store_delayed(message, now_ms)
        put = self._store.put(message, now_ms)
        return put if put.log_offset >= 0 else self.put_refusal(put)

    def _store_delayed(self, message: Message, now_ms: int) -> PutResult | Refusal:
        delayed = delay_message(message, now_ms, self._delays)
        if not isinstance(delayed, Message):
            return delayed
        put = self._store.put(delayed, now_ms)
        if put.log_offset < 0:
            return self.put_refusal(put)
        return DelayedPut(
            **msgspec.structs.asdict(put),
            recall_handle=self._recall_handle(message, delayed),
            timer_slot=delayed.properties.get(Property.TIMER_OUT_MS, ""),
        )

    def _recall_handle(self, message: Message, delayed: Message) -> str:
        """Return the handle with which the sender can recall a delayed message; empty if it cannot
        be recalled."""
        if delayed.topic != Topic.TIMER or is_retry_topic(message.topic):
            return ""
        slot_ms = int(delayed.properties[Property.TIMER_OUT_MS])
        return recall_handle.encode_recall_handle(
            recall_handle.RecallHandle(
                topic=message.topic,
                broker_name=self._settings.name,
                # RocketMQ's slot ends up to a second before the delivery time. Its handle has
                # 1 ms more.
                deliver_ms=slot_ms + 1,
                unique_key=message.properties[Property.UNIQ_KEY],
            )
        )

    def put_refusal(self, put: PutResult) -> Refusal:
        """Return RocketMQ's code and remark for a message that the store did not accept
        (SendMessageProcessor)."""
        self._stats.put_failed_count += 1
        match put.status:
            case PutStatus.MESSAGE_ILLEGAL | PutStatus.PROPERTIES_SIZE_EXCEEDED:
                size = self._body_size_max
                return Refusal(Response.MESSAGE_ILLEGAL, _ILLEGAL.format(size=size))
            case PutStatus.SERVICE_NOT_AVAILABLE:
                remark = _UNAVAILABLE.format(disk=put.reason)
                return Refusal(Response.SERVICE_NOT_AVAILABLE, remark)
            case PutStatus.CREATE_FILE_FAILED:
                remark = "create mapped file failed, server is busy or broken."
                return Refusal(Response.SYSTEM_ERROR, remark)
            case _:
                return Refusal(Response.SYSTEM_ERROR, put.reason or "UNKNOWN_ERROR")


def log_end_to_await(put: PutResult, message: Message) -> int:
    """Return the log offset that the answer to a send must wait for; 0 if the sender does not want
    to wait."""
    return put.log_end if wants_to_wait(message.properties) else 0


def is_retry_topic(topic: str) -> bool:
    """Whether a topic is a group's retry topic."""
    return topic.startswith(Topic.RETRY_PREFIX)
