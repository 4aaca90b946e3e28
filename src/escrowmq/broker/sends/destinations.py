"""Finds the topic that a message goes to."""

from __future__ import annotations

from escrowmq.base.answer import Refusal
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import FAQ, Response
from escrowmq.base.message import Message, Property, Topic, is_sendable
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.broker.peer import Peer
from escrowmq.broker.rules import first_refusal
from escrowmq.broker.sends.log_puts import is_retry_topic
from escrowmq.broker.sends.retry_limit import is_dead_letter
from escrowmq.broker.sends.send_rules import EARLY, REFUSING_QUEUE_RULES, ArrivalFacts, QueueFacts
from escrowmq.codec.headers import SendHeader, SendHeaderV2
from escrowmq.delivery.groups import GroupTable
from escrowmq.delivery.queue_locks import QueueLocks
from escrowmq.delivery.topics import TopicConfig, TopicTable, name_fault

Header = SendHeader | SendHeaderV2


class Destinations:
    """Finds the topics of sends, and creates those that a first message may create."""

    def __init__(
        self, settings: BrokerSettings, topics: TopicTable, groups: GroupTable, locks: QueueLocks
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._locks = locks

    def find_topic(self, peer: Peer, header: Header, now_ms: int) -> TopicConfig | Refusal:
        """Return the topic that a message goes to, created if needed, or why the message is
        refused."""
        topic = self._topics.get(header.topic)
        if self._settings.accepts_sends_from_ms:
            refusal = EARLY.refusal(ArrivalFacts(self._settings, 0, now_ms))
            if refusal is not None:
                return refusal
        if topic is None:
            fault = name_fault(header.topic)
            if fault is not None:
                return Refusal(Response.INVALID_PARAMETER, fault)
            if is_sendable(header.topic):
                topic = self._create_topic(header, now_ms)
        to = QueueFacts(self._settings, header.topic, header.queue_id, topic, peer.address)
        refusal = first_refusal(REFUSING_QUEUE_RULES, to)
        if refusal is not None:
            return refusal
        assert topic is not None
        return topic

    def _create_topic(self, header: Header, now_ms: int) -> TopicConfig | None:
        topics = self._topics
        if is_retry_topic(header.topic):
            return topics.get_or_create(
                header.topic, is_unit=header.unit_mode, is_asked_for=True, now_ms=now_ms
            )
        return topics.create_from_template(
            header.topic,
            template=header.default_topic,
            queues_count=header.default_topic_queue_nums,
            is_unit=header.unit_mode,
            now_ms=now_ms,
        )

    def prepare_retry(self, request: IncomingRequest[Header], message: Message) -> Refusal | None:
        """Prepare a message that a consumer sends to its retry topic; after too many redeliveries,
        make it a dead letter. Return why it is refused, if it is."""
        header, now_ms = request.header, request.now_ms
        group_name = header.topic[len(Topic.RETRY_PREFIX) :]
        group = self._groups.get_or_create(group_name, now_ms)
        if group is None:
            remark = f"subscription group not exist, {group_name} {FAQ}"
            return Refusal(Response.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        is_spent = is_dead_letter(
            header.reconsume_times,
            group,
            times_max=header.max_reconsume_times,
            sender_version=request.command.version,
        )
        if is_spent or self._locks.holds_lock(group_name, now_ms):
            message.topic = Topic.DLQ_PREFIX + group_name
            self._topics.get_or_create(message.topic, now_ms=now_ms)
            message.queue_id = 0
            message.properties.pop(Property.DELAY, None)
        return None
