"""Acknowledges popped messages, and changes how long they stay invisible."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Final

from escrowmq.base.answer import DONE, HELD, Answer, Refusal, Reply
from escrowmq.base.codes import FAQ, Response
from escrowmq.base.fixed_limits import INT_MAX
from escrowmq.broker.answers.answer_delivery import AnswerSender
from escrowmq.broker.incoming_request import IncomingRequest, Question
from escrowmq.broker.peer import Peer
from escrowmq.codec.batch_ack_body import AckBatch, decode_acks
from escrowmq.codec.headers import AckHeader
from escrowmq.codec.pop_receipt import ORDER_QUEUE, PopReceipt, decode_receipt, retry_topic
from escrowmq.codec.properties import parse_number
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.delivery.orderly_pops import ILLEGAL, OrderlyBatches
from escrowmq.delivery.pop_ledger import PopLedger
from escrowmq.delivery.revive_records import CheckPointKey
from escrowmq.delivery.topics import TopicTable
from escrowmq.errors import RemoteProtocolError
from escrowmq.store.store import Store

BATCH_ACKS_MAX: Final = 4_096
"""The most batches of acknowledgements in one request."""

BITS_MAX: Final = 4_096
"""The most offsets of one batch that are processed. RocketMQ's check points have 32."""

_NO_KIND: Final = -1

OnFreed = Callable[[str, str, int], None]
"""Called with the group and the topic of an orderly queue that may be popped again, and the
time."""

_NOTHING: Final = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0"}


