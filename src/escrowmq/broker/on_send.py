"""Sends: single, batch, one-way, to retry topics."""

from __future__ import annotations

from typing import Final

from escrowmq.base.codes import FAQ, Request, Response, Version
from escrowmq.base.command import Command
from escrowmq.base.extensions import OWNER
from escrowmq.base.limits import TOPIC_SIZE_MAX
from escrowmq.base.message import Message, Property, SysFlag, Topic, is_sendable
from escrowmq.broker.entry import MARKED, admit, take_off
from escrowmq.broker.on_end import EndHandlers
from escrowmq.broker.putting import Diverted, Putter, Refusal, is_retry
from escrowmq.broker.state import Broker, Handler, Peer
from escrowmq.codec.batch import decode_batch
from escrowmq.codec.command import encode_reply
from escrowmq.codec.hashes import account_mark
from escrowmq.codec.headers import SendHeader, SendHeaderV2, read_header
from escrowmq.codec.ids import offset_id
from escrowmq.codec.properties import decode_properties, encode_properties, parse_properties
from escrowmq.codec.sent import SentReplies
from escrowmq.delivery.topics import Perm, TopicConfig, name_fault
from escrowmq.store.store import Put
from escrowmq.txn.half import is_half

Header = SendHeader | SendHeaderV2
_MULTI_TAG: Final = "MULTI_TAG"
_EXPECTED: Final = frozenset({Property.UNIQ_KEY})
_OURS: Final = _EXPECTED | MARKED | {Property.MSG_REGION, Property.TRACE_ON, Property.CLUSTER}
"""Properties that are looked at, of which a message of a batch brings one."""


