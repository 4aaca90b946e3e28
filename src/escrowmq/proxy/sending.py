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
from escrowmq.proxy.call import Call
from escrowmq.proxy.gen import v2
from escrowmq.proxy.messages import (
    KINDS,
    Unpacking,
    plain_body,
    properties_of,
    text_of,
    type_of,
)
from escrowmq.proxy.result_codes import OK, Fault, code_of, common, fault_of, status
from escrowmq.proxy.routes import TYPES
from escrowmq.proxy.send_answer import one_sent
from escrowmq.proxy.service_context import Shared

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


class _Wish(MessageByValue, kw_only=True):
    """A message of a call, to be stored as a plain message or by a request."""

    message_id: str


class Sending:
    """Serves sends. Each message is stored by its own request, because one of several may be
    refused."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._turns: dict[str, int] = {}
        """By topic: the number of the last turn, from which the next message's queue follows."""

    def send(self, call: Call[v2.SendMessageRequest]) -> None:
        """Store all messages of a call; answer when the last one is stored."""
        messages = call.request.messages
        if len(messages) > GRPC_MESSAGES_MAX:
            raise Fault(
                v2.PAYLOAD_TOO_LARGE,
                f"{len(messages)} messages in one call; {GRPC_MESSAGES_MAX} are allowed",
            )
        topic = validation.send_topic(messages)
        facts = self._shared.backend.topic_facts(topic)
        unpacking = Unpacking()
        if len(messages) == 1:
            try:
                wish = self._wish(call, messages[0], topic, facts, unpacking)
            except Fault:
                _judge(call, topic)  # a client that may not send learns nothing about the topic
                raise
            self._send_one(call, wish)
        else:
            _judge(call, topic)
            call.dialogue.note_cost(len(messages))
            _send_all(call, [self._wish(call, one, topic, facts, unpacking) for one in messages])

    def _wish(
        self,
        call: Call[v2.SendMessageRequest],
        one: v2.Message,
        topic: str,
        facts: TopicFacts | None,
        unpacking: Unpacking,
    ) -> _Wish:
        """Validate a message of the call, and convert it to the message to be stored."""
        now_ms = call.now_ms
        size_max = self._shared.options.body_size_max
        body, system = one.body, one.system_properties
        validation.message(one, system, size=len(body), body_size_max=size_max, now_ms=now_ms)
        properties = properties_of(one, system, topic)
        _judge_type(facts, system.message_type, type_of(properties))
        if system.body_encoding == v2.GZIP:
            _judge(call, topic)
            body = plain_body(body, unpacking, size_max=size_max)
            call.dialogue.note_cost(len(body) >> _UNPACKED_BITS)
        born_ms = int(properties.get(Property.BORN_TIMESTAMP, 0))
        return _Wish(
            topic,
            self._queue(topic, system.message_group, facts),
            text_of(properties),
            body,
            born_ms if 0 < born_ms < _BORN_MS_MAX else now_ms,
            message_id=properties[Property.UNIQ_KEY],
            is_half=Property.TRAN_MSG in properties,
        )

    def _queue(self, topic: str, message_group: str, facts: TopicFacts | None) -> int:
        """Return the queue for a message group, or the next queue in turn. If the number of queues
        is not known, return the number that lets the broker choose."""
        if facts is None or not facts.write_queues:
            return _ANY_QUEUE
        if message_group:
            return bucket(java_hash(message_group), facts.write_queues)
        if len(self._turns) > validation.TOPICS_KEPT_MAX:
            self._turns.clear()
        turn = self._turns[topic] = self._turns.get(topic, -1) + 1
        return turn % facts.write_queues

    def _send_one(self, call: Call[v2.SendMessageRequest], wish: _Wish) -> None:
        def put(place: int, transaction_id: str) -> None:
            if place < 0:
                call.dialogue.guard(call, lambda: _ask_for_one(call, wish))
            elif call.is_open:
                message_id = wish.message_id
                data = one_sent(message_id, transaction_id or message_id, offset=place)
                call.answer_bytes(data)

        if not self._shared.backend.put_plain(call.client.guest, wish, put, call.now_ms):
            _ask_for_one(call, wish)

    def recall(self, call: Call[v2.RecallMessageRequest]) -> None:
        """Cancel a delayed message."""
        topic = validation.topic_name(call.request.topic)
        if not call.request.recall_handle:
            raise Fault(v2.BAD_REQUEST, "recall handle is empty")

        def on_reply(reply: Answer | Refusal) -> None:
            if reply.code == Response.ILLEGAL_OPERATION:
                # As in RocketMQ's proxy: clients have no error for the broker's code.
                raise Fault(v2.INTERNAL_SERVER_ERROR, reply.remark or "recall failed")
            if code_of(reply) != v2.OK:
                raise fault_of(reply)
            message_id = (reply.ext or {}).get("msgId", "")
            call.answer(v2.RecallMessageResponse(status=OK, message_id=message_id))

        ext = {
            "topic": topic,
            "recallHandle": call.request.recall_handle,
            "producerGroup": topic,
        }
        call.ask(Request.RECALL_MESSAGE, ext, on_reply)


