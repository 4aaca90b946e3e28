"""Serves SendMessage and RecallMessage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from escrowmq.base.answer import Answer, Refusal, SendAnswer
from escrowmq.base.codes import Request, Response
from escrowmq.base.fixed_limits import GRPC_MESSAGES_MAX
from escrowmq.base.guests import MessageByValue, TopicFacts
from escrowmq.base.message import Property, SysFlag
from escrowmq.base.own_properties import WANTS_ID
from escrowmq.codec.hashes import java_hash
from escrowmq.proxy import validation
from escrowmq.proxy.gen import v2
from escrowmq.proxy.grpc_call import GrpcCall
from escrowmq.proxy.messages import (
    KINDS,
    DecompressionLimit,
    decompress_gzip_body,
    encode_property_text,
    message_type,
    record_properties,
)
from escrowmq.proxy.result_codes import (
    OK,
    CallFault,
    common_status,
    make_status,
    reply_fault,
    result_code,
)
from escrowmq.proxy.route_methods import MESSAGE_TYPES
from escrowmq.proxy.send_answer import encode_send_response
from escrowmq.proxy.service_context import ServiceContext

_STORED_LATE: Final = {
    Response.FLUSH_DISK_TIMEOUT: "FLUSH_DISK_TIMEOUT",
    Response.FLUSH_SLAVE_TIMEOUT: "FLUSH_SLAVE_TIMEOUT",
    Response.SLAVE_NOT_AVAILABLE: "SLAVE_NOT_AVAILABLE",
}
_MASK: Final = (1 << 64) - 1
_ANY_QUEUE: Final = -1
_UNPACKED_BITS: Final = 12
"""Decompressing 4 KiB (2 to the power of this) of a body counts as one unit of work."""

_BORN_MS_MAX: Final = 1 << 62


class _MessageToSend(MessageByValue, kw_only=True):
    """A message of a call, to be stored as a plain message or by a request."""

    message_id: str


class SendMethods:
    """Serves sends. Each message is stored by its own request, because one of several may be
    refused."""

    def __init__(self, shared: ServiceContext) -> None:
        self._shared = shared
        self._turns: dict[str, int] = {}
        """By topic: the number of the last turn, from which the next message's queue follows."""

    def send_messages(self, call: GrpcCall[v2.SendMessageRequest]) -> None:
        """Store all messages of a call; answer when the last one is stored."""
        messages = call.request.messages
        if len(messages) > GRPC_MESSAGES_MAX:
            raise CallFault(
                v2.PAYLOAD_TOO_LARGE,
                f"{len(messages)} messages in one call; {GRPC_MESSAGES_MAX} are allowed",
            )
        topic = validation.common_topic(messages)
        facts = self._shared.backend.topic_facts(topic)
        unpacking = DecompressionLimit()
        if len(messages) == 1:
            try:
                wish = self._message_to_send(call, messages[0], topic, facts, unpacking)
            except CallFault:
                _require_send_right(
                    call, topic
                )  # a client that may not send learns nothing about the topic
                raise
            self._send_one(call, wish)
        else:
            _require_send_right(call, topic)
            call.dialogue.add_cost(len(messages))
            _send_all(
                call,
                [self._message_to_send(call, one, topic, facts, unpacking) for one in messages],
            )

    def _message_to_send(
        self,
        call: GrpcCall[v2.SendMessageRequest],
        one: v2.Message,
        topic: str,
        facts: TopicFacts | None,
        unpacking: DecompressionLimit,
    ) -> _MessageToSend:
        """Validate a message of the call, and convert it to the message to be stored."""
        now_ms = call.now_ms
        size_max = self._shared.options.body_size_max
        body, system = one.body, one.system_properties
        validation.check_message(one, system, size=len(body), body_size_max=size_max, now_ms=now_ms)
        properties = record_properties(one, system, topic)
        _check_message_type(facts, system.message_type, message_type(properties))
        if system.body_encoding == v2.GZIP:
            _require_send_right(call, topic)
            body = decompress_gzip_body(body, unpacking, size_max=size_max)
            call.dialogue.add_cost(len(body) >> _UNPACKED_BITS)
        born_ms = int(properties.get(Property.BORN_TIMESTAMP, 0))
        return _MessageToSend(
            topic,
            self._choose_queue(topic, system.message_group, facts),
            encode_property_text(properties),
            body,
            born_ms if 0 < born_ms < _BORN_MS_MAX else now_ms,
            message_id=properties[Property.UNIQ_KEY],
            is_half=Property.TRAN_MSG in properties,
        )

    def _choose_queue(self, topic: str, message_group: str, facts: TopicFacts | None) -> int:
        """Return the queue for a message group, or the next queue in turn. If the number of queues
        is not known, return the number that lets the broker choose."""
        if facts is None or not facts.write_queues:
            return _ANY_QUEUE
        if message_group:
            return consistent_bucket(java_hash(message_group), facts.write_queues)
        if len(self._turns) > validation.TOPICS_KEPT_MAX:
            self._turns.clear()
        turn = self._turns[topic] = self._turns.get(topic, -1) + 1
        return turn % facts.write_queues

    def _send_one(self, call: GrpcCall[v2.SendMessageRequest], message: _MessageToSend) -> None:
        def on_put(place: int, transaction_id: str) -> None:
            if place < 0:
                call.dialogue.run_guarded(call, lambda: _request_one(call, message))
            elif call.is_open:
                message_id = message.message_id
                data = encode_send_response(message_id, transaction_id or message_id, offset=place)
                call.send_answer_bytes(data)

        if not self._shared.backend.put_plain(call.client.guest, message, on_put, call.now_ms):
            _request_one(call, message)

    def recall_message(self, call: GrpcCall[v2.RecallMessageRequest]) -> None:
        """Cancel a delayed message."""
        topic = validation.valid_topic_name(call.request.topic)
        if not call.request.recall_handle:
            raise CallFault(v2.BAD_REQUEST, "recall handle is empty")

        def on_reply(reply: Answer | Refusal) -> None:
            if reply.code == Response.ILLEGAL_OPERATION:
                # As in RocketMQ's proxy: clients have no error for the broker's code.
                raise CallFault(v2.INTERNAL_SERVER_ERROR, reply.remark or "recall failed")
            if result_code(reply) != v2.OK:
                raise reply_fault(reply)
            message_id = (reply.ext or {}).get("msgId", "")
            call.send_answer(v2.RecallMessageResponse(status=OK, message_id=message_id))

        ext = {
            "topic": topic,
            "recallHandle": call.request.recall_handle,
            "producerGroup": topic,
        }
        call.make_request(Request.RECALL_MESSAGE, ext, on_reply)


