"""Answers with the route of a topic as far as this broker knows it: its own queues."""

from __future__ import annotations

from escrowmq.base.answer import Answer, Refusal, Reply
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import FAQ, Response
from escrowmq.base.message import is_sendable
from escrowmq.broker.identity import Identity
from escrowmq.broker.incoming_request import IncomingRequest, not_supported
from escrowmq.codec.headers import TopicHeader, read_header
from escrowmq.codec.routes import BrokerData, QueueData, TopicRoute, encode_route
from escrowmq.delivery.topics import TopicTable


class RouteHandlers:
    """Serves GET_ROUTEINFO_BY_TOPIC (105) for in-process fronts, which have no name server. Clients
    that may read as a group also see that group's routes."""

    def __init__(self, settings: BrokerSettings, topics: TopicTable, identity: Identity) -> None:
        self._settings = settings
        self._topics = topics
        self._identity = identity

    def answer_route(self, request: IncomingRequest[None]) -> Reply:
        """Answer with this broker's queues of a topic."""
        if not request.peer.is_guest:  # RocketMQ's brokers leave it to name servers
            return not_supported(request)
        name = read_header(TopicHeader, request.ext).topic
        topic = self._topics.get(name) if is_sendable(name) else None
        if topic is None:
            remark = f"No topic route info in name server for the topic: {name}{FAQ}"
            return Refusal(Response.TOPIC_NOT_EXIST, remark)
        settings = self._settings
        queues = QueueData(
            broker_name=settings.name,
            perm=topic.perm & settings.permission,
            read_queue_nums=topic.read_queue_nums,
            topic_sys_flag=topic.topic_sys_flag,
            write_queue_nums=topic.write_queue_nums,
        )
        place = BrokerData(
            broker_addrs={0: self._identity.address},
            broker_name=settings.name,
            cluster=settings.cluster,
        )
        route = TopicRoute(broker_datas=[place], queue_datas=[queues])
        return Answer(body=encode_route(route, is_standard=True))
