"""Serves operators' queries about connected clients: members of groups, producers,
subscriptions."""

from __future__ import annotations

from typing import Any

from escrowmq.base.answer import Answer, Refusal, Reply
from escrowmq.base.codes import Response
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.codec import fastjson
from escrowmq.codec.headers import ConsumerGroupHeader, GroupTopicHeader, ProducerGroupHeader
from escrowmq.delivery.clients import Channel, Clients
from escrowmq.delivery.group_readers import GroupReaders


class ConnectionHandlers:
    """Serves operators' queries about connected clients (codes 203, 204, 328, 345)."""

    def __init__(self, *, clients: Clients, readers: GroupReaders) -> None:
        self._clients = clients
        self._readers = readers

    def consumer_connections(self, request: IncomingRequest[ConsumerGroupHeader]) -> Reply:
        """Answer with the live members of a group and their subscriptions. Members that only pop
        are included; RocketMQ (AdminBrokerProcessor) calls a group of only such members not
        online."""
        name = request.header.consumer_group
        group = self._readers.live_members(name)
        if group is None:
            return Refusal(Response.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        body = fastjson.encode(
            {
                "connectionSet": [_connection_body(channel) for channel in group.channels.values()],
                "consumeFromWhere": group.consume_from,
                "consumeType": group.consume_type,
                "messageModel": group.message_model,
                "subscriptionTable": group.subscriptions,
            }
        )
        return Answer(body=body)

    def producer_connections(self, request: IncomingRequest[ProducerGroupHeader]) -> Reply:
        """Answer with the live members of a producer group."""
        name = request.header.producer_group
        channels = self._clients.producers.get(name)
        if channels is None:
            return Refusal(Response.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        found = [_connection_body(channel) for channel in channels.values()]
        return Answer(body=fastjson.encode({"connectionSet": found}))

    def all_producers(self, request: IncomingRequest[None]) -> Reply:
        """Answer with every live producer."""
        data = {
            name: [
                {
                    "clientId": channel.client_id,
                    "language": channel.language,
                    "lastUpdateTimestamp": channel.seen_ms,
                    "remoteIP": f"/{channel.address}",
                    "version": channel.version,
                }
                for channel in channels.values()
            ]
            for name, channels in self._clients.producers.items()
        }
        return Answer(body=fastjson.encode({"data": data}))

    def subscription(self, request: IncomingRequest[GroupTopicHeader]) -> Reply:
        """Answer with the subscription of a live group to a topic."""
        header = request.header
        body: dict[str, Any] = {"group": header.group, "topic": header.topic}
        subscription = self._readers.subscription(header.group, header.topic)
        if subscription is not None:
            body["subscriptionData"] = subscription
        return Answer(body=fastjson.encode(body))


def _connection_body(channel: Channel) -> dict[str, Any]:
    return {
        "clientAddr": channel.address,
        "clientId": channel.client_id,
        "language": channel.language,
        "version": channel.version,
    }
