"""Serves ReceiveMessage, a pop of a topic. The answer has a status, the messages, and the time."""

from __future__ import annotations

from typing import Final

from escrowmq.base.answer import Answer, Refusal
from escrowmq.base.codes import Request
from escrowmq.base.fixed_limits import LONG_MAX, POP_MESSAGES_MAX
from escrowmq.base.message import Property, StoredMessage
from escrowmq.codec.pop_receipt import PopReceipt, decode_offset_list, decode_receipt, retry_kind
from escrowmq.codec.properties import parse_number
from escrowmq.codec.record import decode_records
from escrowmq.errors import RemoteProtocolError
from escrowmq.proxy.gen import v2
from escrowmq.proxy.grpc_call import GrpcCall
from escrowmq.proxy.messages import DecompressionLimit, to_client_message
from escrowmq.proxy.receipt_handles import ReceiptHandle
from escrowmq.proxy.receipt_methods import store_dead_letter
from escrowmq.proxy.result_codes import OK, CallFault, make_status, reply_fault, result_code
from escrowmq.proxy.service_context import ServiceContext
from escrowmq.proxy.validation import valid_group_name, valid_invisible_ms, valid_topic_name

RENEWED_INVISIBLE_MS: Final = 60_000
"""The invisible time of messages that stay invisible until the consumer has finished them. The
broker renews it repeatedly."""

POLL_MIN_MS, POLL_MAX_MS = 5_000, 20_000
_REQUEST_MS: Final = 3_000
_ANY_QUEUE: Final = "-1"
_FROM_LAST: Final = "1"
_ALL: Final = "*"


class ReceiveMethods:
    """Serves calls of ReceiveMessage."""

    def __init__(self, shared: ServiceContext) -> None:
        self._shared = shared

    def receive_messages(self, call: GrpcCall[v2.ReceiveMessageRequest]) -> None:
        """Return messages as soon as there are some."""
        request = call.request
        topic, group = (
            valid_topic_name(request.message_queue.topic),
            valid_group_name(request.group),
        )
        broker = request.message_queue.broker.name
        if broker and broker != self._shared.backend.name:
            text = f"the queue is of broker {broker[:100]}; this is {self._shared.backend.name}"
            raise CallFault(v2.BAD_REQUEST, text)
        if not request.batch_size > 0:
            raise CallFault(
                v2.BAD_REQUEST, f"batch size is {request.batch_size}; 1 or more is expected"
            )
        known = self._shared.backend.group_facts(group)
        ext = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": _ANY_QUEUE,
            "maxMsgNums": str(min(request.batch_size, POP_MESSAGES_MAX)),
            "invisibleTime": str(
                RENEWED_INVISIBLE_MS
                if request.auto_renew
                else valid_invisible_ms(request.invisible_duration)
            ),
            "pollTime": str(poll_timeout_ms(call)),
            "bornTime": str(call.now_ms),
            "initMode": _FROM_LAST,
            "order": str(known is not None and known.is_orderly).lower(),
        }
        kind, expression = filter_expression(request.filter_expression)
        ext["expType"], ext["exp"] = kind, expression
        if request.attempt_id:
            ext["attemptId"] = request.attempt_id
        if request.auto_renew:
            ext["escrowRenew"] = "true"
        attempts_max = known.retries_max + 1 if known is not None else LONG_MAX
        found = _PopAnswer(call, topic, group, self._shared.backend.name, attempts_max)
        call.make_request(Request.POP_MESSAGE, ext, found.on_reply)

    def refuse_receive(self, call: GrpcCall[v2.ReceiveMessageRequest], fault: CallFault) -> None:
        """Refuse the call with a status only."""
        end_answer(call, make_status(fault.code, str(fault)), [], call.now_ms)


def end_answer(
    call: GrpcCall[v2.ReceiveMessageRequest],
    result: v2.Status,
    messages: list[v2.Message],
    now_ms: int,
) -> None:
    """End a call: send the status, the messages and, last, the time."""
    call.send_part(v2.ReceiveMessageResponse(status=result))
    for message in messages:
        call.send_part(v2.ReceiveMessageResponse(message=message))
    last = v2.ReceiveMessageResponse()
    last.delivery_timestamp.FromMilliseconds(now_ms)
    call.send_part(last)
    call.finish()


def poll_timeout_ms(call: GrpcCall[v2.ReceiveMessageRequest]) -> int:
    """Return how long a call may wait for messages: as requested, within its deadline."""
    request, left_ms = call.request, call.time_left_ms
    if request.HasField("long_polling_timeout"):
        wanted = request.long_polling_timeout.ToMilliseconds()
    elif left_ms is None:
        wanted = POLL_MAX_MS
    else:
        settings = call.client.settings
        own_ms = settings.request_timeout.ToMilliseconds() if settings is not None else 0
        wanted = left_ms - (own_ms or _REQUEST_MS) // 2
    wanted = min(max(wanted, POLL_MIN_MS), POLL_MAX_MS)
    if left_ms is None or wanted <= left_ms:
        return wanted
    if left_ms >= POLL_MIN_MS:
        return left_ms
    raise CallFault(
        v2.ILLEGAL_POLLING_TIME,
        "The deadline time remaining is not enough for polling, please check network condition",
    )


def filter_expression(expression: v2.FilterExpression) -> tuple[str, str]:
    """Return type and text of a filter, under RocketMQ's names."""
    if expression.type == v2.SQL:
        return "SQL92", expression.expression
    return "TAG", expression.expression.strip() or _ALL


