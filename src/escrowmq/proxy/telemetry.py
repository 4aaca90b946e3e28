"""Serves Telemetry: a client sends its settings, and receives requests as long as the stream is
open.

A new stream replaces the one before; the client's registrations stay."""

from __future__ import annotations

import logging
import re
from typing import Final

from escrowmq.base.answer import Answer, Refusal
from escrowmq.base.codes import Request, Response
from escrowmq.base.fixed_limits import (
    GRPC_SETTINGS_SIZE_MAX,
    HOST_NAME_SIZE_MAX,
    PUBLISHED_TOPICS_MAX,
)
from escrowmq.codec import fastjson
from escrowmq.codec.record import decode_record
from escrowmq.http2.grpc_metadata import Status
from escrowmq.proxy.call import Call, Method
from escrowmq.proxy.client_settings import completed
from escrowmq.proxy.clients import Client
from escrowmq.proxy.gen import v2
from escrowmq.proxy.heartbeats import body_of
from escrowmq.proxy.messages import message_of
from escrowmq.proxy.result_codes import OK, Fault, code_of, fault_of
from escrowmq.proxy.service_context import Shared
from escrowmq.proxy.validation import group_name, judge_endpoints, topic_name

_log = logging.getLogger(__name__)

_PAIRS_MAX: Final = 32
_VALUE_SIZE_MAX: Final = 256
_PAIRS_SIZE_MAX: Final = 4_096
_KEY: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_.-]{0,63}")
_RESERVED: Final = "rocketmq."
_LITE: Final = (v2.LITE_PUSH_CONSUMER, v2.LITE_SIMPLE_CONSUMER)

Commands = Call[v2.TelemetryCommand]


class Telemetry:
    """Serves the telemetry streams of all clients of a front."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def method(self) -> Method:
        """Return the entry for this method in the service's table."""
        return Method(v2.TelemetryCommand, self._begin, _refuse, is_stream=True)

    def _begin(self, call: Commands) -> None:
        """Start a stream. The client's first message on it must be its settings."""
        if call.request.WhichOneof("command") != "settings":
            raise Fault(v2.BAD_REQUEST, "the first command of a client must be its settings")
        TelemetryStream(self._shared, call).settle(call.request.settings)


