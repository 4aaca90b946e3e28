"""Serves Heartbeat and NotifyClientTermination: registers gRPC clients at the broker, in the same
tables as all others."""

from __future__ import annotations

from escrowmq.base.answer import Answer, Refusal
from escrowmq.base.codes import Request
from escrowmq.codec import fastjson
from escrowmq.proxy.clients import FrontClient
from escrowmq.proxy.gen import v2
from escrowmq.proxy.grpc_call import GrpcCall
from escrowmq.proxy.receive_methods import filter_expression
from escrowmq.proxy.result_codes import OK, CallFault, reply_fault, result_code
from escrowmq.proxy.service_context import ServiceContext
from escrowmq.proxy.validation import valid_group_name, valid_topic_name

_ALL = "*"


class PresenceMethods:
    """Registers and unregisters clients."""

    def __init__(self, shared: ServiceContext) -> None:
        self._shared = shared

    def heartbeat(self, call: GrpcCall[v2.HeartbeatRequest]) -> None:
        """Register that a client is alive."""
        settings = _settings_of(call.client)
        call.dialogue.add_cost(registration_cost(settings))

        def on_reply(reply: Answer | Refusal) -> None:
            if result_code(reply) != v2.OK:
                raise reply_fault(reply)
            call.send_answer(v2.HeartbeatResponse(status=OK))
            if call.client.stream is not None:
                call.client.stream.send_changed_settings()

        call.make_request(Request.HEART_BEAT, {}, on_reply, heartbeat_body(call.client, settings))

    def unregister_client(self, call: GrpcCall[v2.NotifyClientTerminationRequest]) -> None:
        """Unregister a client."""
        _settings_of(call.client)
        client = call.client

        def on_reply(reply: Answer | Refusal) -> None:
            if result_code(reply) != v2.OK:
                raise reply_fault(reply)
            call.send_answer(v2.NotifyClientTerminationResponse(status=OK))
            self._shared.clients.remove_client(client, call.now_ms)

        # The access check decides: no client can unregister in the name of another.
        ext = {"clientID": client.key.id, "producerGroup": "", "consumerGroup": ""}
        if call.request.HasField("group") and call.request.group.name:
            ext["consumerGroup"] = valid_group_name(call.request.group)
        call.make_request(Request.UNREGISTER_CLIENT, ext, on_reply)


def _settings_of(client: FrontClient) -> v2.Settings:
    if client.settings is None:
        raise CallFault(v2.UNRECOGNIZED_CLIENT_TYPE, "cannot find client settings for this client")
    return client.settings


def registration_cost(settings: v2.Settings) -> int:
    """Return the work of registering a client with these settings, in the units of
    `CallDialogue.add_cost`: some 15 us for each subscription, and 2 for each topic published to."""
    published = len(settings.publishing.topics) >> 3
    return published + len(settings.subscription.subscriptions)


def heartbeat_body(client: FrontClient, settings: v2.Settings) -> bytes:
    """Return the heartbeat of the remoting protocol that registers this client. A producer without
    a stream is in no group of it, because checks of halves are sent on the stream."""
    found: dict[str, object] = {"clientID": client.key.id}
    if settings.HasField("subscription"):
        found["consumerDataSet"] = [_consumer_body(settings.subscription)]
    elif client.stream is not None:
        found["producerDataSet"] = [{"groupName": topic} for topic in client.published_topics]
    return fastjson.encode(found)


def _consumer_body(subscription: v2.Subscription) -> dict[str, object]:
    topics = []
    for entry in subscription.subscriptions:
        kind, text = filter_expression(entry.expression)
        tags = [tag.strip() for tag in text.split("||")] if kind == "TAG" and text != _ALL else []
        topics.append(
            {
                "topic": valid_topic_name(entry.topic),
                "expressionType": kind,
                "subString": text,
                "tagsSet": tags,
            }
        )
    return {
        "groupName": valid_group_name(subscription.group),
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": topics,
    }
