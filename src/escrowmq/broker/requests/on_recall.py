"""Serves recalls of delayed messages."""

from __future__ import annotations

from typing import Final

from escrowmq.base.answer import Answer, Refusal, Reply
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Response
from escrowmq.base.message import Message, Property, is_sendable
from escrowmq.broker.identity import Identity
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.broker.sends.log_puts import DelayedPut, MessageStorer
from escrowmq.codec.headers import RecallHeader
from escrowmq.codec.recall_handle import decode_recall_handle
from escrowmq.delivery.timer import TimerQueue
from escrowmq.delivery.timer_quotas import TimerQuotas
from escrowmq.delivery.topics import TopicTable
from escrowmq.errors import UsageError

_TAG: Final = "_RECALL_TAG_"
_BODY: Final = b"0"


class RecallHandlers:
    """Serves RECALL_MESSAGE (370)."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicTable,
        identity: Identity,
        putter: MessageStorer,
        timer: TimerQueue,
        quotas: TimerQuotas,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._identity = identity
        self._putter = putter
        self._timer = timer
        self._quotas = quotas

    def recall_message(self, request: IncomingRequest[RecallHeader]) -> Reply:
        """Recall a delayed message: store an order that makes the timer drop it."""
        header = request.header
        if not self._settings.allows_recall:
            remark = "recall failed, operation is forbidden"
            return Refusal(Response.NO_PERMISSION, remark)
        if not is_sendable(header.topic):
            # In the broker's own topics, recalls are trusted.
            remark = f"recall failed, the topic[{header.topic}] is the broker's own"
            return Refusal(Response.NO_PERMISSION, remark)
        if self._topics.get(header.topic) is None:
            remark = f"recall failed, the topic[{header.topic}] not exist"
            return Refusal(Response.TOPIC_NOT_EXIST, remark)
        try:
            handle = decode_recall_handle(header.recall_handle)
        except UsageError:
            return _illegal_refusal("recall handle is invalid")
        if handle.topic != header.topic:
            return _illegal_refusal("recall failed, topic not match")
        if handle.broker_name != self._settings.name:
            return _illegal_refusal("recall failed, broker service not available")
        ahead_max_ms = self._settings.timer_delay_max_s * 1000
        if not 0 < handle.deliver_ms - request.now_ms <= ahead_max_ms:
            return _illegal_refusal("recall failed, timestamp invalid")
        if why := self._quotas.why_no_recall(header.topic, request.now_ms):
            return Refusal(Response.SYSTEM_ERROR, f"recall failed, {why}")
        # The handle has the beginning of the message's slot. The recall must be due after the
        # message, which may be anywhere in the slot.
        precision_ms = self._settings.timer_precision_ms
        last_ms = -(-handle.deliver_ms // precision_ms) * precision_ms
        recall_key = f"{handle.topic}+{handle.unique_key}"
        put = self._putter.store_message(
            Message(
                topic=handle.topic,
                body=_BODY,
                properties={
                    Property.TAGS: _TAG,
                    Property.UNIQ_KEY: handle.unique_key,
                    Property.TIMER_DEL_UNIQKEY: recall_key,
                    Property.TIMER_DELIVER_MS: str(last_ms),
                },
                born_ms=request.now_ms,
                born_host=request.peer.packed,
                store_host=self._identity.packed,
            ),
            request.now_ms,
        )
        if isinstance(put, Refusal):
            remark = "recall failed, execute error"
            return Refusal(Response.SYSTEM_ERROR, remark)
        if isinstance(put, DelayedPut) and put.timer_slot:
            # The message may be due before the timer sees the order: while the copies of a group
            # have not confirmed it, or a full disk has no space for its queue.
            self._timer.recalls.add(recall_key, put.timer_slot)
        return Answer(ext={"msgId": handle.unique_key}, log_end=put.log_end)


def _illegal_refusal(remark: str) -> Refusal:
    return Refusal(Response.ILLEGAL_OPERATION, remark)
