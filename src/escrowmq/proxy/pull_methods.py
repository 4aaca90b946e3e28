"""Serves PullMessage and the calls about offsets. They are in the protocol, but RocketMQ's proxy
does not serve them. Autoscalers need the offsets, and readers that do not pop for a group need the
messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from escrowmq.base.answer import Answer, PullAnswer, Refusal
from escrowmq.base.codes import EMPTY_PULLS, Request, Response
from escrowmq.base.fixed_limits import LONG_MAX
from escrowmq.base.message import Property, StoredMessage
from escrowmq.codec.properties import parse_number
from escrowmq.codec.record import decode_records
from escrowmq.proxy.gen import v2
from escrowmq.proxy.grpc_call import GrpcCall
from escrowmq.proxy.messages import DecompressionLimit, to_client_message
from escrowmq.proxy.receive_methods import POLL_MAX_MS, filter_expression, wanted_tags
from escrowmq.proxy.result_codes import OK, CallFault, make_status, reply_fault, result_code
from escrowmq.proxy.service_context import ServiceContext
from escrowmq.proxy.validation import timestamp_ms, valid_group_name, valid_topic_name

_COUNT_MAX: Final = 32
_SUSPEND, _SUBSCRIPTION = 2, 4
_MARGIN_MS: Final = 500
"""A pull is answered this many milliseconds before its call's deadline."""

Place = dict[str, str]


class PullMethods:
    """Serves the calls that read messages by offset, and those that read or commit offsets."""

    def __init__(self, shared: ServiceContext) -> None:
        self._shared = shared

    def pull_messages(self, call: GrpcCall[v2.PullMessageRequest]) -> None:
        """Send messages of one queue from an offset on: a status, the messages, the next offset."""
        request = call.request
        group = valid_group_name(request.group)
        place = self._queue_and_group(call, Request.PULL_MESSAGE, request.message_queue, group)
        wait_ms = min(request.long_polling_timeout.ToMilliseconds(), POLL_MAX_MS)
        if call.time_left_ms is not None:
            wait_ms = min(wait_ms, call.time_left_ms - _MARGIN_MS)
        kind, expression = filter_expression(request.filter_expression)
        ext = {
            **place,
            "queueOffset": str(request.offset),
            "maxMsgNums": str(min(request.batch_size, _COUNT_MAX) if request.batch_size else 1),
            "sysFlag": str(_SUBSCRIPTION | (_SUSPEND if wait_ms > 0 else 0)),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(max(0, wait_ms)),
            "subscription": expression,
            "expressionType": kind,
            "subVersion": str(call.now_ms),
        }

        tags = wanted_tags(request.filter_expression)

        def on_reply(reply: Answer | Refusal) -> None:
            next_offset = _next_offset(reply)
            if next_offset is None:
                raise reply_fault(reply)
            _send_messages(
                call,
                _wanted_messages(reply, tags),
                next_offset,
                is_reset=isinstance(reply, Refusal),
            )

        call.make_request(Request.PULL_MESSAGE, ext, on_reply)

    def refuse_pull(self, call: GrpcCall[v2.PullMessageRequest], fault: CallFault) -> None:
        """Refuse a pull with a status only."""
        call.send_part(v2.PullMessageResponse(status=make_status(fault.code, str(fault))))
        call.finish()

    def update_offset(self, call: GrpcCall[v2.UpdateOffsetRequest]) -> None:
        """Commit a group's offset."""
        request = call.request
        if request.offset < 0:
            raise CallFault(
                v2.ILLEGAL_OFFSET, f"the offset is {request.offset}; 0 or more is expected"
            )
        group, code = valid_group_name(request.group), Request.UPDATE_CONSUMER_OFFSET
        ext = self._queue_and_group(call, code, request.message_queue, group)
        ext["commitOffset"] = str(request.offset)

        def on_reply(reply: Answer | Refusal) -> None:
            if result_code(reply) != v2.OK:
                raise reply_fault(reply)
            call.send_answer(v2.UpdateOffsetResponse(status=OK))

        call.make_request(code, ext, on_reply)

    def get_offset(self, call: GrpcCall[v2.GetOffsetRequest]) -> None:
        """Answer with a group's offset."""
        group, code = valid_group_name(call.request.group), Request.QUERY_CONSUMER_OFFSET
        ext = self._queue_and_group(call, code, call.request.message_queue, group)
        ext["setZeroIfNotFound"] = "false"

        def send_offset(offset: int) -> None:
            call.send_answer(v2.GetOffsetResponse(status=OK, offset=offset))

        call.make_request(code, ext, _offset_callback(send_offset))

    def query_offset(self, call: GrpcCall[v2.QueryOffsetRequest]) -> None:
        """Answer with the first offset of a queue, the offset after its last message, or the first
        offset since a time."""
        request = call.request
        more: dict[str, str] = {}
        match request.query_offset_policy:
            case v2.BEGINNING:
                code = Request.GET_MIN_OFFSET
            case v2.END:
                code = Request.GET_MAX_OFFSET
            case v2.TIMESTAMP if request.HasField("timestamp"):
                code = Request.SEARCH_OFFSET_BY_TIMESTAMP
                more["timestamp"] = str(timestamp_ms(request.timestamp, v2.BAD_REQUEST))
            case policy:
                raise CallFault(v2.BAD_REQUEST, f"policy {policy}: BEGINNING, END, or a TIMESTAMP")

        ext = self._queue_and_group(call, code, request.message_queue) | more

        def send_offset(offset: int) -> None:
            call.send_answer(v2.QueryOffsetResponse(status=OK, offset=offset))

        call.make_request(code, ext, _offset_callback(send_offset))

    def _queue_and_group(
        self, call: GrpcCall[Any], code: int, queue: v2.MessageQueue, group: str = ""
    ) -> Place:
        """Return the queue and the group of a call. Rights are checked first, so that a client
        without them does not learn how many queues there are."""
        topic = valid_topic_name(queue.topic)
        place = {"topic": topic, "queueId": str(queue.id)}
        if group:
            place["consumerGroup"] = group
        name = queue.broker.name
        if name and name != self._shared.backend.name:
            text = f"the queue is of broker {name[:100]}; this is {self._shared.backend.name}"
            raise CallFault(v2.BAD_REQUEST, text)
        facts = self._shared.backend.topic_facts(topic)
        if facts is not None and not 0 <= queue.id < facts.read_queues:
            call.require_permission(code, dict(place))
            text = f"topic {topic} has queues 0 to {facts.read_queues - 1}, and no {queue.id}"
            raise CallFault(v2.BAD_REQUEST, text)
        return place


