"""Stores batches of messages: short ones in one turn, long ones over several."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from escrowmq.base.answer import HELD, Refusal, Reply, SendAnswer
from escrowmq.base.codes import Response
from escrowmq.base.fixed_limits import (
    BATCH_AT_ONCE_MAX,
    BATCH_KEYS_MAX,
    BATCH_MESSAGES_MAX,
    BATCH_PART_COUNT,
    KEYS_AT_ONCE_MAX,
    TOPIC_SIZE_MAX,
)
from escrowmq.base.message import Message, Property, SysFlag
from escrowmq.broker.identity import Identity
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.broker.peer import LongRequest
from escrowmq.broker.sends.destinations import Destinations, Header
from escrowmq.broker.sends.forbidden_to_senders import (
    EXAMINED_PROPERTIES,
    clean_message,
    count_keys,
    keys_fault,
    remove_forbidden,
)
from escrowmq.broker.sends.log_puts import MessageStorer, is_retry_topic, log_end_to_await
from escrowmq.broker.sends.message_from_request import MessageMaker
from escrowmq.broker.sends.wanted_answers import with_safety_level
from escrowmq.codec.batch_body import batch_entry_size, decode_batch_part
from escrowmq.codec.ids import offset_id
from escrowmq.codec.properties import decode_properties, encode_properties, parse_properties
from escrowmq.delivery.stats import Stats
from escrowmq.delivery.topics import TopicConfig
from escrowmq.store.encoding import Piece
from escrowmq.store.store import Store
from escrowmq.txn.half_records import is_half

_IDS_AT_ONCE: Final = 5_000
"""The most messages of a long batch whose ids are computed in one turn."""

_EXPECTED: Final = frozenset({Property.UNIQ_KEY})
_OURS: Final = (
    _EXPECTED | EXAMINED_PROPERTIES | {Property.MSG_REGION, Property.TRACE_ON, Property.CLUSTER}
)
"""Properties that must be examined or set. A message of a batch that has none of them, except the
unique key, is stored as its sender encoded it."""


class BatchSends:
    """Stores batches, each as a whole or not at all."""

    def __init__(
        self,
        *,
        store: Store,
        stats: Stats,
        identity: Identity,
        putter: MessageStorer,
        maker: MessageMaker,
        destinations: Destinations,
    ) -> None:
        self._store = store
        self._stats = stats
        self._identity = identity
        self._putter = putter
        self._maker = maker
        self._destinations = destinations

    def send_batch(self, request: IncomingRequest[Header], topic: TopicConfig) -> Reply:
        """Store a batch. A long one takes several turns."""
        header = request.header
        if len(header.topic) > TOPIC_SIZE_MAX:
            remark = f"message topic length too long {len(header.topic)}"
            return Refusal(Response.MESSAGE_ILLEGAL, remark)
        if is_retry_topic(header.topic):
            remark = f"batch request does not support retry group {header.topic}"
            return Refusal(Response.MESSAGE_ILLEGAL, remark)
        first = self._maker.make_bare_message(request, topic, b"")
        part = self._prepare_part(request, first, 0, count_max=BATCH_AT_ONCE_MAX)
        if isinstance(part, Refusal):
            return part
        pieces, end = part
        if not pieces:
            remark = "the batch is empty; send one message or more"
            return Refusal(Response.MESSAGE_ILLEGAL, remark)
        if end < len(request.body):
            request.peer.long = LongRequest(
                request, self._send_in_parts(request, first, pieces, end)
            )
            return HELD
        puts = self._store.batches.put(first, pieces, request.now_ms)
        if puts[0].log_offset < 0:
            return self._putter.put_refusal(puts[0])
        size = sum(put.record_size for put in puts)
        self._stats.count_puts(header.topic, len(puts), size)
        packed = self._identity.packed
        ids = [offset_id(packed, put.log_offset) for put in puts]
        return self._batch_answer(
            request,
            first,
            ids,
            puts[0].queue_offset,
            log_end=log_end_to_await(puts[-1], first),
        )

    def _prepare_part(
        self, request: IncomingRequest[Header], first: Message, at: int, *, count_max: int
    ) -> tuple[list[Piece], int] | Refusal:
        """Prepare the next messages of a batch for storing. Return them and the position after
        them. The number is limited, also by the messages' keys."""
        is_hidden = bool(first.sys_flag & SysFlag.PREPARED)
        fault = "" if is_hidden else clean_message(first, is_half=False)
        pieces: list[Piece] = []
        # Each message keeps its own unique key. In RocketMQ 5.3.x all messages have the batch's key
        # when they are read, which later releases fixed.
        entries, end = decode_batch_part(request.body, at, count_max=count_max)
        keys_count = 0
        for number, (flag, body, encoded) in enumerate(entries):
            if keys_count > KEYS_AT_ONCE_MAX:  # the other messages are left for the next part
                end -= sum(map(batch_entry_size, entries[number:]))
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
            fault = fault or ("" if is_plain else remove_forbidden(properties, first.topic))
            if fault:
                return Refusal(Response.MESSAGE_ILLEGAL, fault)
            if is_plain:
                completed = encoded + self._maker.suffix
            else:
                self._maker.add_broker_properties(properties, request.peer, request.now_ms)
                completed = encode_properties(properties)
            pieces.append((flag, body, completed, properties))
        return pieces, end

    def _send_in_parts(
        self, request: IncomingRequest[Header], first: Message, pieces: list[Piece], at: int
    ) -> Iterator[Reply]:
        """Read a long batch, one part each turn, then store it as a whole. Yield HELD for each
        part, and at the end the answer. If one message is refused, none is stored."""
        topic = request.header.topic
        batches = self._store.batches
        batch, keys_count = batches.begin(first), 0
        while True:
            refused = batches.refusal(first, pieces)
            if refused is not None:
                yield self._putter.put_refusal(refused).with_fields(self._maker.reply_fields)
                return
            if len(batch.sizes) + len(pieces) > BATCH_MESSAGES_MAX:
                remark = f"a batch of more than {BATCH_MESSAGES_MAX} messages; send it in parts"
                yield Refusal(Response.MESSAGE_ILLEGAL, remark).with_fields(
                    self._maker.reply_fields
                )
                return
            batch.add(pieces)
            texts = [piece[3].get(Property.KEYS) for piece in pieces]
            keys_count += sum(count_keys(keys) for keys in texts if keys)
            if keys_count > BATCH_KEYS_MAX:
                remark = f"a batch with more than {BATCH_KEYS_MAX} keys; send it in parts"
                yield Refusal(Response.MESSAGE_ILLEGAL, remark).with_fields(
                    self._maker.reply_fields
                )
                return
            yield HELD
            if at == len(request.body):
                break
            part = self._prepare_part(request, first, at, count_max=BATCH_PART_COUNT)
            if isinstance(part, Refusal):
                yield part.with_fields(self._maker.reply_fields)
                return
            pieces, at = part
        found = self._destinations.find_topic(request.peer, request.header, request.now_ms)
        if isinstance(found, Refusal):  # it was deleted meanwhile
            yield found.with_fields(self._maker.reply_fields)
            return
        put = batches.put_long(batch, request.now_ms)
        if put.log_offset < 0:
            yield self._putter.put_refusal(put).with_fields(self._maker.reply_fields)
            return
        self._stats.count_puts(topic, len(batch.sizes), put.record_size)
        yield HELD
        ids: list[str] = []
        for log_offset in batch.log_offsets(put.log_offset):
            ids.append(offset_id(self._identity.packed, log_offset))
            if len(ids) % _IDS_AT_ONCE == 0:
                yield HELD
        log_end = log_end_to_await(put, first)
        yield self._batch_answer(request, first, ids, put.queue_offset, log_end=log_end)

    def _batch_answer(
        self,
        request: IncomingRequest[Header],
        first: Message,
        ids: list[str],
        queue_offset: int,
        *,
        log_end: int,
    ) -> SendAnswer:
        properties = parse_properties(request.header.properties)
        sent = SendAnswer(
            message_id=",".join(ids),
            queue_id=first.queue_id,
            queue_offset=queue_offset,
            transaction_id=properties.get(Property.UNIQ_KEY, ""),
            ext={},
            log_end=log_end,
        )
        return with_safety_level(request, sent)