def _require_send_right(call: GrpcCall[v2.SendMessageRequest], topic: str) -> None:
    """Raise a Fault if the client may not send to the topic."""
    call.require_permission(Request.SEND_MESSAGE_V2, {"a": topic, "b": topic})


def _request_one(call: GrpcCall[v2.SendMessageRequest], message: _MessageToSend) -> None:
    def on_stored(reply: Answer | Refusal) -> None:
        if isinstance(reply, SendAnswer) and reply.code == Response.SUCCESS:
            more = reply.ext or {}
            data = encode_send_response(
                message.message_id,
                more.get("escrowId", message.message_id),
                offset=reply.queue_offset,
                recall_handle=more.get("recallHandle", ""),
            )
            call.send_answer_bytes(data)
        else:  # in the words of its refusal, not the name of its code alone
            entry = _result_entry(reply, message.message_id)
            call.send_answer(v2.SendMessageResponse(status=entry.status, entries=[entry]))

    call.make_request(Request.SEND_MESSAGE_V2, _send_fields(message), on_stored, message.body)


def _send_all(call: GrpcCall[v2.SendMessageRequest], messages: list[_MessageToSend]) -> None:
    entries: list[v2.SendResultEntry | None] = [None] * len(messages)
    left = len(messages)

    def on_stored(nth: int, reply: Answer | Refusal) -> None:
        nonlocal left
        entries[nth] = _result_entry(reply, messages[nth].message_id)
        left -= 1
        if not left:
            call.send_answer(_send_response([entry for entry in entries if entry is not None]))

    for nth, wish in enumerate(messages):
        call.make_request(
            Request.SEND_MESSAGE_V2, _send_fields(wish), _report_message(on_stored, nth), wish.body
        )


def _report_message(
    stored: Callable[[int, Answer | Refusal], None], nth: int
) -> Callable[[Answer | Refusal], None]:
    return lambda reply: stored(nth, reply)


def _check_message_type(facts: TopicFacts | None, asked: v2.MessageType, actual: str) -> None:
    """Raise a Fault if the topic does not accept a message's type. The type follows from the
    message's fields, not from what it declares."""
    if asked == v2.LITE:
        raise CallFault(
            v2.NOT_IMPLEMENTED,
            "messages of type LITE are not served here; send NORMAL to a topic of its own",
        )
    if facts is None:
        expected = "UNSPECIFIED"
    else:
        expected = "NORMAL" if facts.message_type == "UNSPECIFIED" else facts.message_type
        if KINDS[actual] in MESSAGE_TYPES.get(expected, (v2.NORMAL,)):
            return
    raise CallFault(
        v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        f"TopicMessageType validate failed, the expected type is {expected}, but actual type is "
        f"{actual}",
    )


def _send_fields(message: _MessageToSend) -> dict[str, str]:
    """Return the header fields of SEND_MESSAGE_V2 for a message."""
    found = {
        "a": message.topic,
        "b": message.topic,
        "c": "",
        "e": str(message.queue_id),
        "f": str(SysFlag.PREPARED if message.is_half else 0),
        "g": str(message.born_ms),
        "i": message.properties,
        "j": "0",
    }
    if message.is_half:
        found[WANTS_ID] = "true"
    return found


def consistent_bucket(value: int, count: int) -> int:
    """Compute Guava's consistent hash, by which RocketMQ's proxy chooses a message group's
    queue."""
    state = value & _MASK
    candidate = 0
    while True:
        state = state * 2862933555777941757 + 1 & _MASK
        top = state >> 33
        share = ((top if top < 1 << 31 else top - (1 << 32)) + 1) / (1 << 31)
        following = int((candidate + 1) / share)
        if not 0 <= following < count:
            return candidate
        candidate = following


def _result_entry(reply: Answer | Refusal, message_id: str) -> v2.SendResultEntry:
    late = _STORED_LATE.get(reply.code)
    if late is not None:
        return v2.SendResultEntry(
            status=make_status(result_code(reply), f"send message failed, sendStatus={late}")
        )
    if not isinstance(reply, SendAnswer) or reply.code != Response.SUCCESS:
        fault = reply_fault(reply)
        return v2.SendResultEntry(status=make_status(fault.code, str(fault)))
    more = reply.ext or {}
    return v2.SendResultEntry(
        status=OK,
        message_id=message_id,
        transaction_id=more.get("escrowId", message_id),
        offset=reply.queue_offset,
        recall_handle=more.get("recallHandle", ""),
    )


def _send_response(entries: list[v2.SendResultEntry]) -> v2.SendMessageResponse:
    result = common_status([entry.status.code for entry in entries])
    return v2.SendMessageResponse(status=result, entries=entries)
