"""Where a message goes that somebody sends."""

from __future__ import annotations

from escrowmq.base.answer import Refusal
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import FAQ, Response
from escrowmq.base.message import Message, Property, Topic, is_sendable
from escrowmq.broker.asked import Asked
from escrowmq.broker.dead_letters import is_dead
from escrowmq.broker.log_puts import is_retry
from escrowmq.broker.peer import Peer
from escrowmq.codec.headers import SendHeader, SendHeaderV2
from escrowmq.delivery.groups import GroupTable
from escrowmq.delivery.queue_locks import QueueLocks
from escrowmq.delivery.topics import Perm, TopicConfig, TopicTable, name_fault

Header = SendHeader | SendHeaderV2


class Destinations:
    """Topics as their senders find them: the first message may make one."""

    def __init__(
        self, settings: BrokerSettings, topics: TopicTable, groups: GroupTable, locks: QueueLocks
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._locks = locks

    def find(self, peer: Peer, header: Header, now_ms: int) -> TopicConfig | Refusal:
        """The topic that a message goes to, or why it does not."""
        topic = self._topics.get(header.topic)
        if self._settings.accepts_sends_from_ms > now_ms:
            at_ms = self._settings.accepts_sends_from_ms
            return Refusal(Response.SYSTEM_ERROR, f"broker unable to service, until {at_ms} ms")
        if topic is None:
            fault = name_fault(header.topic)
            if fault is not None:
                return Refusal(Response.INVALID_PARAMETER, fault)
            if is_sendable(header.topic):
                topic = self._create(header, now_ms)
        # As at RocketMQ: of all other topics, routes say that nothing is to be sent here.
        elif topic.order and not self._settings.permission & Perm.WRITE:
            return Refusal(Response.NO_PERMISSION, forbidden(self._settings, "sending message"))
        if not is_sendable(header.topic):
            remark = f"Sending message to topic[{header.topic}] is forbidden."
            return Refusal(Response.NO_PERMISSION, remark)
        if topic is None:
            remark = f"topic[{header.topic}] not exist, apply first please!{FAQ}"
            return Refusal(Response.TOPIC_NOT_EXIST, remark)
        if header.queue_id >= max(topic.read_queue_nums, topic.write_queue_nums):
            remark = (
                f"request queueId[{header.queue_id}] is illegal, TopicConfig "
                f"[topicName={topic.topic_name}, readQueueNums={topic.read_queue_nums}, "
                f"writeQueueNums={topic.write_queue_nums}] Producer: {peer.address}"
            )
            return Refusal(Response.INVALID_PARAMETER, remark)
        return topic

    def _create(self, header: Header, now_ms: int) -> TopicConfig | None:
        topics = self._topics
        if is_retry(header.topic):
            return topics.ensure(
                header.topic, is_unit=header.unit_mode, is_asked_for=True, now_ms=now_ms
            )
        return topics.create_from(
            header.topic,
            template=header.default_topic,
            queues_count=header.default_topic_queue_nums,
            is_unit=header.unit_mode,
            now_ms=now_ms,
        )

    def redirect(self, asked: Asked[Header], message: Message) -> Refusal | None:
        """A consumer sends a message back as an ordinary one; too often means dead letter."""
        header, now_ms = asked.header, asked.now_ms
        group_name = header.topic[len(Topic.RETRY_PREFIX) :]
        group = self._groups.get(group_name, now_ms)
        if group is None:
            remark = f"subscription group not exist, {group_name} {FAQ}"
            return Refusal(Response.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        is_spent = is_dead(
            header.reconsume_times,
            group,
            times_max=header.max_reconsume_times,
            sender_version=asked.command.version,
        )
        if is_spent or self._locks.is_orderly(group_name, now_ms):
            message.topic = Topic.DLQ_PREFIX + group_name
            self._topics.ensure(message.topic, now_ms=now_ms)
            message.queue_id = 0
            message.properties.pop(Property.DELAY, None)
        return None


def forbidden(settings: BrokerSettings, what: str) -> str:
    """What is said where a broker is not to be written to."""
    return f"the broker[{settings.advertised_host}] {what} is forbidden"
