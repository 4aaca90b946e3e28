"""Assigns queues to consumers, and says whether a group pulls or pops a topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

import msgspec

from escrowmq.base.answer import DONE, HELD, Answer, Refusal, Reply
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.fixed_limits import QUESTION_SIZE_MAX
from escrowmq.base.message import Topic
from escrowmq.base.ports import Disk
from escrowmq.broker.answers.answer_delivery import AnswerSender
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.broker.peers import Peers
from escrowmq.codec import fastjson
from escrowmq.codec.client_bodies import decode_body
from escrowmq.codec.fastjson import QueueId
from escrowmq.codec.routes import TopicRoute
from escrowmq.delivery.assignment import PATH, RequestMode, RequestModes, assign_queues
from escrowmq.delivery.clients import BROADCASTING, Clients
from escrowmq.delivery.groups import GroupTable
from escrowmq.delivery.topics import Perm, TopicTable
from escrowmq.errors import RemoteProtocolError

ROUTE_MS: Final = 30_000
"""How long a route is valid, as in RocketMQ (pollNameServerInterval)."""

ROUTE_ANSWER_MS: Final = 3_000
ROUTES_MAX: Final = 10_000
"""The most topics with a cached route."""

QUEUES_MAX: Final = 100_000
"""The most queues of one topic on one broker that are accepted."""

OnRoute = Callable[[list[QueueId]], None]


class _AssignmentQuery(msgspec.Struct, rename="camel", kw_only=True):
    """The body of QUERY_ASSIGNMENT."""

    size_max: ClassVar[int] = QUESTION_SIZE_MAX
    topic: str
    consumer_group: str
    client_id: str = ""
    message_model: str = "CLUSTERING"
    strategy_name: str = ""


class AssignmentHandlers:
    """Serves QUERY_ASSIGNMENT (400), SET_MESSAGE_REQUEST_MODE (401) and
    GET_ALL_MESSAGE_REQUEST_MODE (402).

    `name_server` returns the connection to a name server, which knows the queues of other brokers;
    None without one.
    """

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        topics: TopicTable,
        groups: GroupTable,
        clients: Clients,
        peers: Peers,
        answers: AnswerSender,
        disk: Disk,
        name_server: Callable[[], int | None],
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._peers = peers
        self._answers = answers
        self._disk = disk
        self._name_server = name_server
        self.modes = RequestModes(settings.request_mode)
        self._routes: dict[str, tuple[int, list[QueueId]]] = {}
        self._asked: dict[str, list[OnRoute]] = {}

    # -- modes -----------------------------------------------------------------------------------

    def set_mode(self, request: IncomingRequest[None]) -> Reply:
        """Set whether a group pops or pulls a topic."""
        mode = decode_body(RequestMode, request.body)
        if mode.topic.startswith(Topic.RETRY_PREFIX):
            remark = "retry topic is not allowed to set mode"
            return Refusal(Response.NO_PERMISSION, remark)
        if self._topics.get(mode.topic) is None:
            remark = f"topic[{mode.topic}] not exist"
            return Refusal(Response.TOPIC_NOT_EXIST, remark)
        if self._groups.get_or_create(mode.consumer_group, request.now_ms) is None:
            remark = "subscription group does not exist"
            return Refusal(Response.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        self._disk.replace(PATH, self.modes.encode_with(mode))
        self.modes.put(mode)
        return DONE

    def list_modes(self, request: IncomingRequest[None]) -> Reply:
        """Answer with the modes that operators have set."""
        return Answer(body=self.modes.encode())

    # -- assignments -----------------------------------------------------------------------------

    def query_assignment(self, request: IncomingRequest[None]) -> Reply:
        """Answer a client with the queues of a topic that are assigned to it."""
        query = decode_body(_AssignmentQuery, request.body)

        def on_route(queues: list[QueueId]) -> None:
            self._answers.send(request, Answer(body=self._assignment_body(query, queues)))

        self._find_route(query.topic, on_route, request.now_ms)
        return HELD

    def _assignment_body(self, query: _AssignmentQuery, queues: list[QueueId]) -> bytes:
        mode = self.modes.get(query.topic, query.consumer_group)
        found: list[QueueId] | None
        if not queues:
            found = None
        elif query.message_model.upper() == BROADCASTING or not self._settings.balances_load:
            found = queues
        else:
            group = self._clients.consumers.get(query.consumer_group)
            ids = group.client_ids() if group is not None else []
            found = assign_queues(mode, query.strategy_name, query.client_id, queues, ids)
        if found is None:
            return b"{}"
        return fastjson.encode(
            {
                "messageQueueAssignments": [
                    {"messageQueue": queue, "mode": mode.mode} for queue in found
                ]
            }
        )

    def _own_queues(self, name: str) -> list[QueueId]:
        topic = self._topics.get(name)
        if topic is None or not topic.perm & self._settings.permission & Perm.READ:
            return []
        return [QueueId(self._settings.name, index, name) for index in range(topic.read_queue_nums)]

    def _find_route(self, topic: str, on_route: OnRoute, now_ms: int) -> None:
        """Find all readable queues of a topic: our own in the tables, those of other brokers at the
        name server."""
        at_ms, others = self._routes.get(topic, (-ROUTE_MS, []))
        server = self._name_server()
        if server is None or now_ms - at_ms < ROUTE_MS:
            on_route(self._own_queues(topic) + others)
            return
        waiting = self._asked.get(topic)
        if waiting is not None:
            waiting.append(on_route)
            return
        self._asked[topic] = [on_route]

        def on_reply(reply: Command | None, now_ms: int) -> None:
            if reply is not None:
                if len(self._routes) >= ROUTES_MAX:
                    self._routes.clear()
                others = _queues_elsewhere(reply, topic, self._settings.name)
                self._routes[topic] = (now_ms, others)
            queues = self._own_queues(topic) + self._routes.get(topic, (0, []))[1]
            for each in self._asked.pop(topic):
                each(queues)

        self._peers.send_request(
            server,
            Request.GET_ROUTEINFO_BY_TOPIC,
            ext={"topic": topic, "acceptStandardJsonOnly": "true"},
            on_answer=on_reply,
            until_ms=now_ms + ROUTE_ANSWER_MS,
        )


def _queues_elsewhere(reply: Command, topic: str, own_name: str) -> list[QueueId]:
    """Return the readable queues of other brokers, from a name server's reply."""
    if reply.code != Response.SUCCESS or not reply.body:
        return []
    try:
        raw: Any = fastjson.decode_fastjson(reply.body)
        route = msgspec.convert(raw, TopicRoute, strict=False)
    except (RemoteProtocolError, msgspec.ValidationError):
        return []
    return [
        QueueId(data.broker_name, index, topic)
        for data in route.queue_datas or ()
        if data.perm & Perm.READ and data.broker_name != own_name
        for index in range(min(data.read_queue_nums, QUEUES_MAX))
    ]
