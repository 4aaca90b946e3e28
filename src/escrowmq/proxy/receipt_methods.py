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
from escrowmq.proxy.gen import v2
from escrowmq.proxy.grpc_call import GrpcCall
from escrowmq.proxy.receipt_handles import ReceiptHandle
from escrowmq.proxy.result_codes import (
    OK,
    CallFault,
    common_status,
    make_status,
    reply_fault,
    reply_status,
    result_code,
)
from escrowmq.proxy.service_context import ServiceContext
from escrowmq.proxy.validation import valid_group_name, valid_next_invisible_ms, valid_topic_name

_TO_DEAD_LETTERS: Final = "-1"
_COPY_COST: Final = 100
"""Units of work of a message that is read and stored again: 2 ms for one of 4 MiB. Its size is not
known before."""


class ReceiptMethods:
    """Serves the calls that name a received message by its receipt handle."""

    def __init__(self, shared: ServiceContext) -> None:
        self._shared = shared

    def ack_messages(self, call: GrpcCall[v2.AckMessageRequest]) -> None:
        """Acknowledge messages, each by a request of its own."""
        request = call.request
        group, topic = valid_group_name(request.group), valid_topic_name(request.topic)
        entries = list(request.entries)
        if not entries:
            raise CallFault(v2.INTERNAL_SERVER_ERROR, "ack message result is empty")
        if len(entries) > GRPC_ACKS_MAX:
            raise CallFault(
                v2.PAYLOAD_TOO_LARGE,
                f"{len(entries)} acks in one call; {GRPC_ACKS_MAX} are allowed",
            )
        if len(entries) > 1:
            # Check the right once for all entries, not for each: a refusal costs more than an ack.
            call.require_permission(Request.ACK_MESSAGE, {"consumerGroup": group, "topic": topic})
            call.dialogue.add_cost(len(entries))
        results: list[v2.Status] = [OK] * len(entries)
        left = len(entries)

        def on_result(nth: int, result: v2.Status) -> None:
            nonlocal left
            results[nth] = result
            left -= 1
            if not left:
                call.send_answer(_ack_response(entries, results))

        for nth, entry in enumerate(entries):
            try:
                handle = self._parse_handle(entry.receipt_handle, call.now_ms)
            except CallFault as fault:
                on_result(nth, make_status(fault.code, str(fault)))
            else:
                on_reply = _report_entry(on_result, nth)
                call.make_request(Request.ACK_MESSAGE, handle.ack_fields(group, topic), on_reply)

    def _parse_handle(self, text: str, now_ms: int) -> ReceiptHandle:
        shared = self._shared
        return receipt_handles.parse_receipt_handle(
            text, broker_name=shared.backend.name, leaps=shared.leaps, now_ms=now_ms
        )

    def change_invisible_time(self, call: GrpcCall[v2.ChangeInvisibleDurationRequest]) -> None:
        """Hide a message for another duration, counted from now; answer with its new handle."""
        request = call.request
        group, topic = valid_group_name(request.group), valid_topic_name(request.topic)
        handle = self._parse_handle(request.receipt_handle, call.now_ms)
        span_ms = valid_next_invisible_ms(request.invisible_duration)
        # The Node.js client supports only exponential delays: it sends 0 for a failed message.
        span_ms = max(1, span_ms)

        def on_reply(reply: Answer | Refusal) -> None:
            if result_code(reply) != v2.OK:
                raise reply_fault(reply)
            new = str(_changed_handle(handle, reply.ext or {}))
            call.send_answer(v2.ChangeInvisibleDurationResponse(status=OK, receipt_handle=new))

        ext = handle.ack_fields(group, topic) | {"invisibleTime": str(span_ms)}
        call.make_request(Request.CHANGE_MESSAGE_INVISIBLETIME, ext, on_reply)

    def move_to_dead_letters(
        self, call: GrpcCall[v2.ForwardMessageToDeadLetterQueueRequest]
    ) -> None:
        """Move a message to the dead letters."""
        request = call.request
        group, topic = valid_group_name(request.group), valid_topic_name(request.topic)
        handle = self._parse_handle(request.receipt_handle, call.now_ms)
        call.dialogue.add_cost(_COPY_COST)

        def on_result(result: v2.Status) -> None:
            call.send_answer(v2.ForwardMessageToDeadLetterQueueResponse(status=result))

        store_dead_letter(
            call,
            handle,
            group=group,
            topic=topic,
            message_id=request.message_id,
            on_result=on_result,
        )


def store_dead_letter(
    call: GrpcCall[v2.ForwardMessageToDeadLetterQueueRequest] | GrpcCall[v2.ReceiveMessageRequest],
    handle: ReceiptHandle,
    *,
    group: str,
    topic: str,
    message_id: str,
    on_result: Callable[[v2.Status], None],
) -> None:
    """Store a message in the dead letters of a group, then acknowledge it, even if the call ends in
    between. Otherwise the message would be redelivered, and stored there twice."""

    def on_stored(reply: Answer | Refusal) -> None:
        if result_code(reply) != v2.OK:
            on_result(reply_status(reply))
            return
        fields = handle.ack_fields(group, topic)
        call.make_request(
            Request.ACK_MESSAGE,
            fields,
            lambda acked: on_result(reply_status(acked)),
            is_needed=True,
        )

    ext = {
        "offset": str(handle.log_offset),
        "group": group,
        "delayLevel": _TO_DEAD_LETTERS,
        "originMsgId": message_id,
        "originTopic": topic,
        "maxReconsumeTimes": "0",
    }
    call.make_request(Request.CONSUMER_SEND_MSG_BACK, ext, on_stored, is_needed=True)


def _report_entry(
    done: Callable[[int, v2.Status], None], nth: int
) -> Callable[[Answer | Refusal], None]:
    return lambda reply: done(nth, reply_status(reply))


def _ack_response(
    entries: list[v2.AckMessageEntry], results: list[v2.Status]
) -> v2.AckMessageResponse:
    response = v2.AckMessageResponse(status=common_status([result.code for result in results]))
    for entry, result in zip(entries, results, strict=True):
        response.entries.add(
            message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=result
        )
    return response


def _changed_handle(handle: ReceiptHandle, ext: dict[str, str]) -> ReceiptHandle:
    """Return the handle for the message's new check point. A message of an orderly group stays in
    its batch, so its handle keeps the batch's start."""
    old = handle.receipt
    receipt = msgspec.structs.replace(
        old,
        start_offset=old.start_offset if old.is_orderly else old.queue_offset,
        pop_ms=int(ext["popTime"]),
        invisible_ms=int(ext["invisibleTime"]),
        revive_queue=int(ext["reviveQid"]),
    )
    return ReceiptHandle(receipt, handle.log_offset)
