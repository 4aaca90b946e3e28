"""What a half may be here, who is asked about it, and where its message goes when it is committed:
what transactions leave to the broker around them."""

from __future__ import annotations

import logging

import msgspec

from escrowmq.base.answer import Refusal
from escrowmq.base.broker_settings import BrokerSettings, StoreSettings
from escrowmq.base.codes import Response
from escrowmq.base.message import Message, Property, SysFlag
from escrowmq.base.own_properties import ORDER_KEY
from escrowmq.broker.forbidden_to_senders import group_fault
from escrowmq.codec.hashes import java_hash
from escrowmq.delivery.clients import Clients
from escrowmq.delivery.delayed_messages import DelayRules, delay
from escrowmq.delivery.topics import TopicTable
from escrowmq.txn.check_schedule import LiveProducer
from escrowmq.txn.epoch import attempt_of
from escrowmq.txn.half_lifecycle import Halves
from escrowmq.txn.half_records import is_delayed

_log = logging.getLogger(__name__)


class HalfRules:
    """The rules of one broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        store_settings: StoreSettings,
        topics: TopicTable,
        clients: Clients,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._clients = clients
        self._rules = DelayRules(store_settings, settings)

    def refusal(self, message: Message, halves: Halves, now_ms: int) -> Refusal | None:
        """Why a message cannot be a half beside those that are pending; None when it can."""
        properties = message.properties
        if not properties.get(Property.PGROUP):
            # RocketMQ stores it, and fails later with a NullPointerException at its end.
            remark = "a transactional message needs the property PGROUP, its producer group"
            return Refusal(Response.MESSAGE_ILLEGAL, remark)
        fault = group_fault(properties[Property.PGROUP])
        if fault:
            return Refusal(Response.MESSAGE_ILLEGAL, fault)
        if is_delayed(properties):
            # What could not be delivered at the commit is refused now. Clients mark a half as
            # prepared, and what is prepared is never delayed.
            plain = msgspec.structs.replace(
                message, sys_flag=message.sys_flag & ~SysFlag.TRANSACTION_MASK
            )
            delayed = delay(plain, now_ms, self._rules)
            if not isinstance(delayed, Message):
                return delayed
        reason = halves.refusal(message)
        if not reason:
            return None
        if len(halves.pending) >= self._settings.pending_max:
            return Refusal(Response.SYSTEM_BUSY, reason)
        is_of_epoch = attempt_of(properties) is not None
        # Of an epoch only one thing can stand in the way: that it is decided.
        code = Response.TRANSACTION_STATE_UNKNOW if is_of_epoch else Response.MESSAGE_ILLEGAL
        return Refusal(code, reason)

    def as_delivered(self, final: Message, now_ms: int) -> Message:
        """What is stored for a committed message."""
        key = final.properties.get(ORDER_KEY)
        topic = self._topics.get(final.topic) if key else None
        if key and topic is not None:
            final.queue_id = abs(java_hash(key)) % max(1, topic.write_queue_nums)
        final.queue_id = self._topics.queue_read(final.topic, final.queue_id)
        if is_delayed(final.properties):
            delayed = delay(final, now_ms, self._rules, is_accepted=True)
            if isinstance(delayed, Message):
                return delayed
            _log.error("a delayed message is delivered at its commit: %s", delayed.remark)
        return final

    def members(self, group: str) -> list[LiveProducer]:
        """The live producers of a group."""
        channels = self._clients.producers.get(group, {})
        return [
            LiveProducer(channel.peer, channel.client_id, channel.published)
            for channel in channels.values()
        ]