class SendHandlers:
    """SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320)."""

    def __init__(self, broker: Broker, putter: Putter, ends: EndHandlers) -> None:
        self._broker = broker
        self._putter = putter
        self._ends = ends
        self._is_traced: bool | None = None
        self._note_settings()

    def _note_settings(self) -> None:
        """Take over what every message gets from the settings; operators may change them."""
        settings = self._broker.settings
        if settings.is_traced is not self._is_traced:
            self._is_traced = settings.is_traced
            self._ext = {
                Property.MSG_REGION: settings.region,
                Property.TRACE_ON: "true" if settings.is_traced else "false",
            }
            self._added = {**self._ext, Property.CLUSTER: settings.cluster}
            self._suffix = encode_properties(self._added)
            self._replies = SentReplies(self._ext)

    def routes(self) -> dict[int, Handler]:
        """Request codes and who serves them."""
        return {
            Request.SEND_MESSAGE: self.send,
            Request.SEND_MESSAGE_V2: self.send,
            Request.SEND_BATCH_MESSAGE: self.send,
        }

    def send(self, peer: Peer, request: Command, now_ms: int) -> bytes | None:
        """Store one message or a batch."""
        self._note_settings()
        header: Header
        if request.code == Request.SEND_MESSAGE:
            header = read_header(SendHeader, request.ext)
        else:
            header = read_header(SendHeaderV2, request.ext)
        if self._broker.waited_ms > self._broker.settings.half_wait_max_ms:
            late = self._judge_lateness(header)
            if late is not None:
                return self._refuse(request, late)
        topic = self._find_topic(peer, header, now_ms)
        if isinstance(topic, Refusal):
            return self._refuse(request, topic)
        if header.batch or request.code == Request.SEND_BATCH_MESSAGE:
            return self._send_batch(peer, request, header, topic, now_ms)
        return self._send_one(peer, request, header, topic, now_ms)

    def _refuse(self, request: Command, refusal: Refusal) -> bytes:
        return encode_reply(request, refusal.code, remark=refusal.remark, ext=self._ext)

    def _judge_lateness(self, header: Header) -> Refusal | None:
        """Under pressure new transactions are refused first, then plain messages; never an end."""
        broker = self._broker
        settings, waited_ms = broker.settings, broker.waited_ms
        is_late = waited_ms > settings.send_wait_max_ms or f"{Property.TRAN_MSG}\x01" in (
            header.properties or ""
        )
        if not settings.sheds_load or not is_late:
            return None
        broker.shed_count += 1
        remark = (
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: "
            f"{waited_ms}ms, size of queue: 0"
        )
        return Refusal(Response.SYSTEM_BUSY, remark)

    # -- which topic -------------------------------------------------------------------------

    def _find_topic(self, peer: Peer, header: Header, now_ms: int) -> TopicConfig | Refusal:
        broker = self._broker
        topic = broker.topics.get(header.topic)
        if broker.settings.accepts_sends_from_ms > now_ms:
            at_ms = broker.settings.accepts_sends_from_ms
            return Refusal(Response.SYSTEM_ERROR, f"broker unable to service, until {at_ms} ms")
        if topic is None:
            fault = name_fault(header.topic)
            if fault is not None:
                return Refusal(Response.INVALID_PARAMETER, fault)
            if is_sendable(header.topic):
                topic = self._create_topic(header, now_ms)
        elif topic.order and not broker.settings.permission & Perm.WRITE:
            return Refusal(Response.NO_PERMISSION, self._forbidden("sending message"))
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

    def _create_topic(self, header: Header, now_ms: int) -> TopicConfig | None:
        topics = self._broker.topics
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

    def _forbidden(self, what: str) -> str:
        return f"the broker[{self._broker.settings.advertised_host}] {what} is forbidden"

    # -- one message -------------------------------------------------------------------------

    def _message(
        self, peer: Peer, header: Header, topic: TopicConfig, now_ms: int, body: bytes
    ) -> Message:
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = self._broker.chance.randrange(max(1, topic.write_queue_nums))
        properties = parse_properties(header.properties)
        self._complete(properties, peer, now_ms)
        sys_flag = header.sys_flag
        if topic.topic_filter_type == _MULTI_TAG:
            sys_flag |= SysFlag.MULTI_TAGS
        return Message(
            topic=header.topic,
            body=body,
            queue_id=queue_id,
            flag=header.flag,
            properties=properties,
            sys_flag=sys_flag,
            born_ms=header.born_timestamp,
            born_host=peer.packed,
            store_host=self._broker.packed,
            reconsume_times=header.reconsume_times,
        )

    def _complete(self, properties: dict[str, str], peer: Peer, now_ms: int) -> None:
        """Add what the peer adds on every send."""
        if Property.UNIQ_KEY not in properties:
            properties[Property.UNIQ_KEY] = self._unique_key(peer, now_ms)
        properties.update(self._added)

    def _unique_key(self, peer: Peer, now_ms: int) -> str:
        """An id for a message whose sender made none: 16 bytes in hex, as a client's."""
        chance = self._broker.chance.getrandbits(48)
        return f"{peer.packed[:4].hex().upper()}{now_ms & 0xFFFFFFFFFFFF:012X}{chance:012X}"

    def _send_one(
        self, peer: Peer, request: Command, header: Header, topic: TopicConfig, now_ms: int
    ) -> bytes | None:
        if not request.body:
            # The peer fails with a NullPointerException here; an empty body cannot be sent.
            remark = "the message has no body; send at least one byte"
            return self._refuse(request, Refusal(Response.SYSTEM_ERROR, remark))
        message = self._message(peer, header, topic, now_ms, request.body)
        is_transactional = Property.TRAN_MSG in message.properties and is_half(
            message.properties, message.reconsume_times
        )
        fault = admit(message, is_half=is_transactional)
        if fault:
            return self._refuse(request, Refusal(Response.MESSAGE_ILLEGAL, fault))
        if is_retry(header.topic):
            refusal = self._redirect_retry(request, header, message, now_ms)
            if refusal is not None:
                return self._refuse(request, refusal)
        elif topic.attributes.get("cleanup.policy") == "COMPACTION" and not message.properties.get(
            Property.KEYS
        ):
            remark = "Required message key is missing"
            return self._refuse(request, Refusal(Response.MESSAGE_ILLEGAL, remark))
        wants_id = is_transactional and (request.ext or {}).get("escrowWantsId") == "true"
        put: Put | Refusal
        if is_transactional:
            put = self._prepare(peer, request, message, now_ms, wants_id=wants_id)
        else:
            put = self._putter.put(message, now_ms)
        if isinstance(put, Refusal):
            return self._refuse(request, put)
        if Property.REPLY_TO_CLIENT in message.properties and not is_retry(header.topic):
            self._note_asked(peer, request, message, now_ms)
        self._broker.stats.put(header.topic, 1, put.record_size)
        queue_id = header.queue_id if header.queue_id >= 0 else message.queue_id
        message_id = offset_id(self._broker.packed, put.log_offset)
        unique_key = message.properties[Property.UNIQ_KEY]
        if type(put) is Put and not self._broker.store_settings.is_sync_flush and not wants_id:
            return self._replies.encode(
                request,
                message_id,
                queue_id=queue_id,
                queue_offset=put.queue_offset,
                unique_key=unique_key,
            )
        ext = {
            **self._ext,
            "msgId": message_id,
            "queueId": str(queue_id),
            "queueOffset": str(put.queue_offset),
            "transactionId": unique_key,
        }
        if isinstance(put, Diverted) and put.recall_handle:
            ext["recallHandle"] = put.recall_handle
        if wants_id:
            ext["escrowId"] = self._ends.sign(put, unique_key, now_ms)
        waits = message.properties.get(Property.WAIT) != "false"
        return self._putter.answer(peer, request, put, ext=ext, waits=waits, now_ms=now_ms)

    def _note_asked(self, peer: Peer, request: Command, message: Message, now_ms: int) -> None:
        """Remember whose request this is, for its reply."""
        broker = self._broker
        if broker.account_of is not None:
            account = broker.account_of(peer, request)
            broker.asked.note(message.properties, account, message.topic, now_ms)

    def _own(self, peer: Peer, request: Command, message: Message) -> None:
        """A half is its account's: no other ends it, or puts one into its transaction."""
        account_of = self._broker.account_of
        account = "" if account_of is None else account_of(peer, request)
        if account:
            message.properties[OWNER] = account_mark(account)

    def _prepare(
        self, peer: Peer, request: Command, message: Message, now_ms: int, *, wants_id: bool
    ) -> Put | Refusal:
        """Store a half message."""
        if self._broker.account_of is not None:
            self._own(peer, request, message)
        if self._broker.settings.rejects_transactions:
            return Refusal(Response.NO_PERMISSION, self._forbidden("sending transaction message"))
        refusal = self._ends.refusal(message, now_ms, wants_id=wants_id)
        if refusal is not None:
            return refusal
        put = self._ends.prepare(peer, message, now_ms)
        return put if put.log_offset >= 0 else self._putter.refusal(put)

    def _redirect_retry(
        self, request: Command, header: Header, message: Message, now_ms: int
    ) -> Refusal | None:
        """A consumer sends a message back as an ordinary one; too often means dead letter."""
        broker = self._broker
        group_name = header.topic[len(Topic.RETRY_PREFIX) :]
        group = broker.groups.get(group_name, now_ms)
        if group is None:
            remark = f"subscription group not exist, {group_name} {FAQ}"
            return Refusal(Response.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        times_max = group.retry_max_times
        if request.version >= Version.V3_4_9 and header.max_reconsume_times is not None:
            times_max = header.max_reconsume_times
        if header.reconsume_times > times_max or broker.locks.is_orderly(group_name, now_ms):
            message.topic = Topic.DLQ_PREFIX + group_name
            broker.topics.ensure(message.topic, now_ms=now_ms)
            message.queue_id = 0
            message.properties.pop(Property.DELAY, None)
        return None

    # -- a batch -----------------------------------------------------------------------------

    def _send_batch(
        self, peer: Peer, request: Command, header: Header, topic: TopicConfig, now_ms: int
    ) -> bytes | None:
        if len(header.topic) > TOPIC_SIZE_MAX:
            remark = f"message topic length too long {len(header.topic)}"
            return self._refuse(request, Refusal(Response.MESSAGE_ILLEGAL, remark))
        if is_retry(header.topic):
            remark = f"batch request does not support retry group {header.topic}"
            return self._refuse(request, Refusal(Response.MESSAGE_ILLEGAL, remark))
        first = self._message(peer, header, topic, now_ms, b"")
        is_hidden = bool(first.sys_flag & SysFlag.PREPARED)
        fault = "" if is_hidden else admit(first, is_half=False)
        pieces = []
        # Each keeps its own unique key: at the peer (5.3.x) the batch's wins when read, so that all
        # messages share one; later releases mended that.
        for flag, body, encoded in decode_batch(request.body):
            properties = decode_properties(encoded)
            if is_half(properties, 0) or is_hidden:
                remark = "a batch cannot hold transactional messages; send them one by one"
                return self._refuse(request, Refusal(Response.MESSAGE_ILLEGAL, remark))
            is_plain = properties.keys() & _OURS == _EXPECTED and encoded.endswith(b"\x02")
            fault = fault or ("" if is_plain else take_off(properties, header.topic))
            if fault:
                return self._refuse(request, Refusal(Response.MESSAGE_ILLEGAL, fault))
            if is_plain:
                completed = encoded + self._suffix
            else:
                self._complete(properties, peer, now_ms)
                completed = encode_properties(properties)
            pieces.append((flag, body, completed, properties))
        if not pieces:
            remark = "the batch is empty; send one message or more"
            return self._refuse(request, Refusal(Response.MESSAGE_ILLEGAL, remark))
        puts = self._broker.store.put_batch(first, pieces, now_ms)
        if puts[0].log_offset < 0:
            return self._refuse(request, self._putter.refusal(puts[0]))
        packed = self._broker.packed
        ext = {
            **self._ext,
            "msgId": ",".join([offset_id(packed, put.log_offset) for put in puts]),
            "queueId": str(first.queue_id),
            "queueOffset": str(puts[0].queue_offset),
        }
        unique_key = parse_properties(header.properties).get(Property.UNIQ_KEY)
        if unique_key:  # clients of 4.x give none to a batch, and are told none
            ext["transactionId"] = unique_key
        waits = first.properties.get(Property.WAIT) != "false"
        size = sum(put.record_size for put in puts)
        self._broker.stats.put(header.topic, len(puts), size)
        return self._putter.answer(peer, request, puts[-1], ext=ext, waits=waits, now_ms=now_ms)
