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
from escrowmq.http2.grpc_metadata import GrpcStatus
from escrowmq.proxy.client_settings import complete_settings
from escrowmq.proxy.clients import FrontClient
from escrowmq.proxy.gen import v2
from escrowmq.proxy.grpc_call import GrpcCall, ServiceMethod
from escrowmq.proxy.heartbeats import heartbeat_body, registration_cost
from escrowmq.proxy.messages import to_client_message
from escrowmq.proxy.result_codes import OK, CallFault, reply_fault, result_code
from escrowmq.proxy.service_context import ServiceContext
from escrowmq.proxy.validation import check_endpoints, valid_group_name, valid_topic_name

_log = logging.getLogger(__name__)

_PAIRS_MAX: Final = 32
_VALUE_SIZE_MAX: Final = 256
_PAIRS_SIZE_MAX: Final = 4_096
_KEY: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_.-]{0,63}")
_RESERVED: Final = "rocketmq."
_LITE: Final = (v2.LITE_PUSH_CONSUMER, v2.LITE_SIMPLE_CONSUMER)

Commands = GrpcCall[v2.TelemetryCommand]


class TelemetryMethods:
    """Serves the telemetry streams of all clients of a front."""

    def __init__(self, shared: ServiceContext) -> None:
        self._shared = shared

    def telemetry_method(self) -> ServiceMethod:
        """Return the entry for this method in the service's table."""
        return ServiceMethod(
            v2.TelemetryCommand, self._begin_stream, _refuse_stream, is_stream=True
        )

    def _begin_stream(self, call: Commands) -> None:
        """Start a stream. The client's first message on it must be its settings."""
        if call.request.WhichOneof("command") != "settings":
            raise CallFault(v2.BAD_REQUEST, "the first command of a client must be its settings")
        TelemetryStream(self._shared, call).apply_settings(call.request.settings)


