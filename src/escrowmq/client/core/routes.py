"""The client's knowledge of brokers: where each topic's queues are, and the brokers' addresses."""

from __future__ import annotations

import logging
from itertools import islice
from typing import Final

import msgspec

from escrowmq.base.fixed_limits import TOPIC_QUEUES_MAX
from escrowmq.codec.routes import BrokerData, TopicRoute

_log = logging.getLogger(__name__)

BROKERS_MAX: Final = 1_024
"""At most this many brokers are accepted from one route, because the client connects to each. A
name server's answer could contain a hundred thousand."""

ADDRESSES_MAX: Final = 16
"""Limit of the addresses of one broker name, by broker id."""

ROUTE_QUEUES_MAX: Final = 262_144
"""Limit of the queues of one topic on all brokers; each takes some 100 bytes here."""

MASTER: Final = 0
_DIGITS_MAX: Final = 9
_WRITE: Final = 2
_READ: Final = 4


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """One queue of a topic. Queues sort by topic, broker and number, as in every client.

    >>> queue = producer.send("paid", b"order 1").queue
    >>> producer.send("paid", b"order 2", queue=queue).queue == queue
    True
    """

    topic: str
    broker_name: str
    queue_id: int


def queue_fields(queue: MessageQueue) -> dict[str, str]:
    """Return the fields by which most requests name a queue."""
    return {"topic": queue.topic, "queueId": str(queue.queue_id), "bname": queue.broker_name}


class RouteBook:
    """Routes by topic, and the addresses of all brokers in them."""

    def __init__(self) -> None:
        self._routes: dict[str, TopicRoute] = {}
        self._write: dict[str, tuple[MessageQueue, ...]] = {}
        self._listed: set[str] = set()
        self._brokers: dict[str, dict[int, str]] = {}
        """Addresses by broker name, as in the newest answer of a name server about any topic. After
        a change of the master, the stored routes of other topics still name the former one."""

    def put(self, topic: str, route: TopicRoute) -> bool:
        """Store a route, cut to the limits; return whether it differs from the one before."""
        route = cut_to_limits(route)
        for data in route.broker_datas or ():
            self._brokers[data.broker_name] = dict(data.broker_addrs)
        before = self._routes.get(topic)
        if before == route:
            return False
        self._routes[topic] = route
        self._write[topic] = write_queues(topic, route)
        if before is not None:
            self._forget_unlisted_brokers()
        return True

    def replace_brokers(self, brokers: dict[str, BrokerData]) -> None:
        """Replace the list of the cluster's brokers; it comes from the name server, not from a
        topic's route."""
        self._listed = set(brokers)
        for name, data in brokers.items():
            self._brokers[name] = dict(data.broker_addrs)
        self._forget_unlisted_brokers()

    def drop(self, topic: str) -> None:
        """Remove a topic's route, and brokers that no other route names."""
        route = self._routes.pop(topic, None)
        if route is not None:
            self._write.pop(topic)
            self._forget_unlisted_brokers()

    def get(self, topic: str) -> TopicRoute | None:
        """Return the stored route of a topic; None if there is none."""
        return self._routes.get(topic)

    def topics(self) -> list[str]:
        """Return the topics whose route is stored."""
        return list(self._routes)

    def write_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues for sending; empty without a route, or if none allows it."""
        return self._write.get(topic, ())

    def read_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues for reading, on any broker."""
        route = self._routes.get(topic)
        return read_queues(topic, route) if route is not None else ()

    def address(self, broker_name: str, broker_id: int = MASTER) -> str | None:
        """Return the address of a broker; None if no route has it."""
        return self._brokers.get(broker_name, {}).get(broker_id)

    def addresses(self, broker_name: str) -> dict[int, str]:
        """Return all addresses of a broker name by broker id; 0 is the master."""
        return dict(self._brokers.get(broker_name, {}))

    def broker_names(self) -> list[str]:
        """Return the names of the brokers in any route."""
        return list(self._brokers)

    def all_addresses(self, *, masters_only: bool) -> list[str]:
        """Return all known addresses, without duplicates."""
        found: dict[str, None] = {}
        for by_id in self._brokers.values():
            for broker_id, address in by_id.items():
                if broker_id == MASTER or not masters_only:
                    found[address] = None
        return list(found)

    def _forget_unlisted_brokers(self) -> None:
        """Forget brokers that are neither in a route nor in the cluster's list."""
        if not self._brokers.keys() <= self._listed:
            named = self._listed | self._routed_broker_names()
            self._brokers = {name: at for name, at in self._brokers.items() if name in named}

    def _routed_broker_names(self) -> set[str]:
        routes = self._routes.values()
        return {data.broker_name for route in routes for data in route.broker_datas or ()}


