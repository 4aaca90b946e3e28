"""Serves AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue: the calls that
acknowledge a received message, hide it for longer, or make it a dead letter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from escrowmq.base.answer import Answer, Refusal
from escrowmq.base.codes import Request
from escrowmq.base.fixed_limits import GRPC_ACKS_MAX
from escrowmq.proxy import receipt_handles
from escrowmq.proxy.call import Call
from escrowmq.proxy.gen import v2
from escrowmq.proxy.receipt_handles import ReceiptHandle
from escrowmq.proxy.result_codes import OK, Fault, code_of, common, fault_of, status, status_of
from escrowmq.proxy.service_context import Shared
from escrowmq.proxy.validation import group_name, next_invisible_ms, topic_name

_TO_DEAD_LETTERS: Final = "-1"


class Settling:
    """Serves the calls that name a received message by its receipt handle."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def ack(self, call: Call[v2.AckMessageRequest]) -> None:
        """Acknowledge messages, each by a request of its own."""
        request = call.request
        group, topic = group_name(request.group), topic_name(request.topic)
        entries = list(request.entries)
        if not entries:
            raise Fault(v2.INTERNAL_SERVER_ERROR, "ack message result is empty")
        if len(entries) > GRPC_ACKS_MAX:
            raise Fault(
                v2.PAYLOAD_TOO_LARGE,
                f"{len(entries)} acks in one call; {GRPC_ACKS_MAX} are allowed",
            )
        if len(entries) > 1:
            # Check the right once for all entries, not for each: a refusal costs more than an ack.
            call.judge(Request.ACK_MESSAGE, {"consumerGroup": group, "topic": topic})
            call.dialogue.note_cost(len(entries))
        results: list[v2.Status] = [OK] * len(entries)
        left = len(entries)

        def done(nth: int, result: v2.Status) -> None:
            nonlocal left
            results[nth] = result
            left -= 1
            if not left:
                call.answer(_acked(entries, results))

        for nth, entry in enumerate(entries):
            try:
                handle = self._read(entry.receipt_handle, call.now_ms)
            except Fault as fault:
                done(nth, status(fault.code, str(fault)))
            else:
                on_reply = _report_nth(done, nth)
                call.ask(Request.ACK_MESSAGE, handle.fields(group, topic), on_reply)

    def _read(self, text: str, now_ms: int) -> ReceiptHandle:
        shared = self._shared
        return receipt_handles.read(
            text, broker_name=shared.backend.name, leaps=shared.leaps, now_ms=now_ms
        )

    def change(self, call: Call[v2.ChangeInvisibleDurationRequest]) -> None:
        """Hide a message for another duration, counted from now; answer with its new handle."""
        request = call.request
        group, topic = group_name(request.group), topic_name(request.topic)
        handle = self._read(request.receipt_handle, call.now_ms)
        span_ms = next_invisible_ms(request.invisible_duration)
        # The Node.js client supports only exponential delays: it sends 0 for a failed message.
        span_ms = max(1, span_ms)

        def on_reply(reply: Answer | Refusal) -> None:
            if code_of(reply) != v2.OK:
                raise fault_of(reply)
            new = str(_changed(handle, reply.ext or {}))
            call.answer(v2.ChangeInvisibleDurationResponse(status=OK, receipt_handle=new))

        ext = handle.fields(group, topic) | {"invisibleTime": str(span_ms)}
        call.ask(Request.CHANGE_MESSAGE_INVISIBLETIME, ext, on_reply)

    def move_to_dead_letters(self, call: Call[v2.ForwardMessageToDeadLetterQueueRequest]) -> None:
        """Move a message to the dead letters."""
        request = call.request
        group, topic = group_name(request.group), topic_name(request.topic)
        handle = self._read(request.receipt_handle, call.now_ms)

        def done(result: v2.Status) -> None:
            call.answer(v2.ForwardMessageToDeadLetterQueueResponse(status=result))

        move_to_dead_letters(
            call, handle, group=group, topic=topic, message_id=request.message_id, done=done
        )


def move_to_dead_letters(
    call: Call[v2.ForwardMessageToDeadLetterQueueRequest] | Call[v2.ReceiveMessageRequest],
    handle: ReceiptHandle,
    *,
    group: str,
    topic: str,
    message_id: str,
    done: Callable[[v2.Status], None],
) -> None:
    """Store a message in the dead letters of a group, then acknowledge it, even if the call ends in
    between. Otherwise the message would be redelivered, and stored there twice."""

    def stored(reply: Answer | Refusal) -> None:
        if code_of(reply) != v2.OK:
            done(status_of(reply))
            return
        fields = handle.fields(group, topic)
        call.ask(Request.ACK_MESSAGE, fields, lambda acked: done(status_of(acked)), is_needed=True)

    ext = {
        "offset": str(handle.log_offset),
        "group": group,
        "delayLevel": _TO_DEAD_LETTERS,
        "originMsgId": message_id,
        "originTopic": topic,
        "maxReconsumeTimes": "0",
    }
    call.ask(Request.CONSUMER_SEND_MSG_BACK, ext, stored, is_needed=True)


def _report_nth(
    done: Callable[[int, v2.Status], None], nth: int
) -> Callable[[Answer | Refusal], None]:
    return lambda reply: done(nth, status_of(reply))


def _acked(entries: list[v2.AckMessageEntry], results: list[v2.Status]) -> v2.AckMessageResponse:
    response = v2.AckMessageResponse(status=common([result.code for result in results]))
    for entry, result in zip(entries, results, strict=True):
        response.entries.add(
            message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=result
        )
    return response


def _changed(handle: ReceiptHandle, ext: dict[str, str]) -> ReceiptHandle:
    """Return the handle for the message's new check point. A message of an orderly group stays in
    its batch, so its handle keeps the batch's start."""
    old = handle.receipt
    receipt = msgspec.structs.replace(
        old,
        start_offset=old.start_offset if old.is_order else old.queue_offset,
        pop_ms=int(ext["popTime"]),
        invisible_ms=int(ext["invisibleTime"]),
        revive_queue=int(ext["reviveQid"]),
    )
    return ReceiptHandle(receipt, handle.log_offset)