class TelemetryStream:
    """The telemetry stream of one client."""

    def __init__(self, shared: ServiceContext, call: Commands) -> None:
        self._shared = shared
        self._call = call
        self._client: FrontClient = call.client
        self._asked: dict[str, int] = {}
        """By nonce: the opaque of each request of the broker that waits for the client's answer."""
        call.on_message = self._handle_command
        call.on_end = self._stream_ended

    # -- what the client says --------------------------------------------------------------------

    def _handle_command(self, message: object, now_ms: int) -> None:
        assert isinstance(message, v2.TelemetryCommand)
        match message.WhichOneof("command"):
            case "settings":
                self.apply_settings(message.settings)
            case "thread_stack_trace":
                trace = message.thread_stack_trace
                self._pass_answer(trace.nonce, _running_info_body(trace.thread_stack_trace), now_ms)
            case "verify_message_result":
                result = _consume_result_body(message.status)
                self._pass_answer(message.verify_message_result.nonce, result, now_ms)
            case _:
                pass  # of a later protocol

    def _pass_answer(self, nonce: str, body: bytes, now_ms: int) -> None:
        opaque = self._asked.pop(nonce, None)
        if opaque is not None:
            self._shared.backend.pass_answer(self._client.guest, opaque, Answer(body=body), now_ms)

    def apply_settings(self, settings: v2.Settings) -> None:
        """Register the client with new settings at the broker, and send it the settings as
        completed by the server."""
        produces = _published_topics(settings)
        client, call = self._client, self._call
        call.dialogue.add_cost(registration_cost(settings))
        clients, backend = self._shared.clients, self._shared.backend
        answer = self._complete_settings(settings)
        clients.require_memory(client, answer)
        before = client.stream, client.settings, client.published_topics

        def on_reply(reply: Answer | Refusal) -> None:
            if result_code(reply) != v2.OK:
                client.stream, former, client.published_topics = before
                clients.store_settings(client, former)
                backend.set_reachable(client.guest, is_reachable=before[0] is not None)
                raise reply_fault(reply)
            # Store the settings only now: a client that is refused keeps its earlier ones.
            backend.stop_producing(client.guest, set(before[2]) - set(client.published_topics))
            call.send_part(v2.TelemetryCommand(status=OK, settings=answer))

        # Before the heartbeat, which `body_of` makes from the settings: the broker checks halves as
        # soon as members are registered.
        client.stream, client.published_topics = self, produces
        clients.store_settings(client, answer)
        backend.set_reachable(client.guest, is_reachable=True)
        call.make_request(Request.HEART_BEAT, {}, on_reply, heartbeat_body(client, answer))

    def _complete_settings(self, settings: v2.Settings) -> v2.Settings:
        facts = None
        if settings.HasField("subscription"):
            facts = self._shared.backend.group_facts(valid_group_name(settings.subscription.group))
        return complete_settings(settings, facts, body_size_max=self._shared.options.body_size_max)

    def _stream_ended(self) -> None:
        client = self._client
        if client.stream is self:
            client.stream = None
            self._shared.backend.set_reachable(client.guest, is_reachable=False)
            self._shared.backend.stop_producing(client.guest, client.published_topics)

    # -- what the client gets ------------------------------------------------------------------

    def send_request(
        self, code: int, opaque: int, ext: dict[str, str], body: bytes, *, is_one_way: bool
    ) -> None:
        """Send a request of the broker to the client. Requests that gRPC clients do not know are
        dropped."""
        if code == Request.CHECK_TRANSACTION_STATE:
            self._send_check(ext, body)
        elif code == Request.GET_CONSUMER_RUNNING_INFO:
            nonce = self._add_nonce(opaque)
            self._send_command(
                print_thread_stack_trace_command=v2.PrintThreadStackTraceCommand(nonce=nonce)
            )
        elif code == Request.CONSUME_MESSAGE_DIRECTLY:
            message = to_client_message(decode_record(body))
            nonce = self._add_nonce(opaque)
            self._send_command(
                verify_message_command=v2.VerifyMessageCommand(nonce=nonce, message=message)
            )
        elif not is_one_way:
            remark = f"clients of the gRPC protocol do not know request {code}"
            refusal = Answer(Response.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
            self._shared.backend.pass_answer(self._client.guest, opaque, refusal, self._call.now_ms)

    def send_changed_settings(self) -> None:
        """Send the client its settings, if operators have changed them."""
        settings = self._client.settings
        if settings is not None and (now := self._complete_settings(settings)) != settings:
            self._shared.clients.store_settings(self._client, now)
            self._call.send_part(v2.TelemetryCommand(status=OK, settings=now))

    def order_reconnect(self) -> None:
        """Make the client reconnect."""
        self._send_command(reconnect_endpoints_command=v2.ReconnectEndpointsCommand(nonce="0"))

    def _send_check(self, ext: dict[str, str], body: bytes) -> None:
        message = to_client_message(decode_record(body))
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


def _published_topics(settings: v2.Settings) -> list[str]:
    """Validate a client's settings, and return the topics to which it publishes. Raises a Fault if
    they are invalid."""
    if settings.client_type in _LITE:
        raise CallFault(v2.NOT_IMPLEMENTED, "lite topics are not served here")
    _check_size(settings)
    _check_properties(settings)
    match settings.WhichOneof("pub_sub"):
        case "publishing":
            topics = settings.publishing.topics
            if len(topics) > PUBLISHED_TOPICS_MAX:
                raise CallFault(
                    v2.BAD_REQUEST,
                    f"{len(topics)} topics; {PUBLISHED_TOPICS_MAX} are allowed; use several "
                    "clients",
                )
            return list(dict.fromkeys(valid_topic_name(topic) for topic in topics))
        case "subscription":
            for entry in settings.subscription.subscriptions:
                valid_topic_name(entry.topic)
            return []
        case _:
            raise CallFault(
                v2.BAD_REQUEST, "there is no publishing or subscription data in settings"
            )


def _check_size(settings: v2.Settings) -> None:
    """Raise a Fault if settings are too large to be stored."""
    size, host_size = settings.ByteSize(), len(settings.user_agent.hostname)
    if size > GRPC_SETTINGS_SIZE_MAX:
        raise CallFault(
            v2.BAD_REQUEST,
            f"settings of {size} bytes; {GRPC_SETTINGS_SIZE_MAX} are allowed; use several clients",
        )
    if host_size > HOST_NAME_SIZE_MAX:
        raise CallFault(
            v2.BAD_REQUEST,
            f"a host name of {host_size} characters; {HOST_NAME_SIZE_MAX} are allowed",
        )
    check_endpoints(settings.access_point)


def _check_properties(settings: v2.Settings) -> None:
    own = settings.client_properties
    size = sum(len(name.encode()) + len(value.encode()) for name, value in own.items())
    is_well = len(own) <= _PAIRS_MAX and size <= _PAIRS_SIZE_MAX
    for name, value in own.items():
        is_well = is_well and _KEY.fullmatch(name) is not None and len(value) <= _VALUE_SIZE_MAX
        is_well = is_well and not name.startswith(_RESERVED)
    if not is_well:
        raise CallFault(
            v2.INVALID_CLIENT_PROPERTIES,
            f"client properties: up to {_PAIRS_MAX} of names [a-zA-Z][a-zA-Z0-9_.-]* of up to 64 "
            f"characters, none with {_RESERVED} in front, and values of up to {_VALUE_SIZE_MAX}, "
            f"{_PAIRS_SIZE_MAX} bytes in all, are allowed",
        )


def _refuse_stream(call: Commands, fault: CallFault) -> None:
    """Refuse a stream by ending it with the Fault's text: the protocol has no other way."""
    match fault.code:
        case v2.UNAUTHORIZED:
            ended = GrpcStatus.UNAUTHENTICATED
        case v2.NOT_IMPLEMENTED:
            ended = GrpcStatus.UNIMPLEMENTED
        case v2.TOO_MANY_REQUESTS:
            ended = GrpcStatus.RESOURCE_EXHAUSTED
        case v2.INTERNAL_SERVER_ERROR:
            ended = GrpcStatus.INTERNAL
        case _:
            ended = GrpcStatus.INVALID_ARGUMENT
    call.finish(ended, f"process client telemetryCommand failed. {fault}")


def _running_info_body(trace: str) -> bytes:
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


def _consume_result_body(result: v2.Status) -> bytes:
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
