"""The brokers of a cluster, and ways to send requests to one or all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.client.core.routes import MASTER
from escrowmq.client.core.unreadable_answers import convert_parse_errors
from escrowmq.client.instance import ClientInstance
from escrowmq.codec.client_bodies import decode_body
from escrowmq.codec.large_answers import decompressed_body
from escrowmq.codec.routes import DepartedBroker, decode_departed_brokers
from escrowmq.errors import RouteMissing

T = TypeVar("T")
_NO_BROKER: Final = "the name server knows no broker; is one running, and started with its address?"


class ClusterCalls:
    """The cluster's brokers, as an admin client sees them. Methods take the user's names of topics
    and groups, without the namespace."""

    def __init__(self, instance: ClientInstance) -> None:
        self.instance = instance

    def with_namespace(self, name: str) -> str:
        """Return the name that brokers use for a user's topic or group."""
        return self.instance.options.with_namespace(name)

    def without_namespace(self, name: str) -> str:
        """Return the user's name for a topic or group, from the name that brokers use."""
        return self.instance.options.without_namespace(name)

    async def masters(self, broker: str = "") -> dict[str, str]:
        """Return the addresses of all masters by broker name, or only that of `broker`. Raises
        RouteMissing if there are none."""
        names = await self._broker_names()
        book = self.instance.book
        if broker:
            return {broker: self.instance.address_of(broker)}
        found = {name: book.address(name, MASTER) for name in names}
        masters = {name: address for name, address in found.items() if address is not None}
        if not masters:
            raise RouteMissing(_NO_BROKER)
        return masters

    async def all_read_addresses(self) -> dict[str, str]:
        """Return an address to read from for each broker, by name: the master's, or a slave's if
        there is no master. Raises RouteMissing if there are no brokers."""
        book, names = self.instance.book, await self._broker_names()
        readers = self.read_addresses(name for name in names if book.addresses(name))
        if not readers:
            raise RouteMissing(_NO_BROKER)
        return readers

    async def _broker_names(self) -> list[str]:
        self.instance.check_usable()
        await self.instance.refresh_brokers()
        return sorted(self.instance.book.broker_names())

    async def gone(self) -> list[DepartedBroker]:
        """Return the brokers that left within the last hour, as far as the name server remembers
        them."""
        self.instance.check_usable()
        names = self.instance.names
        reply = await names.ask(Request.ESCROW_GONE_BROKERS)
        # RocketMQ's name server remembers none. A failed extra request must not fail the answer.
        if reply.code != Response.SUCCESS or not reply.body:
            return []
        return names.decode_reply(reply, Request.ESCROW_GONE_BROKERS, decode_departed_brokers)

    async def missing(self) -> list[DepartedBroker]:
        """Return the brokers that left within the last hour and that no broker of the same name
        replaces. Answers of other brokers lack their data."""
        gone = await self.gone()
        if not gone:
            return []
        here = (await self.instance.names.fetch_brokers()).broker_addr_table
        return [one for one in gone if one.name not in here]

    async def missing_names(self) -> list[str]:
        """Return the names of the missing brokers, sorted."""
        return sorted({one.name for one in await self.missing()})

    async def broker_names_of(self, topic: str) -> list[str]:
        """Return the names of the brokers that have a topic. Raises RouteMissing if there are
        none."""
        self.instance.check_usable()
        wire_topic = self.with_namespace(topic)
        await self.instance.refresh_route(wire_topic)
        route = await self.instance.route(wire_topic)
        names = sorted(data.broker_name for data in route.broker_datas or ())
        if not names:
            raise RouteMissing(
                f"the topic {topic!r} is on none of the brokers that are up; are "
                "its brokers running?"
            )
        return names

    def read_addresses(self, names: Iterable[str]) -> dict[str, str]:
        """Return an address to read from for each named broker: the master's, or a slave's if there
        is no master. mqadmin does the same (BrokerData.selectBrokerAddr)."""
        return {name: self.instance.reader_address(name) for name in names}

    def masters_to_change(self, topic: str, names: Sequence[str]) -> dict[str, str]:
        """Return the masters of all brokers that have a topic. Raises RouteMissing if one of them
        has no master, because a change must be made on all or none."""
        found = {name: self.instance.book.address(name, MASTER) for name in names}
        masters = {name: address for name, address in found.items() if address is not None}
        if len(masters) < len(names):
            away = ", ".join(name for name in names if name not in masters)
            raise RouteMissing(
                f"of the brokers that have the topic {topic!r}, {away} has no master at "
                "present; nothing was changed on any of them. Start its master, or stop its "
                "slaves if it is gone for good"
            )
        return masters

    async def ask(
        self,
        address: str,
        code: int,
        fields: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Command:
        """Send a request to one server and return its reply; raises ResponseError if it refuses."""
        return await self.instance.ask(address, code, dict(fields or {}), body)

    async def ask_decoded(
        self,
        address: str,
        code: int,
        kind: type[T],
        *,
        fields: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> T:
        """Send a request to one server and return the decoded body of its reply."""
        reply = await self.ask(address, code, fields, body)
        with convert_parse_errors(address, code):
            return decode_body(kind, decompressed_body(reply))

    async def run_on_each(
        self, masters: Mapping[str, str], work: Callable[[str, str], Awaitable[T]]
    ) -> list[T]:
        """Run the work for each master (name, address) concurrently, and return the results. If one
        fails, its error is raised after all have finished, so that no change is still in flight
        when the caller reacts."""
        works = (work(*master) for master in masters.items())
        found: list[T] = []
        for one in await asyncio.gather(*works, return_exceptions=True):
            if isinstance(one, BaseException):
                raise one
            found.append(one)
        return found
