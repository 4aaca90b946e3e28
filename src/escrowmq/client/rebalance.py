"""Computes, after each change, which queues this member of a group reads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from escrowmq.base.codes import Request, Response
from escrowmq.base.message import Topic
from escrowmq.client.core.allocation import STRATEGIES, allocate
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.unreadable_answers import convert_parse_errors
from escrowmq.client.instance import ClientInstance
from escrowmq.codec.client_bodies import decode_body
from escrowmq.errors import (
    BrokerFault,
    EscrowMQError,
    PermissionDenied,
    RouteMissing,
    response_error,
)

_log = logging.getLogger(__name__)

_AGAIN_S: Final = 1.0
_TOGETHER_S: Final = 0.02
"""Changes within this many seconds are handled together."""


class _MembersAnswer(msgspec.Struct, rename="camel"):
    consumer_id_list: list[str] = []


class AssignedConsumer(Protocol):
    """The consumer, which reads the queues assigned to it."""

    instance: ClientInstance
    wire_group: str

    def wanted_topics(self) -> list[str]:
        """Topics to read, by the brokers' names."""

    async def assign_queues(self, topic: str, queues: list[MessageQueue]) -> bool:
        """Read exactly these queues of a topic from now on; return False to be called again
        soon."""

    def record_queues(self, topic: str, queues: Sequence[MessageQueue]) -> None:
        """Record all queues that a topic has now; none if the topic is unknown."""

    def report_refusal(self, topic: str, error: PermissionDenied | None) -> None:
        """Report that brokers refuse to let this client read a topic. None reports that they no
        longer refuse."""


class Rebalancer:
    """Assigns queues to this member in rounds: periodically, and after `request_round`."""

    def __init__(
        self, shares: AssignedConsumer, *, strategy: str, interval_ms: int, takes_all: bool
    ) -> None:
        self._consumer = shares
        self._strategy = STRATEGIES[strategy]
        self._interval_s = interval_ms / 1000
        self._takes_all = takes_all
        self._due = asyncio.Event()
        self._is_over = False
        self._round = asyncio.Lock()
        self._silent: set[str] = set()
        """Brokers that listed no members in this round; the others are asked before them."""
        self._logged_failures: dict[str, type[EscrowMQError]] = {}

    def request_round(self) -> None:
        """Request a round, because something has changed."""
        self._due.set()

    async def run(self) -> None:
        """Run rounds while the consumer is open."""
        while not self._is_over:
            # Before the round: a change while it runs must cause another one.
            self._due.clear()
            async with self._round:
                is_settled = await self.assign_all()
            try:
                async with asyncio.timeout(self._interval_s if is_settled else _AGAIN_S):
                    await self._due.wait()
                    await asyncio.sleep(_TOGETHER_S)
            except TimeoutError:
                continue

    async def stop(self) -> None:
        """Run no more rounds. Wait for a running one first, so that the caller also releases the
        queues that it assigns."""
        self._is_over = True
        self._due.set()
        async with self._round:
            pass

    async def assign_all(self) -> bool:
        """Assign the queues of every topic once; return whether all succeeded."""
        is_settled = True
        self._silent.clear()
        for topic in self._consumer.wanted_topics():
            if self._is_over:
                break
            try:
                queues = await self._assigned_queues(topic)
                if queues is None or not await self._consumer.assign_queues(topic, queues):
                    is_settled = False
                self._logged_failures.pop(topic, None)
                self._consumer.report_refusal(topic, None)
            except RouteMissing as error:
                # Its route is watched, and a change of it causes a round. Retry topics are created
                # late.
                self._consumer.record_queues(topic, ())
                if not topic.startswith(Topic.RETRY_PREFIX):
                    self._log_failure(topic, error)
            except EscrowMQError as error:
                self._log_failure(topic, error)
                is_settled = False
                if isinstance(error, PermissionDenied):
                    self._consumer.report_refusal(topic, error)
        return is_settled

    def _log_failure(self, topic: str, error: EscrowMQError) -> None:
        """Log a failure, but not the same one every second."""
        level = (
            logging.DEBUG if self._logged_failures.get(topic) is type(error) else logging.WARNING
        )
        self._logged_failures[topic] = type(error)
        _log.log(level, "the queues of %s stay as they are: %s", topic, error)

    async def _assigned_queues(self, topic: str) -> list[MessageQueue] | None:
        queues = await self._consumer.instance.queues_to_read(topic)
        self._consumer.record_queues(topic, queues)
        if self._takes_all or not queues:
            return list(queues)
        names = list(dict.fromkeys(queue.broker_name for queue in queues))
        members = await self._fetch_members_from_any(names)
        me = self._consumer.instance.client_id
        if me not in members:
            # The broker does not know this member yet: send heartbeats to all brokers, and come
            # again.
            await self._consumer.instance.heartbeats.send_to_all()
            members = await self._fetch_members_from_any(names)
            if me not in members:
                return None
        return allocate(self._strategy, queues, members=members, me=me)

    async def _fetch_members_from_any(self, broker_names: list[str]) -> list[str]:
        """Return the members as listed by the first of these brokers that answers. Members ask in
        the same order, so that they see the same list. RocketMQ's clients choose at random, so that
        one silent broker does not keep them from the queues of the others either."""
        names = sorted(broker_names, key=lambda name: name in self._silent)
        for name in names[:-1]:
            try:
                return await self._fetch_members(name)
            except PermissionDenied:
                raise
            except EscrowMQError as error:
                self._silent.add(name)
                _log.debug("broker %s does not list the members of the group: %s", name, error)
        return await self._fetch_members(names[-1])

    async def _fetch_members(self, broker_name: str) -> list[str]:
        instance = self._consumer.instance
        address = instance.reader_address(broker_name)
        fields = {"consumerGroup": self._consumer.wire_group}
        reply = await instance.request(address, Request.GET_CONSUMER_LIST_BY_GROUP, fields)
        if reply.code != Response.SUCCESS:
            error = response_error(reply.code, reply.remark, address=address)
            if type(error) is BrokerFault:
                return []  # the group has no members there
            raise error
        with convert_parse_errors(address, Request.GET_CONSUMER_LIST_BY_GROUP):
            return decode_body(_MembersAnswer, reply.body).consumer_id_list
