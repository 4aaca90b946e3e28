"""Serves Heartbeat and NotifyClientTermination: registers gRPC clients at the broker, in the same
tables as all others."""

from __future__ import annotations

from escrowmq.base.answer import Answer, Refusal
from escrowmq.base.codes import Request
from escrowmq.codec import fastjson
from escrowmq.proxy.call import Call
from escrowmq.proxy.clients import Client
from escrowmq.proxy.gen import v2
from escrowmq.proxy.receiving import filter_of
from escrowmq.proxy.result_codes import OK, Fault, code_of, fault_of
from escrowmq.proxy.service_context import Shared
from escrowmq.proxy.validation import group_name, topic_name

_ALL = "*"


class ClientPresence:
    """Registers and unregisters clients."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def beat(self, call: Call[v2.HeartbeatRequest]) -> None:
        """Register that a client is alive."""
        settings = _settings_of(call.client)

        def on_reply(reply: Answer | Refusal) -> None:
            if code_of(reply) != v2.OK:
                raise fault_of(reply)
            call.answer(v2.HeartbeatResponse(status=OK))
            if call.client.stream is not None:
                call.client.stream.refresh()

        call.ask(Request.HEART_BEAT, {}, on_reply, body_of(call.client, settings))

    def leave(self, call: Call[v2.NotifyClientTerminationRequest]) -> None:
        """Unregister a client."""
        _settings_of(call.client)
        client = call.client

        def on_reply(reply: Answer | Refusal) -> None:
            if code_of(reply) != v2.OK:
                raise fault_of(reply)
            call.answer(v2.NotifyClientTerminationResponse(status=OK))
            self._shared.clients.leave(client, call.now_ms)

        # The access check decides: no client can unregister in the name of another.
        ext = {"clientID": client.key.id, "producerGroup": "", "consumerGroup": ""}
        if call.request.HasField("group") and call.request.group.name:
            ext["consumerGroup"] = group_name(call.request.group)
        call.ask(Request.UNREGISTER_CLIENT, ext, on_reply)


def _settings_of(client: Client) -> v2.Settings:
    if client.settings is None:
        raise Fault(v2.UNRECOGNIZED_CLIENT_TYPE, "cannot find client settings for this client")
    return client.settings


def body_of(client: Client, settings: v2.Settings) -> bytes:
    """Return the heartbeat of the remoting protocol that registers this client. A producer without
    a stream is in no group of it, because checks of halves are sent on the stream."""
    found: dict[str, object] = {"clientID": client.key.id}
    if settings.HasField("subscription"):
        found["consumerDataSet"] = [_consumer(settings.subscription)]
    elif client.stream is not None:
        found["producerDataSet"] = [{"groupName": topic} for topic in client.produces]
    return fastjson.encode(found)


def _consumer(subscription: v2.Subscription) -> dict[str, object]:
    topics = []
    for entry in subscription.subscriptions:
        kind, text = filter_of(entry.expression)
        tags = [tag.strip() for tag in text.split("||")] if kind == "TAG" and text != _ALL else []
        topics.append(
            {
                "topic": topic_name(entry.topic),
                "expressionType": kind,
                "subString": text,
                "tagsSet": tags,
            }
        )
    return {
        "groupName": group_name(subscription.group),
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": topics,
    }
