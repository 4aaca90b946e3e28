"""The driver's requests to name servers and brokers about topics, queues and offsets."""

from __future__ import annotations

import functools
import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.client.core.dialogue import Fields
from escrowmq.client.core.routes import MASTER, MessageQueue, RouteBook, queue_fields
from escrowmq.client.core.send_retry import may_have_new_master
from escrowmq.codec.client_bodies import decode_body
from escrowmq.codec.routes import decode_cluster_info, decode_route
from escrowmq.errors import (
    BrokerBusy,
    ConnectFailed,
    FlowControlled,
    NoNameServer,
    RemoteProtocolError,
    RouteMissing,
    TransportError,
    response_error,
)
from escrowmq.pipeline.brokers.link import BUSY, BrokerLink
from escrowmq.pipeline.brokers.options import ClusterAccess
from escrowmq.pipeline.brokers.ranges import Positions

_log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 10_000
NAMES_TIMEOUT_MS: Final = 3_000
"""Timeout of requests to name servers. They answer from memory, so it is short, and a wrong address
is noticed soon."""

_AT_ONCE: Final = 512
"""Limit of requests in flight on one connection."""

_ATTEMPTS_MAX: Final = 3
"""Limit of attempts to read a queue's first message, while retention removes messages."""

MAY_PASS: Final = (TransportError, RouteMissing, BrokerBusy, FlowControlled)
"""Errors after which a request is retried: the network or the route failed, or the peer is busy."""

T = TypeVar("T")


class _TopicList(msgspec.Struct, rename="camel"):
    """A name server's answer about all topics."""

    topic_list: list[str]


def pause(span_ms: int = 200) -> None:
    """Wait a moment before a retry."""
    threading.Event().wait(span_ms / 1000)


