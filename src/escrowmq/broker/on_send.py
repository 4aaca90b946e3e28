"""Sends: single, batch, one-way, to retry topics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from escrowmq.base.answer import HELD, Refusal, Reply, Sent
from escrowmq.base.codes import FAQ, Request, Response, Version
from escrowmq.base.extensions import OWNER, WANTS_ID
from escrowmq.base.limits import (
    BATCH_AT_ONCE_MAX,
    BATCH_KEYS_MAX,
    BATCH_MESSAGES_MAX,
    BATCH_PART_COUNT,
    KEYS_AT_ONCE_MAX,
    TOPIC_SIZE_MAX,
)
from escrowmq.base.message import Message, Property, SysFlag, Topic, is_sendable
from escrowmq.broker.asked import Asked
from escrowmq.broker.entry import MARKED, admit, count_keys, keys_fault, take_off
from escrowmq.broker.half_rules import HalfRules
from escrowmq.broker.peer import Long, Peer
from escrowmq.broker.putting import Diverted, Putter, is_retry
from escrowmq.broker.state import Broker
from escrowmq.codec.batch import decode_part, entry_size
from escrowmq.codec.hashes import account_mark
from escrowmq.codec.headers import SendHeader, SendHeaderV2
from escrowmq.codec.ids import offset_id
from escrowmq.codec.properties import decode_properties, encode_properties, parse_properties
from escrowmq.delivery.topics import Perm, TopicConfig, name_fault
from escrowmq.store.encoding import Piece
from escrowmq.store.store import Put
from escrowmq.txn.half import is_half
from escrowmq.txn.transactions import Transactions

Header = SendHeader | SendHeaderV2
_IDS_AT_ONCE: Final = 5_000
"""Messages of a long batch that are named in one turn."""

_EXPECTED: Final = frozenset({Property.UNIQ_KEY})
_OURS: Final = _EXPECTED | MARKED | {Property.MSG_REGION, Property.TRACE_ON, Property.CLUSTER}
"""Properties that are looked at, of which a message of a batch brings one."""


class SendHandlers:
    """SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320)."""

    def __init__(
        self, broker: Broker, putter: Putter, transactions: Transactions, rules: HalfRules
    ) -> None:
        self._broker = broker
        self._putter = putter
        self._transactions = transactions
        self._rules = rules
        self._is_traced: bool | None = None
        self._note_settings()

    def _note_settings(self) -> None:
        """Take over what every message gets from the settings; operators may change them."""
        settings = self._broker.settings
        if settings.is_traced is not self._is_traced:
            self._is_traced = settings.is_traced
            self._said = self._broker.frames.said_to_senders()
            self._added = {**self._said, Property.CLUSTER: settings.cluster}
            self._suffix = encode_properties(self._added)

    def send(self, asked: Asked[Header]) -> Reply:
        """Store one message or a batch."""
        self._note_settings()
        topic = self._judge(asked)
        reply: Reply
        if isinstance(topic, Refusal):
            reply = topic
        elif asked.header.batch or asked.command.code == Request.SEND_BATCH_MESSAGE:
            reply = self._send_batch(asked, topic)
        else:
            reply = self._send_one(asked, topic)
        return reply.saying(self._said) if isinstance(reply, Refusal) else reply

    def _judge(self, asked: Asked[Header]) -> TopicConfig | Refusal:
        """The topic that it goes to, or why it does not."""
        header, broker = asked.header, self._broker
        if broker.waited_ms > broker.settings.half_wait_max_ms:
            late = self._judge_lateness(header)
            if late is not None:
                return late
        return self._find_topic(asked.peer, header, asked.now_ms)

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

    def _message(self, asked: Asked[Header], topic: TopicConfig, body: bytes) -> Message:
        header = asked.header
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = self._broker.chance.randrange(max(1, topic.write_queue_nums))
        properties = parse_properties(header.properties)
        self._complete(properties, asked.peer, asked.now_ms)
        sys_flag = header.sys_flag
        if topic.has_many_tags:
            sys_flag |= SysFlag.MULTI_TAGS
        return Message(
            topic=header.topic,
            body=body,
            queue_id=queue_id,
            flag=header.flag,
            properties=properties,
            sys_flag=sys_flag,
            born_ms=header.born_timestamp,
            born_host=asked.peer.packed,
            store_host=self._broker.packed,
            reconsume_times=header.reconsume_times,
        )

    def _complete(self, properties: dict[str, str], peer: Peer, now_ms: int) -> None:
        """Add what RocketMQ adds on every send."""
        if Property.UNIQ_KEY not in properties:
            properties[Property.UNIQ_KEY] = self._unique_key(peer, now_ms)
        properties.update(self._added)

    def _unique_key(self, peer: Peer, now_ms: int) -> str:
        """An id for a message whose sender made none: 16 bytes in hex, as a client's."""
        chance = self._broker.chance.getrandbits(48)
        return f"{peer.packed[:4].hex().upper()}{now_ms & 0xFFFFFFFFFFFF:012X}{chance:012X}"

    def _send_one(self, asked: Asked[Header], topic: TopicConfig) -> Reply:
        header, body, now_ms = asked.header, asked.command.body, asked.now_ms
        if not body:
            # RocketMQ fails with a NullPointerException here; an empty body cannot be sent.
            remark = "the message has no body; send at least one byte"
            return Refusal(Response.SYSTEM_ERROR, remark)
        message = self._message(asked, topic, body)
        is_transactional = Property.TRAN_MSG in message.properties and is_half(
            message.properties, message.reconsume_times
        )
        fault = admit(message, is_half=is_transactional)
        if fault:
            return Refusal(Response.MESSAGE_ILLEGAL, fault)
        if is_retry(header.topic):
            refusal = self._redirect_retry(asked, message)
            if refusal is not None:
                return refusal
        elif topic.is_compacted and not message.properties.get(Property.KEYS):
            return Refusal(Response.MESSAGE_ILLEGAL, "Required message key is missing")
        wants_id = is_transactional and asked.ext.get(WANTS_ID) == "true"
        put: Put | Refusal
        if is_transactional:
            put = self._prepare(asked, message, wants_id=wants_id)
        else:
            put = self._putter.put(message, now_ms)
        if isinstance(put, Refusal):
            return put
        if Property.REPLY_TO_CLIENT in message.properties and not is_retry(header.topic):
            self._note_asked(asked, message)
        self._broker.stats.put(header.topic, 1, put.record_size)
        unique_key = message.properties[Property.UNIQ_KEY]
        more: dict[str, str] | None = None
        if type(put) is not Put or wants_id:
            more = {}
            if isinstance(put, Diverted) and put.recall_handle:
                more["recallHandle"] = put.recall_handle
            if wants_id:
                more["escrowId"] = self._transactions.sign(put, unique_key, now_ms)
        return Sent(
            message_id=offset_id(self._broker.packed, put.log_offset),
            queue_id=header.queue_id if header.queue_id >= 0 else message.queue_id,
            queue_offset=put.queue_offset,
            transaction_id=unique_key,
            ext=more,
            log_end=self._durable_at(put, message),
        )

    def _durable_at(self, put: Put, message: Message) -> int:
        if not self._broker.store_settings.is_sync_flush:
            return 0
        return self._putter.durable_at(put, waits=message.properties.get(Property.WAIT) != "false")

    def _note_asked(self, asked: Asked[Header], message: Message) -> None:
        """Remember whose request this is, for its reply."""
        if self._broker.has_owners:
            known = self._broker.asked
            known.note(message.properties, asked.account, message.topic, asked.now_ms)

    def _prepare(self, asked: Asked[Header], message: Message, *, wants_id: bool) -> Put | Refusal:
        """Store a half message."""
        if self._broker.has_owners and asked.account:
            # It is its account's: no other ends it, or puts one into its transaction.
            message.properties[OWNER] = account_mark(asked.account)
        if self._broker.settings.rejects_transactions:
            return Refusal(Response.NO_PERMISSION, self._forbidden("sending transaction message"))
        transactions, now_ms = self._transactions, asked.now_ms
        if wants_id and transactions.keyring.is_due(now_ms):
            transactions.renew_key(now_ms)
        engine = transactions.engine
        refusal = self._rules.refusal(message, engine.halves, now_ms)
        if refusal is not None:
            return refusal
        group = message.properties.get(Property.PGROUP, "")
        origin = self._broker.clients.note_published(group, asked.peer.id, message.topic)
        put = engine.prepare(message, now_ms, origin=origin, account=asked.peer.counted_for)
        return put if put.log_offset >= 0 else self._putter.refusal(put)

    def _redirect_retry(self, asked: Asked[Header], message: Message) -> Refusal | None:
        """A consumer sends a message back as an ordinary one; too often means dead letter."""
        header, broker, now_ms = asked.header, self._broker, asked.now_ms
        group_name = header.topic[len(Topic.RETRY_PREFIX) :]
        group = broker.groups.get(group_name, now_ms)
        if group is None:
            remark = f"subscription group not exist, {group_name} {FAQ}"
            return Refusal(Response.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        times_max = group.retry_max_times
        if asked.command.version >= Version.V3_4_9 and header.max_reconsume_times is not None:
            times_max = header.max_reconsume_times
        if header.reconsume_times > times_max or broker.locks.is_orderly(group_name, now_ms):
            message.topic = Topic.DLQ_PREFIX + group_name
            broker.topics.ensure(message.topic, now_ms=now_ms)
            message.queue_id = 0
            message.properties.pop(Property.DELAY, None)
        return None

    # -- a batch -----------------------------------------------------------------------------

    def _send_batch(self, asked: Asked[Header], topic: TopicConfig) -> Reply:
        header = asked.header
        if len(header.topic) > TOPIC_SIZE_MAX:
            remark = f"message topic length too long {len(header.topic)}"
            return Refusal(Response.MESSAGE_ILLEGAL, remark)
        if is_retry(header.topic):
            remark = f"batch request does not support retry group {header.topic}"
            return Refusal(Response.MESSAGE_ILLEGAL, remark)
        first = self._message(asked, topic, b"")
        part = self._part(asked, first, 0, count_max=BATCH_AT_ONCE_MAX)
        if isinstance(part, Refusal):
            return part
        pieces, end = part
        if not pieces:
            remark = "the batch is empty; send one message or more"
            return Refusal(Response.MESSAGE_ILLEGAL, remark)
        if end < len(asked.body):
            asked.peer.long = Long(asked, self._in_parts(asked, first, pieces, end))
            return HELD
        puts = self._broker.store.batches.put(first, pieces, asked.now_ms)
        if puts[0].log_offset < 0:
            return self._putter.refusal(puts[0])
        size = sum(put.record_size for put in puts)
        self._broker.stats.put(header.topic, len(puts), size)
        packed = self._broker.packed
        ids = [offset_id(packed, put.log_offset) for put in puts]
        return self._batch_sent(
            asked, first, ids, puts[0].queue_offset, log_end=self._durable_at(puts[-1], first)
        )

    def _part(
        self, asked: Asked[Header], first: Message, at: int, *, count_max: int
    ) -> tuple[list[Piece], int] | Refusal:
        """The next messages of a batch, as they are stored, and the byte behind them: so many at
        most, and fewer when they have many keys."""
        is_hidden = bool(first.sys_flag & SysFlag.PREPARED)
        fault = "" if is_hidden else admit(first, is_half=False)
        pieces: list[Piece] = []
        # Each keeps its own unique key: at RocketMQ (5.3.x) the batch's wins when read, so that all
        # messages share one; later releases mended that.
        entries, end = decode_part(asked.body, at, count_max=count_max)
        keys_count = 0
        for number, (flag, body, encoded) in enumerate(entries):
            if keys_count > KEYS_AT_ONCE_MAX:  # the rest is of another part
                end -= sum(map(entry_size, entries[number:]))
                break
            properties = decode_properties(encoded)
            keys = properties.get(Property.KEYS)
            if keys:
                count = count_keys(keys)
                keys_count += count
                fault = fault or keys_fault(count)
            if is_half(properties, 0) or is_hidden:
                remark = "a batch cannot hold transactional messages; send them one by one"
                return Refusal(Response.MESSAGE_ILLEGAL, remark)
            is_plain = properties.keys() & _OURS == _EXPECTED and encoded.endswith(b"\x02")
            fault = fault or ("" if is_plain else take_off(properties, first.topic))
            if fault:
                return Refusal(Response.MESSAGE_ILLEGAL, fault)
            if is_plain:
                completed = encoded + self._suffix
            else:
                self._complete(properties, asked.peer, asked.now_ms)
                completed = encode_properties(properties)
            pieces.append((flag, body, completed, properties))
        return pieces, end

    def _in_parts(
        self, asked: Asked[Header], first: Message, pieces: list[Piece], at: int
    ) -> Iterator[Reply]:
        """Read a long batch part by part, each a turn, then store it whole: HELD until it is
        done with. Other connections are served in between, and nothing is stored of a batch that
        is refused."""
        broker, topic = self._broker, asked.header.topic
        batches = broker.store.batches
        batch, keys_count = batches.begin(first), 0
        while True:
            refused = batches.refusal(first, pieces)
            if refused is not None:
                yield self._putter.refusal(refused).saying(self._said)
                return
            if len(batch.sizes) + len(pieces) > BATCH_MESSAGES_MAX:
                remark = f"a batch of more than {BATCH_MESSAGES_MAX} messages; send it in parts"
                yield Refusal(Response.MESSAGE_ILLEGAL, remark).saying(self._said)
                return
            batch.add(pieces)
            texts = [piece[3].get(Property.KEYS) for piece in pieces]
            keys_count += sum(count_keys(keys) for keys in texts if keys)
            if keys_count > BATCH_KEYS_MAX:
                remark = f"a batch with more than {BATCH_KEYS_MAX} keys; send it in parts"
                yield Refusal(Response.MESSAGE_ILLEGAL, remark).saying(self._said)
                return
            yield HELD
            if at == len(asked.body):
                break
            part = self._part(asked, first, at, count_max=BATCH_PART_COUNT)
            if isinstance(part, Refusal):
                yield part.saying(self._said)
                return
            pieces, at = part
        found = self._find_topic(asked.peer, asked.header, asked.now_ms)
        if isinstance(found, Refusal):  # it was deleted meanwhile
            yield found.saying(self._said)
            return
        put = batches.put_long(batch, asked.now_ms)
        if put.log_offset < 0:
            yield self._putter.refusal(put).saying(self._said)
            return
        broker.stats.put(topic, len(batch.sizes), put.record_size)
        yield HELD
        ids: list[str] = []
        for log_offset in batch.log_offsets(put.log_offset):
            ids.append(offset_id(broker.packed, log_offset))
            if len(ids) % _IDS_AT_ONCE == 0:
                yield HELD
        log_end = self._durable_at(put, first)
        yield self._batch_sent(asked, first, ids, put.queue_offset, log_end=log_end)

    def _batch_sent(
        self,
        asked: Asked[Header],
        first: Message,
        ids: list[str],
        queue_offset: int,
        *,
        log_end: int,
    ) -> Sent:
        properties = parse_properties(asked.header.properties)
        return Sent(
            message_id=",".join(ids),
            queue_id=first.queue_id,
            queue_offset=queue_offset,
            transaction_id=properties.get(Property.UNIQ_KEY, ""),
            ext={},
            log_end=log_end,
        )