def _next_offset(reply: Answer | Refusal) -> int | None:
    """Return the offset at which a reader continues; None if its pull was refused. After operators
    have reset the group, the broker once refuses with the new offset, and that is returned."""
    if isinstance(reply, PullAnswer):
        return reply.next_offset if reply.code in EMPTY_PULLS | {Response.SUCCESS} else None
    if reply.code != Response.PULL_OFFSET_MOVED:
        return None
    return parse_number((reply.ext or {}).get("nextBeginOffset"), most=LONG_MAX)


def _wanted_messages(reply: Answer | Refusal, tags: frozenset[str]) -> list[StoredMessage]:
    """Return the messages of an answer that have one of the wanted tags."""
    if not isinstance(reply, PullAnswer) or reply.code != Response.SUCCESS:
        return []
    found = decode_records(b"".join([reply.body, *reply.chunks]))
    if not tags:
        return list(found)
    return [stored for stored in found if stored.properties.get(Property.TAGS) in tags]


def _send_messages(
    call: GrpcCall[v2.PullMessageRequest],
    found: list[StoredMessage],
    next_offset: int,
    *,
    is_reset: bool,
) -> None:
    text = "the group's offset was reset" if is_reset else "no new message"
    result = OK if found else make_status(v2.MESSAGE_NOT_FOUND, text)
    call.send_part(v2.PullMessageResponse(status=result))
    unpacking = DecompressionLimit()
    for stored in found:
        message = to_client_message(stored, unpacking=unpacking)
        call.send_part(v2.PullMessageResponse(message=message))
    call.send_part(v2.PullMessageResponse(next_offset=next_offset))
    call.finish()


def _offset_callback(answer: Callable[[int], None]) -> Callable[[Answer | Refusal], None]:
    def on_reply(reply: Answer | Refusal) -> None:
        if result_code(reply) != v2.OK:
            raise reply_fault(reply)
        offset = parse_number((reply.ext or {}).get("offset"), most=LONG_MAX)
        if offset is None:
            raise CallFault(v2.OFFSET_NOT_FOUND, "there is no such offset")
        answer(offset)

    return on_reply
