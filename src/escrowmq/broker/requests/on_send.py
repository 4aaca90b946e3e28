"""Serves sends of messages: single, batch, one-way, and to retry topics."""

from __future__ import annotations

from collections.abc import Callable

from escrowmq.base.answer import Refusal, Reply, SendAnswer
from escrowmq.base.codes import Request, Response
from escrowmq.base.message import Message, Property
from escrowmq.base.own_properties import REDONE, WANTS_ID
from escrowmq.broker.identity import Identity
from escrowmq.broker.incoming_request import IncomingRequest, Question
from escrowmq.broker.sends.batches import BatchSends
from escrowmq.broker.sends.destinations import Destinations, Header
from escrowmq.broker.sends.forbidden_to_senders import clean_message
from escrowmq.broker.sends.incoming_halves import IncomingHalves
from escrowmq.broker.sends.log_puts import DelayedPut, MessageStorer, is_retry_topic
from escrowmq.broker.sends.message_from_request import MessageMaker
from escrowmq.broker.sends.send_rules import missing_key_refusal
from escrowmq.broker.sends.shedding import LoadShedding
from escrowmq.broker.sends.wanted_answers import wants_to_wait, with_safety_level
from escrowmq.codec.ids import offset_id
from escrowmq.delivery.auto_created import RequestAccount
from escrowmq.delivery.requesters import WaitingRequests
from escrowmq.delivery.stats import Stats
from escrowmq.delivery.topics import TopicConfig
from escrowmq.store.store import PutResult
from escrowmq.txn.half_records import is_half


class SendHandlers:
    """Serves SEND_MESSAGE (10), SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320)."""

    def __init__(
        self,
        *,
        shedding: LoadShedding,
        destinations: Destinations,
        maker: MessageMaker,
        putter: MessageStorer,
        halves: IncomingHalves,
        batches: BatchSends,
        stats: Stats,
        identity: Identity,
        present: RequestAccount,
        requesters: WaitingRequests,
        may_store_again: Callable[[Question], bool],
    ) -> None:
        self._shedding = shedding
        self._destinations = destinations
        self._maker = maker
        self._putter = putter
        self._halves = halves
        self._batches = batches
        self._stats = stats
        self._identity = identity
        self._present = present
        self._requesters = requesters
        self._may_store_again = may_store_again

    def send(self, request: IncomingRequest[Header]) -> Reply:
        """Store one message or a batch."""
        topic = self._find_topic(request)
        reply: Reply
        if isinstance(topic, Refusal):
            reply = topic
        elif request.header.batch or request.command.code == Request.SEND_BATCH_MESSAGE:
            reply = self._batches.send_batch(request, topic)
        else:
            reply = self._send_one(request, topic)
        if isinstance(reply, Refusal):
            self._maker.update_from_settings()
            return reply.with_fields(self._maker.reply_fields)
        return reply

    def _find_topic(self, request: IncomingRequest[Header]) -> TopicConfig | Refusal:
        """Return the topic that a message goes to, or why it is refused."""
        header = request.header
        return self._shedding.late_refusal(header.properties) or self._destinations.find_topic(
            request.peer, header, request.now_ms
        )

    def _send_one(self, request: IncomingRequest[Header], topic: TopicConfig) -> Reply:
        header, body, now_ms = request.header, request.command.body, request.now_ms
        if not body:
            # RocketMQ fails with a NullPointerException here; an empty body cannot be sent.
            remark = "the message has no body; send at least one byte"
            return Refusal(Response.SYSTEM_ERROR, remark)
        message = self._maker.make_message(request, topic, body)
        is_transactional = Property.TRAN_MSG in message.properties and is_half(
            message.properties, message.reconsume_times
        )
        fault = (
            self._clean_redone(request, message, is_half=is_transactional)
            if REDONE in message.properties
            else clean_message(message, is_half=is_transactional)
        )
        if fault:
            return Refusal(Response.MESSAGE_ILLEGAL, fault)
        refusal: Refusal | None = None
        if is_retry_topic(header.topic):
            refusal = self._destinations.prepare_retry(request, message)
        elif topic.is_compacted:
            refusal = missing_key_refusal(message.properties)
        if refusal is not None:
            return refusal
        wants_id = is_transactional and request.ext.get(WANTS_ID) == "true"
        put: PutResult | Refusal
        if is_transactional:
            put = self._halves.store_half(request, message, wants_id=wants_id)
        else:
            put = self._putter.store_sent(message, now_ms)
        if isinstance(put, Refusal):
            return put
        if Property.REPLY_TO_CLIENT in message.properties and not is_retry_topic(header.topic):
            self._remember_requester(request, message)
        self._stats.count_puts(header.topic, 1, put.record_size)
        unique_key = message.properties[Property.UNIQ_KEY]
        more: dict[str, str] | None = None
        if type(put) is not PutResult or wants_id:
            more = {}
            if isinstance(put, DelayedPut) and put.recall_handle:
                more["recallHandle"] = put.recall_handle
            if wants_id:
                more["escrowId"] = self._halves.signed_id(put, unique_key, now_ms)
        sent = SendAnswer(
            message_id=offset_id(self._identity.packed, put.log_offset),
            queue_id=header.queue_id if header.queue_id >= 0 else message.queue_id,
            queue_offset=put.queue_offset,
            transaction_id=unique_key,
            ext=more,
            log_end=put.log_end if wants_to_wait(message.properties) else 0,
        )
        return with_safety_level(request, sent)

    def _clean_redone(
        self, request: IncomingRequest[Header], message: Message, *, is_half: bool
    ) -> str:
        """Clean a message that is marked as stored again, and leave the mark if its sender may set
        it. Return why the message is refused, else an empty text."""
        redone = message.properties[REDONE]
        fault = clean_message(message, is_half=is_half)
        if not is_half and self._may_store_again(request):
            message.properties[REDONE] = redone
        return fault

    def _remember_requester(self, request: IncomingRequest[Header], message: Message) -> None:
        """Remember which account sent a request message, so that its reply can be checked."""
        if self._present.has_owners:
            known = self._requesters
            known.remember(message.properties, request.account, message.topic, request.now_ms)