class Cluster:
    """Makes requests to the cluster one at a time, and retries each a limited number of times."""

    def __init__(
        self, access: ClusterAccess, *, tries: int, try_again_ms: int, timeout_ms: int = TIMEOUT_MS
    ) -> None:
        self.book = RouteBook()
        self._access = access
        self._tries = tries
        self._try_again_ms = try_again_ms
        self._timeout_ms = timeout_ms
        self._links: dict[str, BrokerLink] = {}

    def close(self) -> None:
        """Close all connections."""
        while self._links:
            self._links.popitem()[1].close()

    # -- name servers ------------------------------------------------------------------------

    def topics(self, pattern: str, allows: Callable[[str], bool]) -> list[str]:
        """Return the allowed topics whose whole names match a pattern."""
        reply = self._ask_name_servers(Request.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
        # An answer that is not a list of topics must not be mistaken for a cluster without topics.
        found = decode_body(_TopicList, reply.body).topic_list
        wanted = re.compile(pattern)
        return sorted(name for name in found if wanted.fullmatch(name) and allows(name))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the readable queues of a topic now. Raises RouteMissing if there are none."""
        self.refresh_route(topic)
        found = self.book.read_queues(topic)
        if not found:
            raise RouteMissing(f"the topic {topic!r} has no readable queue (perm)")
        return found

    def refresh_route(self, topic: str) -> None:
        """Fetch a topic's route."""
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        reply = self._ask_name_servers(Request.GET_ROUTEINFO_BY_TOPIC, fields)
        self.book.put(topic, decode_route(reply.body))

    def _ask_name_servers(self, code: int, fields: Fields) -> Command:
        return self.retry_network(lambda: self._ask_one_name_server(code, fields))

    def _ask_one_name_server(self, code: int, fields: Fields) -> Command:
        failures = []
        for address in self._access.name_servers:
            try:
                reply = self._run_on_link(
                    address,
                    lambda link: link.take_reply(link.post(code, fields)),
                    timeout_ms=min(self._timeout_ms, NAMES_TIMEOUT_MS),
                )
            except TransportError as error:
                failures.append(str(error))
                continue
            if reply.code == Response.TOPIC_NOT_EXIST:
                raise RouteMissing(
                    f"no name server knows the topic {fields.get('topic')!r}; create it, or "
                    "check that its brokers run and are registered"
                )
            if reply.code == Response.REQUEST_CODE_NOT_SUPPORTED:
                failures.append(
                    f"{address} is no name server; is that a broker's address? Name servers "
                    f"listen on port 9876 by default"
                )
                continue
            if reply.code != Response.SUCCESS:
                raise response_error(reply.code, reply.remark, address=address)
            return reply
        raise NoNameServer(f"no name server answers: {'; '.join(failures)}")

    # -- ends of queues ----------------------------------------------------------------------

    def first_offsets(self, queues: Iterable[MessageQueue]) -> Positions:
        """Return the first stored offset of each queue."""
        return self._offsets(Request.GET_MIN_OFFSET, {queue: {} for queue in queues})

    def end_offsets(self, queues: Iterable[MessageQueue]) -> Positions:
        """Return the end of each queue: the offset that its next message will get."""
        return self._offsets(Request.GET_MAX_OFFSET, {queue: {} for queue in queues})

    def offsets_at_times(self, times: Mapping[MessageQueue, int]) -> Positions:
        """Return, for each queue, the offset of the first message stored at a time or later; the
        end if there is none."""
        asked = {queue: {"timestamp": str(time_ms)} for queue, time_ms in times.items()}
        return self._offsets(Request.SEARCH_OFFSET_BY_TIMESTAMP, asked)

    def first_stored_ms(self, queues: Iterable[MessageQueue]) -> Positions:
        """Return the store time of the first message of each queue; -1 if there is none, or the
        broker does not report it."""
        asked: dict[MessageQueue, Fields] = {queue: {} for queue in queues}
        replies = self._ask_queues(Request.GET_EARLIEST_MSG_STORETIME, asked, is_checked=False)
        found = {}
        for queue, reply in replies.items():
            text = (reply.ext or {}).get("timestamp", "") if reply.code == 0 else ""
            found[queue] = int(text) if text.isdecimal() else -1
        return found

    def first_messages(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, tuple[int, int]]:
        """Return the first stored offset of each queue, and the store time of that message as
        `first_stored_ms` does. Retention may remove the message between the two requests, so they
        are repeated until the offset stays the same. Queues whose offset changed each time are left
        out."""
        found: dict[MessageQueue, tuple[int, int]] = {}
        left = self.first_offsets(queues)
        for _ in range(_ATTEMPTS_MAX):
            stored_ms, after = self.first_stored_ms(left), self.first_offsets(left)
            found |= {q: (low, stored_ms[q]) for q, low in left.items() if after[q] == low}
            left = {queue: low for queue, low in after.items() if queue not in found}
            if not left:
                break
        return found

    def committed_offsets(self, group: str, queues: Iterable[MessageQueue]) -> Positions:
        """Return a group's committed offset in each queue for which a broker has one."""
        asked: dict[MessageQueue, Fields] = {
            queue: {"consumerGroup": group, "setZeroIfNotFound": "false"} for queue in queues
        }
        replies = self._ask_queues(Request.QUERY_CONSUMER_OFFSET, asked, is_checked=False)
        found = {}
        for queue, reply in replies.items():
            if reply.code == Response.QUERY_NOT_FOUND:
                continue
            if reply.code != Response.SUCCESS:
                raise response_error(reply.code, reply.remark, address=queue.broker_name)
            found[queue] = _offset_in(reply, Request.QUERY_CONSUMER_OFFSET)
        return found

    def commit_offsets(self, group: str, positions: Positions) -> None:
        """Commit a group's offsets. One queue of each topic goes first: if two first offsets of a
        group arrive at the same time, RocketMQ's brokers lose one of them (client/offsets)."""
        asked = {
            queue: {"consumerGroup": group, "commitOffset": str(queue_offset)}
            for queue, queue_offset in positions.items()
        }
        places = {(queue.broker_name, queue.topic): queue for queue in asked}
        first = {queue: asked.pop(queue) for queue in places.values()}
        for queues in (first, asked):
            self._ask_queues(Request.UPDATE_CONSUMER_OFFSET, queues)

    def broker_address(self, broker_name: str, *, from_slave: bool = False) -> str:
        """Return a broker's address; with `from_slave`, that of a slave if there is one."""
        known = self.book.addresses(broker_name)
        slaves = sorted(broker_id for broker_id in known if broker_id != MASTER)
        found = known.get(slaves[0] if from_slave and slaves else MASTER)
        if found is None:
            raise RouteMissing(
                f"no route names the master of broker {broker_name!r}; is it running and "
                "registered with the name server?"
            )
        return found

    def brokers(self, topic: str) -> list[str]:
        """Return the brokers of a topic that have a master; without a topic, all those of the
        cluster."""
        if topic:
            self.refresh_route(topic)
        else:
            self.refresh_brokers()
        return sorted(
            name for name in self.book.broker_names() if MASTER in self.book.addresses(name)
        )

    def refresh_brokers(self) -> set[str]:
        """Fetch all brokers of the cluster; return their names."""
        reply = self._ask_name_servers(Request.GET_BROKER_CLUSTER_INFO, {})
        found = decode_cluster_info(reply.body).broker_addr_table
        self.book.replace_brokers(found)
        return set(found)

    def master_address(self, broker_name: str) -> str:
        """Return the address of a broker's master, as the name servers know it now."""

        def look() -> str:
            self.refresh_brokers()
            return self.broker_address(broker_name)

        return self.retry_network(look)

    def ask_broker(self, broker_name: str, code: int, body: bytes) -> Command:
        """Return a broker's reply, whatever its code."""
        try:
            if self.book.address(broker_name) is None:
                self.refresh_brokers()
            reply = self._run_on_link(
                self.broker_address(broker_name),
                lambda link: link.take_reply(link.post(code, {}, body)),
            )
        except (TransportError, RouteMissing) as error:
            self.book.replace_brokers({})  # it may come back elsewhere
            if isinstance(error, RouteMissing):
                raise ConnectFailed(str(error)) from error
            raise
        if may_have_new_master(reply):
            self.book.replace_brokers({})
        return reply

    def retry_network(self, work: Callable[[], T]) -> T:
        """Run a function, and retry it a limited number of times after errors that may pass."""
        for left in range(self._tries - 1, -1, -1):
            try:
                return work()
            except MAY_PASS as error:
                self.close()
                if not left:
                    raise
                _log.warning("%s; asking again", error)
                pause(self._try_again_ms)
        raise AssertionError("the last try returns or raises")

    def _offsets(self, code: int, asked: Mapping[MessageQueue, Fields]) -> Positions:
        replies = self._ask_queues(code, asked)
        return {queue: _offset_in(reply, code) for queue, reply in replies.items()}

    def _ask_queues(
        self, code: int, asked: Mapping[MessageQueue, Fields], *, is_checked: bool = True
    ) -> dict[MessageQueue, Command]:
        """Send one request per queue and return the replies; all requests to one broker are in
        flight together."""
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in asked:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        found: dict[MessageQueue, Command] = {}
        for broker_name, queues in by_broker.items():
            for at in range(0, len(queues), _AT_ONCE):
                chunk = queues[at : at + _AT_ONCE]
                ask = functools.partial(
                    self._ask_broker, broker_name, code, chunk, asked, is_checked=is_checked
                )
                found |= self.retry_network(ask)
        return found

    def _ask_broker(
        self,
        broker_name: str,
        code: int,
        queues: list[MessageQueue],
        asked: Mapping[MessageQueue, Fields],
        *,
        is_checked: bool,
    ) -> dict[MessageQueue, Command]:
        if self.book.address(broker_name) is None:
            for topic in dict.fromkeys(queue.topic for queue in queues):
                self.refresh_route(topic)

        def ask(link: BrokerLink) -> dict[MessageQueue, Command]:
            numbers = [link.post(code, queue_fields(each) | asked[each]) for each in queues]
            replies = [link.take_reply(number) for number in numbers]
            for reply in replies:
                if is_checked or reply.code in BUSY:
                    link.require_success(reply)
            return dict(zip(queues, replies, strict=True))

        return self._run_on_link(self.broker_address(broker_name), ask)

    def _run_on_link(
        self, address: str, work: Callable[[BrokerLink], T], *, timeout_ms: int = 0
    ) -> T:
        link = self._links.get(address)
        if link is None:
            link = BrokerLink(address, self._access, timeout_ms=timeout_ms or self._timeout_ms)
            self._links[address] = link
        try:
            return work(link)
        except BaseException:
            # Replies that no call waits for may still arrive on it.
            self._links.pop(address, link).close()
            raise


def _offset_in(reply: Command, code: int) -> int:
    try:
        return int((reply.ext or {})["offset"])
    except (KeyError, ValueError) as error:
        raise RemoteProtocolError(f"an answer to request {code} has no offset") from error
