"""Serves messages that a consumer sends back after it failed to process them: they are retried
later, or become dead letters."""

from __future__ import annotations

from escrowmq.base.answer import DONE, Answer, Refusal, Reply
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import FAQ, Response
from escrowmq.base.delay_levels import RETRY_FIRST_LEVEL
from escrowmq.base.fixed_limits import INT_MAX, TOPIC_SIZE_MAX_LONG
from escrowmq.base.message import Message, Property, StoredMessage, Topic
from escrowmq.base.ports import RandomSource
from escrowmq.broker.identity import Identity
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.broker.sends.log_puts import MessageStorer
from escrowmq.broker.sends.retry_limit import is_dead_letter
from escrowmq.codec.headers import SendBackHeader
from escrowmq.codec.ids import offset_id
from escrowmq.delivery.groups import GroupConfig, GroupTable
from escrowmq.delivery.stats import Stats
from escrowmq.delivery.topics import Perm, TopicTable
from escrowmq.store.store import Store


class SendBackHandlers:
    """Serves CONSUMER_SEND_MSG_BACK (36)."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: Store,
        topics: TopicTable,
        groups: GroupTable,
        stats: Stats,
        identity: Identity,
        chance: RandomSource,
        putter: MessageStorer,
    ) -> None:
        self._settings = settings
        self._store = store
        self._topics = topics
        self._groups = groups
        self._stats = stats
        self._identity = identity
        self._chance = chance
        self._putter = putter

    def send_back(self, request: IncomingRequest[SendBackHeader]) -> Reply:
        """Store a failed message again for its group, to be retried or as a dead letter."""
        header = request.header
        group = self._groups.get_or_create(header.group, request.now_ms)
        if group is None:
            return Refusal(
                Response.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {header.group} {FAQ}",
            )
        if not self._settings.permission & Perm.WRITE:
            host = self._settings.advertised_host
            return Refusal(
                Response.NO_PERMISSION, f"the broker[{host}] sending message is forbidden"
            )
        if group.retry_queue_nums <= 0:
            return DONE
        size = len(Topic.RETRY_PREFIX) + len(header.group)
        if size > TOPIC_SIZE_MAX_LONG:
            # RocketMQ accepts the message, and cannot store it when it is due.
            remark = (
                f"the group's retry topic would have a name of {size} characters, "
                f"{TOPIC_SIZE_MAX_LONG} are allowed; choose a shorter name of the group"
            )
            return Refusal(Response.SYSTEM_ERROR, remark)
        retry = self._topics.get_or_create(
            Topic.RETRY_PREFIX + header.group,
            queues_count=group.retry_queue_nums,
            is_unit=header.unit_mode,
            now_ms=request.now_ms,
        )
        if not retry.perm & Perm.WRITE:
            return Refusal(
                Response.NO_PERMISSION,
                f"the topic[{retry.topic_name}] sending message is forbidden",
            )
        source = self._store.read(header.offset)
        if source is None:
            return Refusal(Response.SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
        message = self._retry_copy(source, header, group, request.command.version, request.now_ms)
        put = self._putter.store_message(message, request.now_ms)
        if isinstance(put, Refusal):
            return Refusal(Response.SYSTEM_ERROR, put.remark)
        self._stats.note_sent_back(header.group, source.topic)
        # RocketMQ's brokers do not wait here. In a group the consumer would commit the message at
        # the next master, which may lack the copy.
        return Answer(log_end=put.log_end) if self._store.ends.is_group_master else DONE

    def _retry_copy(
        self,
        source: StoredMessage,
        header: SendBackHeader,
        group: GroupConfig,
        version: int,
        now_ms: int,
    ) -> Message:
        """Return the copy of a failed message for its group's retry or dead-letter topic."""
        properties = dict(source.properties)
        properties.setdefault(Property.RETRY_TOPIC, source.topic)
        properties.setdefault(
            Property.ORIGIN_MESSAGE_ID, offset_id(source.store_host, source.log_offset)
        )
        properties[Property.WAIT] = "false"
        properties.pop(Property.DELAY, None)
        is_spent = is_dead_letter(
            source.reconsume_times + 1,
            group,
            times_max=header.max_reconsume_times,
            sender_version=version,
        )
        if is_spent or header.delay_level < 0:
            topic = self._topics.get_or_create(Topic.DLQ_PREFIX + header.group, now_ms=now_ms)
        else:
            topic = self._topics.get_or_create(Topic.RETRY_PREFIX + header.group, now_ms=now_ms)
            level = header.delay_level or RETRY_FIRST_LEVEL + source.reconsume_times
            properties[Property.DELAY] = str(level)
        return Message(
            topic=topic.topic_name,
            body=source.body,
            queue_id=self._chance.randrange(max(1, topic.write_queue_nums)),
            flag=source.flag,
            properties=properties,
            sys_flag=source.sys_flag,
            born_ms=source.born_ms,
            born_host=source.born_host,
            store_host=self._identity.packed,
            reconsume_times=min(source.reconsume_times + 1, INT_MAX),
        )
