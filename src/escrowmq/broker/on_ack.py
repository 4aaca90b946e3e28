"""Acks of popped messages, and consumers that need more time."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Final

from escrowmq.base.codes import FAQ, Flag, Request, Response
from escrowmq.base.command import Command
from escrowmq.broker.on_pull import Refused
from escrowmq.broker.state import Broker, Handler, Peer, Waiting
from escrowmq.codec.acks import AckBatch, decode_acks
from escrowmq.codec.command import encode_reply
from escrowmq.codec.headers import AckHeader, read_header
from escrowmq.codec.receipt import ORDER_QUEUE, Receipt, decode_receipt, retry_topic
from escrowmq.delivery.order import ILLEGAL, OrderTable
from escrowmq.delivery.pop import PopLedger
from escrowmq.delivery.revive import Handle
from escrowmq.errors import RemoteProtocolError

BATCH_ACKS_MAX: Final = 4_096
"""Batches of one request."""

BITS_MAX: Final = 4_096
"""Offsets of one batch that are looked at; a check point has 32."""

OnFreed = Callable[[str, str, int], None]
"""Is told the group and the topic of a queue that may be read again; and the time."""

_NOTHING: Final = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0"}


class AckHandlers:
    """ACK_MESSAGE (200051), BATCH_ACK_MESSAGE (200151), CHANGE_MESSAGE_INVISIBLETIME (200053)."""

    def __init__(
        self, broker: Broker, ledger: PopLedger, orders: OrderTable, on_freed: OnFreed
    ) -> None:
        self._broker = broker
        self._ledger = ledger
        self._orders = orders
        self._on_freed = on_freed
        self._done: list[tuple[Peer, Command]] = []

    def routes(self) -> dict[int, Handler]:
        """Request codes and who serves them."""
        return {
            Request.ACK_MESSAGE: self.ack,
            Request.BATCH_ACK_MESSAGE: self.ack_batch,
            Request.CHANGE_MESSAGE_INVISIBLETIME: self.change,
        }

    # -- acks ------------------------------------------------------------------------------------

    def ack(self, peer: Peer, request: Command, now_ms: int) -> bytes | None:
        """One message is done with."""
        header = read_header(AckHeader, request.ext)
        try:
            low, high = self._judge(peer, header)
            if not low <= header.offset <= high:
                raise Refused(
                    Response.NO_MESSAGE,
                    f"offset is illegal, key:{header.topic}@{header.queue_id}, "
                    f"commit:{header.offset}, store:{low}~{high}",
                )
            receipt = decode_receipt(header.extra_info)
            handle = _handle(header, receipt)
            if receipt.is_order:
                self._ack_orderly(peer, handle, header.offset, now_ms)
            else:
                self._ledger.acknowledge(
                    handle, [header.offset], invisible_ms=receipt.invisible_ms, now_ms=now_ms
                )
        except Refused as refused:
            return encode_reply(request, refused.code, remark=str(refused))
        return self._when_stored(peer, request)

    def _judge(self, peer: Peer, header: AckHeader) -> tuple[int, int]:
        topic = self._broker.topics.get(header.topic)
        if topic is None:
            remark = f"topic[{header.topic}] not exist, apply first please! {FAQ}"
            raise Refused(Response.TOPIC_NOT_EXIST, remark)
        if not 0 <= header.queue_id < topic.read_queue_nums:
            remark = (
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{peer.address}]"
            )
            raise Refused(Response.MESSAGE_ILLEGAL, remark)
        return self._broker.store.bounds(header.topic, header.queue_id)

    def _ack_orderly(self, peer: Peer, handle: Handle, queue_offset: int, now_ms: int) -> None:
        """A message of an orderly group's batch is done with."""
        broker = self._broker
        group, topic, queue_id = line = handle[:3]
        old = broker.offsets.get(group, topic, queue_id)
        if queue_offset < old:
            return
        offset = self._orders.acknowledge(line, queue_offset, handle.pop_ms)
        if offset == ILLEGAL:
            raise Refused(
                Response.MESSAGE_ILLEGAL,
                f"offset is illegal, key:{topic}@{group}@{queue_id}, old:{old}, "
                f"commit:{queue_offset}, next:{offset}, {peer.address}",
            )
        if offset < 0:
            return
        if not broker.offsets.has_reset(group, topic, queue_id):
            broker.offsets.commit(group, topic, queue_id, offset, now_ms)
            self._ledger.come_to(group, topic, queue_id, offset)
        if not self._orders.is_blocked(line, attempt_id=None, invisible_ms=0, now_ms=now_ms):
            self._on_freed(group, topic, now_ms)

    def ack_batch(self, peer: Peer, request: Command, now_ms: int) -> bytes | None:
        """Many messages are done with."""
        batches = decode_acks(request.body)
        if not batches:
            return encode_reply(request, Response.NO_MESSAGE)
        reply = None
        for batch in batches[:BATCH_ACKS_MAX]:
            topic = retry_topic(batch.t, batch.c, int(batch.r) if batch.r.isdecimal() else -1)
            low, high = self._broker.store.bounds(topic, batch.q)
            offsets = [offset for offset in _offsets(batch) if low <= offset <= high]
            handle = Handle(batch.c, topic, batch.q, batch.so, batch.pt, batch.rq)
            if batch.rq != ORDER_QUEUE:
                if offsets:
                    self._ledger.acknowledge(handle, offsets, invisible_ms=batch.it, now_ms=now_ms)
                continue
            for offset in offsets:
                try:
                    self._ack_orderly(peer, handle, offset, now_ms)
                except Refused as refused:
                    reply = encode_reply(request, refused.code, remark=str(refused))
        return reply or self._when_stored(peer, request)

    def _when_stored(self, peer: Peer, request: Command) -> bytes | None:
        """The answer to an ack leaves after its record: that of this input's end."""
        if not self._broker.store_settings.is_sync_flush:
            return encode_reply(request, Response.SUCCESS)
        self._done.append((peer, request))
        return None

    def settle(self, now_ms: int) -> None:
        """Store the acks of this input."""
        self._ledger.flush(now_ms)
        if not self._done:
            return
        broker = self._broker
        done, self._done = self._done, []
        for peer, request in done:
            reply = encode_reply(request, Response.SUCCESS)
            if self._ledger.log_end <= broker.store.durable_offset:
                if not request.flag & Flag.ONE_WAY:
                    broker.send(peer.id, reply)
                continue
            broker.waiting.append(
                Waiting(
                    # Not before: those that wait stand in the order of the log.
                    log_end=broker.store.end_offset,
                    peer=peer.id,
                    request=request,
                    reply=reply,
                    timeout_reply=reply,
                    deadline_ms=now_ms + broker.store_settings.sync_timeout_ms,
                )
            )

    # -- more time -------------------------------------------------------------------------------

    def change(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """Let a message be invisible from now on for another span."""
        header = read_header(AckHeader, request.ext)
        try:
            low, high = self._judge(peer, header)
        except Refused as refused:
            return encode_reply(request, refused.code, remark=str(refused), ext=_NOTHING)
        if not low <= header.offset < high:
            return encode_reply(request, Response.NO_MESSAGE, ext=_NOTHING)
        receipt = decode_receipt(header.extra_info)
        if receipt.is_order:
            return self._change_orderly(request, header, receipt, now_ms)
        pop_ms = self._ledger.change(
            _handle(header, receipt),
            header.offset,
            old_ms=receipt.invisible_ms,
            invisible_ms=header.invisible_time,
            now_ms=now_ms,
        )
        if pop_ms is None:
            return encode_reply(request, Response.SYSTEM_ERROR, ext=_NOTHING)
        ext = {
            "popTime": str(pop_ms),
            "invisibleTime": str(header.invisible_time),
            "reviveQid": str(self._ledger.revive_queue(header.invisible_time)),
        }
        return encode_reply(request, Response.SUCCESS, ext=ext)

    def _change_orderly(
        self, request: Command, header: AckHeader, receipt: Receipt, now_ms: int
    ) -> bytes:
        group, topic, queue_id = line = _handle(header, receipt)[:3]
        if header.offset < self._broker.offsets.get(group, topic, queue_id):
            return encode_reply(request, Response.SUCCESS, ext=_NOTHING)
        visible_ms = now_ms + header.invisible_time
        self._orders.show_at(line, header.offset, receipt.pop_ms, visible_ms)
        ext = {
            "popTime": str(receipt.pop_ms),
            "invisibleTime": str(visible_ms - receipt.pop_ms),
            "reviveQid": str(receipt.revive_queue),
        }
        return encode_reply(request, Response.SUCCESS, ext=ext)


def _handle(header: AckHeader, receipt: Receipt) -> Handle:
    return Handle(
        header.consumer_group,
        header.topic,
        header.queue_id,
        receipt.start_offset,
        receipt.pop_ms,
        receipt.revive_queue,
    )


def _offsets(batch: AckBatch) -> list[int]:
    """The offsets whose bits are set; the lowest bit of the first byte is the start."""
    try:
        data = base64.b64decode(batch.b)
    except (binascii.Error, ValueError) as error:
        raise RemoteProtocolError(f"bit set {batch.b[:40]!r} is no Base64") from error
    bits = int.from_bytes(data[: BITS_MAX // 8], "little")
    return [batch.so + index for index in range(bits.bit_length()) if bits >> index & 1]