def _judge(call: Call[v2.SendMessageRequest], topic: str) -> None:
    """Raise a Fault if the client may not send to the topic."""
    call.judge(Request.SEND_MESSAGE_V2, {"a": topic, "b": topic})


def _ask_for_one(call: Call[v2.SendMessageRequest], wish: _Wish) -> None:
    def stored(reply: Answer | Refusal) -> None:
        if isinstance(reply, SendAnswer) and reply.code == Response.SUCCESS:
            more = reply.ext or {}
            data = one_sent(
                wish.message_id,
                more.get("escrowId", wish.message_id),
                offset=reply.queue_offset,
                recall_handle=more.get("recallHandle", ""),
            )
            call.answer_bytes(data)
        else:  # in the words of its refusal, not the name of its code alone
            entry = _entry(reply, wish.message_id)
            call.answer(v2.SendMessageResponse(status=entry.status, entries=[entry]))

    call.ask(Request.SEND_MESSAGE_V2, _fields(wish), stored, wish.body)


def _send_all(call: Call[v2.SendMessageRequest], wishes: list[_Wish]) -> None:
    entries: list[v2.SendResultEntry | None] = [None] * len(wishes)
    left = len(wishes)

    def stored(nth: int, reply: Answer | Refusal) -> None:
        nonlocal left
        entries[nth] = _entry(reply, wishes[nth].message_id)
        left -= 1
        if not left:
            call.answer(_response([entry for entry in entries if entry is not None]))

    for nth, wish in enumerate(wishes):
        call.ask(Request.SEND_MESSAGE_V2, _fields(wish), _report_nth(stored, nth), wish.body)


def _report_nth(
    stored: Callable[[int, Answer | Refusal], None], nth: int
) -> Callable[[Answer | Refusal], None]:
    return lambda reply: stored(nth, reply)


def _judge_type(facts: TopicFacts | None, asked: v2.MessageType, actual: str) -> None:
    """Raise a Fault if the topic does not accept a message's type. The type follows from the
    message's fields, not from what it declares."""
    if asked == v2.LITE:
        raise Fault(
            v2.NOT_IMPLEMENTED,
            "messages of type LITE are not served here; send NORMAL to a topic of its own",
        )
    if facts is None:
        expected = "UNSPECIFIED"
    else:
        expected = "NORMAL" if facts.message_type == "UNSPECIFIED" else facts.message_type
        if KINDS[actual] in TYPES.get(expected, (v2.NORMAL,)):
            return
    raise Fault(
        v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        f"TopicMessageType validate failed, the expected type is {expected}, but actual type is "
        f"{actual}",
    )


def _fields(wish: _Wish) -> dict[str, str]:
    """Return the header fields of SEND_MESSAGE_V2 for a message."""
    found = {
        "a": wish.topic,
        "b": wish.topic,
        "c": "",
        "e": str(wish.queue_id),
        "f": str(SysFlag.PREPARED if wish.is_half else 0),
        "g": str(wish.born_ms),
        "i": wish.properties,
        "j": "0",
    }
    if wish.is_half:
        found[WANTS_ID] = "true"
    return found


def bucket(value: int, count: int) -> int:
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


def _entry(reply: Answer | Refusal, message_id: str) -> v2.SendResultEntry:
    late = _STORED_LATE.get(reply.code)
    if late is not None:
        return v2.SendResultEntry(
            status=status(code_of(reply), f"send message failed, sendStatus={late}")
        )
    if not isinstance(reply, SendAnswer) or reply.code != Response.SUCCESS:
        fault = fault_of(reply)
        return v2.SendResultEntry(status=status(fault.code, str(fault)))
    more = reply.ext or {}
    return v2.SendResultEntry(
        status=OK,
        message_id=message_id,
        transaction_id=more.get("escrowId", message_id),
        offset=reply.queue_offset,
        recall_handle=more.get("recallHandle", ""),
    )


def _response(entries: list[v2.SendResultEntry]) -> v2.SendMessageResponse:
    result = common([entry.status.code for entry in entries])
    return v2.SendMessageResponse(status=result, entries=entries)