def cut_to_limits(route: TopicRoute) -> TopicRoute:
    """Return the route cut to the limits, which no real cluster exceeds."""
    brokers = route.broker_datas or []
    queues = route.queue_datas or []
    names = {data.broker_name for data in brokers[:BROKERS_MAX]}
    count = sum(max(data.read_queue_nums, data.write_queue_nums) for data in queues)
    is_small = all(len(data.broker_addrs) <= ADDRESSES_MAX for data in brokers)
    if len(brokers) <= BROKERS_MAX and count <= ROUTE_QUEUES_MAX and is_small:
        return route
    # A route decides how many connections and queues this process has, so a name server is believed
    # only up to sizes that a real cluster could have.
    left, kept = ROUTE_QUEUES_MAX, []
    for data in queues:
        count = min(TOPIC_QUEUES_MAX, max(data.read_queue_nums, data.write_queue_nums))
        if data.broker_name in names and count <= left:
            kept.append(data)
            left -= count
    _log.warning(
        "a route names %d brokers and %d groups of queues; %d brokers, and %d queues in "
            "all, are accepted: is this a name server of yours?",
        len(brokers), len(queues), BROKERS_MAX, ROUTE_QUEUES_MAX,
    )  # fmt: skip
    few = [
        msgspec.structs.replace(
            data, broker_addrs=dict(islice(data.broker_addrs.items(), ADDRESSES_MAX))
        )
        for data in brokers[:BROKERS_MAX]
    ]
    return msgspec.structs.replace(route, broker_datas=few, queue_datas=kept)


def write_queues(topic: str, route: TopicRoute) -> tuple[MessageQueue, ...]:
    """Return the queues for sending: of brokers with a master, in the order of an ordered topic's
    own configuration if it has one, otherwise by broker name."""
    if route.order_topic_conf:
        return _ordered_queues(topic, route.order_topic_conf)
    masters = {data.broker_name for data in route.broker_datas or () if MASTER in data.broker_addrs}
    found: list[MessageQueue] = []
    for queues in sorted(route.queue_datas or (), key=lambda data: data.broker_name):
        if queues.perm & _WRITE and queues.broker_name in masters:
            count = min(queues.write_queue_nums, TOPIC_QUEUES_MAX)
            found += [MessageQueue(topic, queues.broker_name, index) for index in range(count)]
    return tuple(found)


def read_queues(topic: str, route: TopicRoute) -> tuple[MessageQueue, ...]:
    """Return the queues for consuming, sorted."""
    found: list[MessageQueue] = []
    for queues in route.queue_datas or ():
        if queues.perm & _READ:
            count = min(queues.read_queue_nums, TOPIC_QUEUES_MAX)
            found += [MessageQueue(topic, queues.broker_name, index) for index in range(count)]
    return tuple(sorted(found))


def _ordered_queues(topic: str, conf: str) -> tuple[MessageQueue, ...]:
    found: list[MessageQueue] = []
    for item in conf.split(";"):
        name, _, count = item.strip().partition(":")
        if name and count.isdecimal():
            count_max = min(
                _parse_queue_count(count), TOPIC_QUEUES_MAX, ROUTE_QUEUES_MAX - len(found)
            )
            found += [MessageQueue(topic, name, index) for index in range(count_max)]
    return tuple(found)


def template_route(route: TopicRoute, *, queues_max: int) -> TopicRoute:
    """Return the route of a topic that its first message will create, derived from that of the
    template topic (RocketMQ's `MQClientInstance.updateTopicRouteInfoFromNameServer`)."""
    queues = [
        msgspec.structs.replace(
            data,
            read_queue_nums=min(queues_max, data.read_queue_nums),
            write_queue_nums=min(queues_max, data.read_queue_nums),
        )
        for data in route.queue_datas or ()
    ]
    return msgspec.structs.replace(route, queue_datas=queues)


def _parse_queue_count(digits: str) -> int:
    return int(digits) if len(digits) <= _DIGITS_MAX else TOPIC_QUEUES_MAX