class AckHandlers:
    """Serves ACK_MESSAGE (200051), BATCH_ACK_MESSAGE (200151) and CHANGE_MESSAGE_INVISIBLETIME
    (200053)."""

    def __init__(
        self,
        *,
        store: Store,
        topics: TopicTable,
        offsets: OffsetTable,
        answers: AnswerSender,
        ledger: PopLedger,
        orders: OrderlyBatches,
        on_freed: OnFreed,
    ) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._answers = answers
        self._ledger = ledger
        self._orders = orders
        self._on_freed = on_freed
        self._done: list[Question] = []
        self.work = self._done, *ledger.unstored

    # -- acks ------------------------------------------------------------------------------------

    def ack_message(self, request: IncomingRequest[AckHeader]) -> Reply:
        """Acknowledge one message."""
        header = request.header
        bounds = self._queue_bounds(request.peer, header)
        if isinstance(bounds, Refusal):
            return bounds
        low, high = bounds
        # An offset equal to the end is accepted, as in RocketMQ (AckMessageProcessor).
        if not low <= header.offset <= high:
            remark = (
                f"offset is illegal, key:{header.topic}@{header.queue_id}, "
                f"commit:{header.offset}, store:{low}~{high}"
            )
            return Refusal(Response.NO_MESSAGE, remark)
        receipt = decode_receipt(header.extra_info)
        handle = _check_point_key(header, receipt)
        if receipt.is_orderly:
            refusal = self._ack_orderly(request.peer, handle, header.offset, request.now_ms)
            return refusal or self._answer_when_stored(request)
        self._ledger.acknowledge(
            handle, [header.offset], invisible_ms=receipt.invisible_ms, now_ms=request.now_ms
        )
        return self._answer_when_stored(request)

    def _queue_bounds(self, peer: Peer, header: AckHeader) -> tuple[int, int] | Refusal:
        """Return the first and end offsets of the queue that a receipt names, or the refusal."""
        topic = self._topics.get(header.topic)
        if topic is None:
            remark = f"topic[{header.topic}] not exist, apply first please! {FAQ}"
            return Refusal(Response.TOPIC_NOT_EXIST, remark)
        if not 0 <= header.queue_id < topic.read_queue_nums:
            remark = (
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{peer.address}]"
            )
            return Refusal(Response.MESSAGE_ILLEGAL, remark)
        return self._store.bounds(header.topic, header.queue_id)

    def _ack_orderly(
        self, peer: Peer, handle: CheckPointKey, queue_offset: int, now_ms: int
    ) -> Refusal | None:
        """Acknowledge a message that an orderly group has popped. If the batch is finished, move
        the group's offset and free the queue."""
        group, topic, queue_id = line = handle[:3]
        old = self._offsets.get(group, topic, queue_id)
        if queue_offset < old:
            return None
        offset = self._orders.acknowledge(line, queue_offset, handle.pop_ms, group_offset=old)
        if offset == ILLEGAL:
            remark = (
                f"offset is illegal, key:{topic}@{group}@{queue_id}, old:{old}, "
                f"commit:{queue_offset}, next:{offset}, {peer.address}"
            )
            return Refusal(Response.MESSAGE_ILLEGAL, remark)
        if offset < 0:
            return None
        # While a reset is pending, acknowledgements are for messages read before the reset, and
        # must not move the offset.
        if not self._offsets.has_reset(group, topic, queue_id):
            self._offsets.commit(group, topic, queue_id, offset, now_ms)
            self._ledger.advance_orderly(group, topic, queue_id, offset)
        if not self._orders.is_blocked(line, attempt_id=None, invisible_ms=0, now_ms=now_ms):
            self._on_freed(group, topic, now_ms)
        return None

    def ack_batch(self, request: IncomingRequest[None]) -> Reply:
        """Acknowledge many messages."""
        batches = decode_acks(request.body)
        if not batches:
            return Answer(Response.NO_MESSAGE)
        refusal: Refusal | None = None
        for batch in batches[:BATCH_ACKS_MAX]:
            kind = parse_number(batch.r, most=INT_MAX)
            topic = retry_topic(batch.t, batch.c, _NO_KIND if kind is None else kind)
            low, high = self._store.bounds(topic, batch.q)
            offsets = [offset for offset in _acked_offsets(batch) if low <= offset <= high]
            handle = CheckPointKey(batch.c, topic, batch.q, batch.so, batch.pt, batch.rq)
            if batch.rq != ORDER_QUEUE:
                if offsets:
                    self._ledger.acknowledge(
                        handle, offsets, invisible_ms=batch.it, now_ms=request.now_ms
                    )
                continue
            for offset in offsets:
                found = self._ack_orderly(request.peer, handle, offset, request.now_ms)
                refusal = found or refusal
        return refusal or self._answer_when_stored(request)

    def _answer_when_stored(self, request: Question) -> Reply:
        """Hold the answer to an acknowledgement until its record is stored, at the end of this
        input."""
        if not self._store.ends.holds_answers:
            return DONE
        self._done.append(request)
        return HELD

    def finish_input(self, now_ms: int) -> None:
        """Store the acknowledgements of this input, and answer those that waited for it."""
        self._ledger.flush(now_ms)
        done = self._done.copy()
        self._done.clear()
        store = self._store
        is_stored = self._ledger.log_end <= store.ends.answerable_end
        # The log's end now, not the record's: waiting answers must stay in the order of the log.
        answer = DONE if is_stored else Answer(log_end=store.end_offset, late_code=Response.SUCCESS)
        for request in done:
            self._answers.send(request, answer)

    # -- more time -------------------------------------------------------------------------------

    def change_invisible_time(self, request: IncomingRequest[AckHeader]) -> Reply:
        """Set a message's invisible time anew, counted from now."""
        header = request.header
        bounds = self._queue_bounds(request.peer, header)
        if isinstance(bounds, Refusal):
            return bounds.with_fields(_NOTHING)
        low, high = bounds
        if not low <= header.offset < high:
            return Answer(Response.NO_MESSAGE, ext=_NOTHING)
        receipt = decode_receipt(header.extra_info)
        if receipt.is_orderly:
            return self._change_orderly_time(header, receipt, request.now_ms)
        pop_ms = self._ledger.change_invisible_time(
            _check_point_key(header, receipt),
            header.offset,
            old_ms=receipt.invisible_ms,
            invisible_ms=header.invisible_time,
            now_ms=request.now_ms,
        )
        if pop_ms is None:
            return Answer(Response.SYSTEM_ERROR, ext=_NOTHING)
        ext = {
            "popTime": str(pop_ms),
            "invisibleTime": str(header.invisible_time),
            "reviveQid": str(self._ledger.revive_queue(header.invisible_time)),
        }
        return Answer(ext=ext)

    def _change_orderly_time(self, header: AckHeader, receipt: PopReceipt, now_ms: int) -> Answer:
        group, topic, queue_id = line = _check_point_key(header, receipt)[:3]
        if header.offset < self._offsets.get(group, topic, queue_id):
            return Answer(ext=_NOTHING)
        visible_ms = now_ms + header.invisible_time
        self._orders.set_visible_ms(line, header.offset, receipt.pop_ms, visible_ms)
        ext = {
            "popTime": str(receipt.pop_ms),
            "invisibleTime": str(visible_ms - receipt.pop_ms),
            "reviveQid": str(receipt.revive_queue),
        }
        return Answer(ext=ext)


def _check_point_key(header: AckHeader, receipt: PopReceipt) -> CheckPointKey:
    return CheckPointKey(
        header.consumer_group,
        header.topic,
        header.queue_id,
        receipt.start_offset,
        receipt.pop_ms,
        receipt.revive_queue,
    )


def _acked_offsets(batch: AckBatch) -> list[int]:
    """Return the offsets of a batch whose bits are set. The lowest bit of the first byte is the
    batch's first offset."""
    try:
        data = base64.b64decode(batch.b)
    except (binascii.Error, ValueError) as error:
        raise RemoteProtocolError(f"bit set {batch.b[:40]!r} is not Base64") from error
    bits = int.from_bytes(data[: BITS_MAX // 8], "little")
    return [batch.so + index for index in range(bits.bit_length()) if bits >> index & 1]
