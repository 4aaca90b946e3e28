"""Messages: find them by id, key or position; send them again."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import msgspec

from escrowmq.base.codes import Request, Response
from escrowmq.base.fixed_limits import UNPACKED_SIZE_MAX
from escrowmq.base.message import Property, StoredMessage, SysFlag, Topic
from escrowmq.client.admin.cluster_calls import ClusterCalls
from escrowmq.client.core.message import Message, ReceivedMessage, to_received_message
from escrowmq.client.core.pulling import PullStep, pull_fields, step_after_pull, with_subscription
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.sending import SendResult
from escrowmq.client.core.subscription import Subscription
from escrowmq.client.core.unreadable_answers import convert_parse_errors
from escrowmq.client.producer import Producer
from escrowmq.codec.ids import format_host, parse_offset_id
from escrowmq.codec.record import decode_record, decode_records
from escrowmq.errors import (
    MessageRefused,
    NotFound,
    RemoteProtocolError,
    ResponseError,
    UsageError,
    response_error,
)

FOUND_MAX: Final = 64
_log = logging.getLogger(__name__)
_GROUP: Final = "TOOLS_CONSUMER"
_FOREVER_MS: Final = (1 << 63) - 1
_NEEDS_TOPIC: Final = "; an id that a producer got needs its topic"
_RESULT_OK: Final = "CR_SUCCESS"


class _ConsumeResult(msgspec.Struct, rename="camel"):
    consume_result: str = ""
    remark: str = ""


def resend_topic(cluster: ClusterCalls, message: ReceivedMessage) -> str:
    """Return the topic to which a message is resent: its own, or for a dead letter the topic where
    it failed."""
    failed_in = message.system.get(Property.RETRY_TOPIC, "")
    is_dead = message.topic.startswith(Topic.DLQ_PREFIX)
    return cluster.without_namespace(failed_in) if is_dead and failed_in else message.topic


class Messages:
    """Stored messages: `Admin.messages`."""

    def __init__(self, cluster: ClusterCalls) -> None:
        self._cluster = cluster

    async def get(self, message_id: str, *, topic: str = "", broker: str = "") -> ReceivedMessage:
        """Return one message: by the id that its producer got (then its topic is required, and
        `broker` limits the search), or by the `offset_id` of a stored copy. Raises NotFound if
        there is none."""
        if topic:
            found = await self._query_by_key(
                topic, message_id, is_unique=True, count_max=FOUND_MAX, broker=broker
            )
            if found:
                return found[0]
            raise NotFound(f"there is no message {message_id}")
        stored = await self._find_by_offset_id(message_id)
        if stored is None:
            raise NotFound(f"there is no message {message_id}{_NEEDS_TOPIC}")
        return self._to_received(stored)

    async def prepared(self, message_id: str, *, topic: str, broker: str = "") -> ReceivedMessage:
        """Return the message of a transaction under its own topic, whatever the transaction's
        outcome: consumers may or may not have seen it. `broker` limits the search. Raises NotFound
        if no broker has it."""
        found = await self._query_by_key(
            topic, message_id, is_unique=True, count_max=FOUND_MAX, broker=broker
        )
        if found:
            return found[0]
        wire_topic = self._cluster.with_namespace(topic)
        for name, address in (await self._read_addresses(topic, broker)).items():
            fields = _query_fields(Topic.HALF, message_id, is_unique=True, count_max=FOUND_MAX)
            for half in await self._query_records(address, fields):
                place = half.properties
                if (
                    place.get(Property.UNIQ_KEY) == message_id
                    and place.get(Property.REAL_TOPIC) == wire_topic
                ):
                    return _message_for_display(half, topic=topic, broker_name=name)
        raise NotFound(f"no broker of topic {topic} has a message {message_id}, committed or not")

    async def find(
        self,
        topic: str,
        key: str,
        *,
        count_max: int = FOUND_MAX,
        begin_ms: int = 0,
        end_ms: int = _FOREVER_MS,
    ) -> list[ReceivedMessage]:
        """Return messages with a key that were stored within a time span, the newest first."""
        return await self._query_by_key(
            topic, key, is_unique=False, count_max=count_max, begin_ms=begin_ms, end_ms=end_ms
        )

    async def at(
        self, queue: MessageQueue, queue_offset: int, *, count_max: int = 1
    ) -> list[ReceivedMessage]:
        """Return messages of a queue, starting at an offset. Raises NotFound if there are none."""
        wire = MessageQueue(
            self._cluster.with_namespace(queue.topic), queue.broker_name, queue.queue_id
        )
        wanted = Subscription(topic=wire.topic)
        fields = pull_fields(
            wire, wanted, group=_GROUP, queue_offset=queue_offset, commit_offset=0,
            count_max=count_max, suspend_ms=0,
        )  # fmt: skip
        address = (await self._read_addresses(queue.topic)).get(queue.broker_name)
        if address is None:
            raise UsageError(f"{queue.topic!r} is not on the broker {queue.broker_name!r}")
        reply = await self._cluster.instance.request(
            address, Request.PULL_MESSAGE, with_subscription(fields, wanted)
        )
        match step_after_pull(reply.code):
            case PullStep.TAKE:
                with convert_parse_errors(address, Request.PULL_MESSAGE):
                    stored = decode_records(reply.body)
                return self._decompress_all(stored, queue.broker_name)
            case PullStep.ADVANCE | PullStep.MOVE:
                held = _describe_bounds(reply.ext or {})
                raise NotFound(f"{queue} has no message at {queue_offset}; {held}")
            case _:
                raise response_error(reply.code, reply.remark, address=address)

    async def send(self, message: Message) -> SendResult:
        """Send one message."""
        async with Producer(group="escrowmq-admin", instance=self._cluster.instance) as producer:
            return await producer.send(message)

    async def resend(self, message: ReceivedMessage, *, topic: str = "") -> SendResult:
        """Send a copy of a message to its own topic (for a dead letter, the topic where it failed)
        or to another, as a new message for all groups."""
        again = Message(
            topic or resend_topic(self._cluster, message),
            message.body,
            tag=message.tag,
            keys=message.keys,
            properties=message.properties,
            order_key=message.order_key,
            flag=message.flag,
        )
        return await self.send(again)

    async def deliver(self, message: ReceivedMessage, *, group: str, client_id: str) -> None:
        """Make one connected member of a group consume a message now, independently of its offsets.
        Raises MessageRefused if its handler failed; ConsumerOffline and others if that is
        impossible."""
        readers = await self._read_addresses(message.topic)
        address = readers.get(message.broker_name) or next(iter(readers.values()))
        consumed = await self._cluster.ask_decoded(
            address,
            Request.CONSUME_MESSAGE_DIRECTLY,
            _ConsumeResult,
            fields={
                "consumerGroup": self._cluster.with_namespace(group),
                "clientId": client_id,
                "msgId": message.offset_id,
                "brokerName": message.broker_name,
                "topic": self._cluster.with_namespace(message.topic),
            },
        )
        if consumed.consume_result != _RESULT_OK:
            raise MessageRefused(
                f"{client_id} did not consume it: {consumed.consume_result} {consumed.remark}"
            )

    # -- inside ------------------------------------------------------------------------------

    async def _read_addresses(self, topic: str, broker: str = "") -> dict[str, str]:
        """Return an address to read from for each broker that has the topic; only for `broker` if
        it is named."""
        names = await self._cluster.broker_names_of(topic)
        return self._cluster.read_addresses(name for name in names if broker in ("", name))

    async def _query_by_key(
        self,
        topic: str,
        key: str,
        *,
        is_unique: bool,
        count_max: int,
        begin_ms: int = 0,
        end_ms: int = _FOREVER_MS,
        broker: str = "",
    ) -> list[ReceivedMessage]:
        fields = _query_fields(
            self._cluster.with_namespace(topic), key, is_unique=is_unique, count_max=count_max,
            begin_ms=begin_ms, end_ms=end_ms,
        )  # fmt: skip
        found: list[ReceivedMessage] = []
        for name, address in (await self._read_addresses(topic, broker)).items():
            stored = await self._query_records(address, fields)
            found += self._decompress_all(stored, name)
        if is_unique:
            found = [one for one in found if one.message_id == key]
        else:
            found = [one for one in found if key in one.key_list]
        return sorted(found, key=lambda one: one.stored_ms, reverse=True)[:count_max]

    async def _query_records(self, address: str, fields: Mapping[str, str]) -> list[StoredMessage]:
        reply = await self._cluster.instance.request(address, Request.QUERY_MESSAGE, dict(fields))
        if reply.code == Response.QUERY_NOT_FOUND:
            return []
        if reply.code != Response.SUCCESS:
            raise response_error(reply.code, reply.remark, address=address)
        with convert_parse_errors(address, Request.QUERY_MESSAGE):
            return decode_records(reply.body)

    async def _find_by_offset_id(self, message_id: str) -> StoredMessage | None:
        try:
            host, log_offset = parse_offset_id(message_id)
        except UsageError as error:
            raise UsageError(f"{error}{_NEEDS_TOPIC}") from error
        known = (await self._cluster.masters()).values()
        address = format_host(host)
        if address not in known and address not in self._cluster.instance.book.all_addresses(
            masters_only=False
        ):
            return None  # whatever id a user has: only the cluster's own brokers are asked
        try:
            reply = await self._cluster.ask(
                address, Request.VIEW_MESSAGE_BY_ID, {"offset": str(log_offset)}
            )
        except ResponseError as error:
            if error.code != Response.SYSTEM_ERROR:
                raise
            return None
        with convert_parse_errors(address, Request.VIEW_MESSAGE_BY_ID):
            return decode_record(reply.body)

    def _decompress_all(
        self, found: list[StoredMessage], broker_name: str
    ) -> list[ReceivedMessage]:
        """Decompress the messages of one reply, in order, until their bodies exceed
        UNPACKED_SIZE_MAX in total. A small compressed message may have a large body."""
        messages: list[ReceivedMessage] = []
        size = 0
        for stored in found:
            if size >= UNPACKED_SIZE_MAX:
                _log.warning(
                    "%d of %d messages of %s are left out: decompressed they exceed %d bytes",
                    len(found) - len(messages), len(found), broker_name, UNPACKED_SIZE_MAX,
                )  # fmt: skip
                break
            messages.append(self._to_received(stored, broker_name))
            size += len(messages[-1].body)
        return messages

    def _to_received(self, stored: StoredMessage, broker_name: str = "") -> ReceivedMessage:
        if not broker_name:
            address = format_host(stored.store_host)
            book = self._cluster.instance.book
            for name in book.broker_names():
                if address in book.addresses(name).values():
                    broker_name = name
        return _message_for_display(
            stored, topic=self._cluster.without_namespace(stored.topic), broker_name=broker_name
        )


def _describe_bounds(ext: Mapping[str, str]) -> str:
    """Say which offsets a queue has, by the bounds in the answer to a pull."""
    first, end = ext.get("minOffset", ""), ext.get("maxOffset", "")
    if not (first.isdecimal() and end.isdecimal()):
        return "its broker does not say which offsets it has"
    if int(first) >= int(end):
        return f"it is empty, and its next message gets {end}"
    return f"it has the offsets {first} to {int(end) - 1}"


def _message_for_display(stored: StoredMessage, *, topic: str, broker_name: str) -> ReceivedMessage:
    """Make a message for display. If its body cannot be decompressed, show it compressed: it may be
    the message that the operator is looking for."""
    try:
        return to_received_message(stored, topic=topic, broker_name=broker_name)
    except RemoteProtocolError as error:
        place = f"{topic}/{stored.queue_id}"
        _log.warning(
            "%s: the body of message %d is shown as stored: %s", place, stored.queue_offset, error
        )
        as_it_is = msgspec.structs.replace(stored, sys_flag=stored.sys_flag & ~SysFlag.COMPRESSED)
        return to_received_message(as_it_is, topic=topic, broker_name=broker_name)


def _query_fields(
    wire_topic: str,
    key: str,
    *,
    is_unique: bool,
    count_max: int,
    begin_ms: int = 0,
    end_ms: int = _FOREVER_MS,
) -> dict[str, str]:
    return {
        "topic": wire_topic,
        "key": key,
        "maxNum": str(count_max),
        "beginTimestamp": str(begin_ms),
        "endTimestamp": str(end_ms),
        "_UNIQUE_KEY_QUERY": str(is_unique).lower(),
    }