def wanted_tags(expression: v2.FilterExpression) -> frozenset[str]:
    """Return the wanted tags; an empty set for all. The front compares tags itself, because the
    broker compares only their hashes, and several tags may have the same hash."""
    kind, text = filter_expression(expression)
    if kind != "TAG" or text == _ALL:
        return frozenset()
    return frozenset(filter(None, (tag.strip() for tag in text.split("||"))))


class _PopAnswer:
    """The answer to one pop: passes its messages to the client."""

    def __init__(
        self,
        call: GrpcCall[v2.ReceiveMessageRequest],
        topic: str,
        group: str,
        broker_name: str,
        attempts_max: int,
    ) -> None:
        self._call = call
        self._topic = topic
        self._group = group
        self._broker_name = broker_name
        self._attempts_max = attempts_max
        self._tags = wanted_tags(call.request.filter_expression)

    def on_reply(self, reply: Answer | Refusal) -> None:
        """Send the result of the pop to the client."""
        code = result_code(reply)
        if code == v2.MESSAGE_NOT_FOUND:
            self._end_answer(make_status(code, "no new message"), [], {})
        elif code != v2.OK or not isinstance(reply, Answer):
            fault = reply_fault(reply)
            text = "polling full" if reply.remark == "NO_MESSAGE_IN_QUEUE" else str(fault)
            self._end_answer(make_status(fault.code, text), [], {})
        else:
            ext = reply.ext or {}
            messages = self._client_messages(ext, b"".join([reply.body, *reply.chunks]))
            result = OK if messages else make_status(v2.MESSAGE_NOT_FOUND, "no match message")
            self._end_answer(result, messages, ext)

    def _end_answer(
        self, result: v2.Status, messages: list[v2.Message], ext: dict[str, str]
    ) -> None:
        now_ms = parse_number(ext.get("popTime"), most=LONG_MAX) or self._call.now_ms
        end_answer(self._call, result, messages, now_ms)

    def _client_messages(self, ext: dict[str, str], records: bytes) -> list[v2.Message]:
        starts = decode_offset_list(ext.get("startOffsetInfo", ""))
        counts = decode_offset_list(ext.get("orderCountInfo", ""))
        found, unpacking = [], DecompressionLimit()
        for stored in decode_records(records):
            if counts:
                _set_delivery_count(stored, counts)
            handle = self._receipt_handle(stored, starts, ext)
            if self._tags and stored.properties.get(Property.TAGS) not in self._tags:
                # The message has another tag with the same hash; the broker compares only hashes.
                fields = handle.ack_fields(self._group, self._topic)
                self._call.make_one_way_request(Request.ACK_MESSAGE, fields)
            elif stored.reconsume_times >= self._attempts_max:
                self._move_to_dead_letters(stored, handle)
            else:
                found.append(to_client_message(stored, handle=str(handle), unpacking=unpacking))
        return found

    def _move_to_dead_letters(self, stored: StoredMessage, handle: ReceiptHandle) -> None:
        """Move a message to the dead letters. If that fails, the next delivery tries again. A
        message whose invisible time is renewed is made visible for that, because its consumer never
        gets it."""

        def on_result(result: v2.Status) -> None:
            if result.code != v2.OK and handle.is_renewed:
                fields = handle.ack_fields(self._group, self._topic)
                fields["invisibleTime"] = str(RENEWED_INVISIBLE_MS)
                self._call.make_one_way_request(Request.CHANGE_MESSAGE_INVISIBLETIME, fields)

        store_dead_letter(
            self._call,
            handle,
            group=self._group,
            topic=self._topic,
            message_id=stored.properties.get(Property.UNIQ_KEY, ""),
            on_result=on_result,
        )

    def _receipt_handle(
        self, stored: StoredMessage, starts: dict[tuple[int, str], list[int]], ext: dict[str, str]
    ) -> ReceiptHandle:
        """Return the handle of a message. Redelivered messages carry their receipt; for others it
        is built from lists in the answer."""
        is_renewed = self._call.request.auto_renew
        carried = stored.properties.get(Property.POP_CK)
        if carried:
            return ReceiptHandle(decode_receipt(carried), stored.log_offset, is_renewed)
        kind = retry_kind(stored.topic)
        try:
            receipt = PopReceipt(
                start_offset=starts[kind, str(stored.queue_id)][0],
                pop_ms=int(ext["popTime"]),
                invisible_ms=int(ext["invisibleTime"]),
                revive_queue=int(ext["reviveQid"]),
                kind=kind,
                broker_name=self._broker_name,
                queue_id=stored.queue_id,
                queue_offset=stored.queue_offset,
            )
        except (KeyError, ValueError, IndexError) as error:
            raise RemoteProtocolError(
                f"the pop's answer does not say where queue {stored.queue_id} begins: {error}"
            ) from error
        return ReceiptHandle(receipt, stored.log_offset, is_renewed)


def _set_delivery_count(stored: StoredMessage, counts: dict[tuple[int, str], list[int]]) -> None:
    """Set how often a message was delivered before. For an orderly group the pop's answer says it,
    not the record, because the message stays in its queue."""
    kind, queue_id = retry_kind(stored.topic), stored.queue_id
    own = counts.get((kind, f"qo{queue_id}%{stored.queue_offset}"))
    count = (own or counts.get((kind, str(queue_id))) or [0])[0]
    if count > 0:
        stored.reconsume_times = count