class TelemetryStream:
    """The telemetry stream of one client."""

    def __init__(self, shared: Shared, call: Commands) -> None:
        self._shared = shared
        self._call = call
        self._client: Client = call.client
        self._asked: dict[str, int] = {}
        """By nonce: the opaque of each request of the broker that waits for the client's answer."""
        call.on_message = self._handle_command
        call.on_end = self._stream_ended

    # -- what the client says --------------------------------------------------------------------

    def _handle_command(self, message: object, now_ms: int) -> None:
        assert isinstance(message, v2.TelemetryCommand)
        match message.WhichOneof("command"):
            case "settings":
                self.settle(message.settings)
            case "thread_stack_trace":
                trace = message.thread_stack_trace
                self._answer(trace.nonce, _running_info(trace.thread_stack_trace), now_ms)
            case "verify_message_result":
                result = _consumed(message.status)
                self._answer(message.verify_message_result.nonce, result, now_ms)
            case _:
                pass  # of a later protocol

    def _answer(self, nonce: str, body: bytes, now_ms: int) -> None:
        opaque = self._asked.pop(nonce, None)
        if opaque is not None:
            self._shared.backend.pass_answer(self._client.guest, opaque, Answer(body=body), now_ms)

    def settle(self, settings: v2.Settings) -> None:
        """Register the client with new settings at the broker, and send it the settings as
        completed by the server."""
        produces = _judged(settings)
        client, call = self._client, self._call
        clients, backend = self._shared.clients, self._shared.backend
        answer = self._completed(settings)
        clients.require_room(client, answer)
        before = client.stream, client.settings, client.produces

        def on_reply(reply: Answer | Refusal) -> None:
            if code_of(reply) != v2.OK:
                client.stream, former, client.produces = before
                clients.keep(client, former)
                backend.set_reachable(client.guest, is_reachable=before[0] is not None)
                raise fault_of(reply)
            # Store the settings only now: a client that is refused keeps its earlier ones.
            backend.stop_producing(client.guest, set(before[2]) - set(client.produces))
            call.send_part(v2.TelemetryCommand(status=OK, settings=answer))

        # Before the heartbeat, which `body_of` makes from the settings: the broker checks halves as
        # soon as members are registered.
        client.stream, client.produces = self, produces
        clients.keep(client, answer)
        backend.set_reachable(client.guest, is_reachable=True)
        call.ask(Request.HEART_BEAT, {}, on_reply, body_of(client, answer))

    def _completed(self, settings: v2.Settings) -> v2.Settings:
        facts = None
        if settings.HasField("subscription"):
            facts = self._shared.backend.group_facts(group_name(settings.subscription.group))
        return completed(settings, facts, body_size_max=self._shared.options.body_size_max)

    def _stream_ended(self) -> None:
        client = self._client
        if client.stream is self:
            client.stream = None
            self._shared.backend.set_reachable(client.guest, is_reachable=False)
            self._shared.backend.stop_producing(client.guest, client.produces)

    # -- what the client gets ------------------------------------------------------------------

    def asked(
        self, code: int, opaque: int, ext: dict[str, str], body: bytes, *, is_one_way: bool
    ) -> None:
        """Send a request of the broker to the client. Requests that gRPC clients do not know are
        dropped."""
        if code == Request.CHECK_TRANSACTION_STATE:
            self._recover(ext, body)
        elif code == Request.GET_CONSUMER_RUNNING_INFO:
            nonce = self._add_nonce(opaque)
            self._send_command(
                print_thread_stack_trace_command=v2.PrintThreadStackTraceCommand(nonce=nonce)
            )
        elif code == Request.CONSUME_MESSAGE_DIRECTLY:
            message = message_of(decode_record(body))
            nonce = self._add_nonce(opaque)
            self._send_command(
                verify_message_command=v2.VerifyMessageCommand(nonce=nonce, message=message)
            )
        elif not is_one_way:
            remark = f"clients of the gRPC protocol do not know request {code}"
            refusal = Answer(Response.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
            self._shared.backend.pass_answer(self._client.guest, opaque, refusal, self._call.now_ms)

    def refresh(self) -> None:
        """Send the client its settings, if operators have changed them."""
        told = self._client.settings
        if told is not None and (now := self._completed(told)) != told:
            self._shared.clients.keep(self._client, now)
            self._call.send_part(v2.TelemetryCommand(status=OK, settings=now))

    def reconnect(self) -> None:
        """Make the client reconnect."""
        self._send_command(reconnect_endpoints_command=v2.ReconnectEndpointsCommand(nonce="0"))

    def _recover(self, ext: dict[str, str], body: bytes) -> None:
        message = message_of(decode_record(body))
        self._send_command(
            recover_orphaned_transaction_command=v2.RecoverOrphanedTransactionCommand(
                message=message, transaction_id=ext.get("escrowId", "")
            )
        )

    def _add_nonce(self, opaque: int) -> str:
        if len(self._asked) >= _PAIRS_MAX:  # the broker has given up on the oldest long ago
            del self._asked[next(iter(self._asked))]
        nonce = str(opaque)
        self._asked[nonce] = opaque
        return nonce

    def _send_command(
        self,
        *,
        recover_orphaned_transaction_command: v2.RecoverOrphanedTransactionCommand | None = None,
        print_thread_stack_trace_command: v2.PrintThreadStackTraceCommand | None = None,
        verify_message_command: v2.VerifyMessageCommand | None = None,
        reconnect_endpoints_command: v2.ReconnectEndpointsCommand | None = None,
    ) -> None:
        self._call.send_part(
            v2.TelemetryCommand(
                status=OK,
                recover_orphaned_transaction_command=recover_orphaned_transaction_command,
                print_thread_stack_trace_command=print_thread_stack_trace_command,
                verify_message_command=verify_message_command,
                reconnect_endpoints_command=reconnect_endpoints_command,
            )
        )


def _judged(settings: v2.Settings) -> list[str]:
    """Validate a client's settings, and return the topics to which it publishes. Raises a Fault if
    they are invalid."""
    if settings.client_type in _LITE:
        raise Fault(v2.NOT_IMPLEMENTED, "lite topics are not served here")
    _judge_size(settings)
    _judge_properties(settings)
    match settings.WhichOneof("pub_sub"):
        case "publishing":
            topics = settings.publishing.topics
            if len(topics) > PUBLISHED_TOPICS_MAX:
                raise Fault(
                    v2.BAD_REQUEST,
                    f"{len(topics)} topics; {PUBLISHED_TOPICS_MAX} are allowed; use several "
                    "clients",
                )
            return list(dict.fromkeys(topic_name(topic) for topic in topics))
        case "subscription":
            for entry in settings.subscription.subscriptions:
                topic_name(entry.topic)
            return []
        case _:
            raise Fault(v2.BAD_REQUEST, "there is no publishing or subscription data in settings")


def _judge_size(settings: v2.Settings) -> None:
    """Raise a Fault if settings are too large to be stored."""
    size, host_size = settings.ByteSize(), len(settings.user_agent.hostname)
    if size > GRPC_SETTINGS_SIZE_MAX:
        raise Fault(
            v2.BAD_REQUEST,
            f"settings of {size} bytes; {GRPC_SETTINGS_SIZE_MAX} are allowed; use several clients",
        )
    if host_size > HOST_NAME_SIZE_MAX:
        raise Fault(
            v2.BAD_REQUEST,
            f"a host name of {host_size} characters; {HOST_NAME_SIZE_MAX} are allowed",
        )
    judge_endpoints(settings.access_point)


def _judge_properties(settings: v2.Settings) -> None:
    own = settings.client_properties
    size = sum(len(name.encode()) + len(value.encode()) for name, value in own.items())
    is_well = len(own) <= _PAIRS_MAX and size <= _PAIRS_SIZE_MAX
    for name, value in own.items():
        is_well = is_well and _KEY.fullmatch(name) is not None and len(value) <= _VALUE_SIZE_MAX
        is_well = is_well and not name.startswith(_RESERVED)
    if not is_well:
        raise Fault(
            v2.INVALID_CLIENT_PROPERTIES,
            f"client properties: up to {_PAIRS_MAX} of names [a-zA-Z][a-zA-Z0-9_.-]* of up to 64 "
            f"characters, none with {_RESERVED} in front, and values of up to {_VALUE_SIZE_MAX}, "
            f"{_PAIRS_SIZE_MAX} bytes in all, are allowed",
        )


def _refuse(call: Commands, fault: Fault) -> None:
    """Refuse a stream by ending it with the Fault's text: the protocol has no other way."""
    match fault.code:
        case v2.UNAUTHORIZED:
            ended = Status.UNAUTHENTICATED
        case v2.NOT_IMPLEMENTED:
            ended = Status.UNIMPLEMENTED
        case v2.TOO_MANY_REQUESTS:
            ended = Status.RESOURCE_EXHAUSTED
        case v2.INTERNAL_SERVER_ERROR:
            ended = Status.INTERNAL
        case _:
            ended = Status.INVALID_ARGUMENT
    call.finish(ended, f"process client telemetryCommand failed. {fault}")


def _running_info(trace: str) -> bytes:
    """Convert a stack trace to the form that operators' tools expect (RocketMQ's
    ConsumerRunningInfo)."""
    return fastjson.encode(
        {
            "jstack": trace,
            "mqPopTable": {},
            "mqTable": {},
            "properties": {},
            "statusTable": {},
            "subscriptionSet": [],
            "userConsumerInfo": {},
        }
    )


def _consumed(result: v2.Status) -> bytes:
    """Convert the result of a message that an operator made the client consume to the form that
    tools expect (ConsumeMessageDirectlyResult)."""
    is_well = result.code == v2.OK
    return fastjson.encode(
        {
            "autoCommit": True,
            "consumeResult": "CR_SUCCESS" if is_well else "CR_LATER",
            "order": False,
            "remark": result.message,
            "spentTimeMills": 0,
        }
    )
