"""Which brokers there are, and questions to one or all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import msgspec

from escrowmq.base.command import Command
from escrowmq.client.core.routes import MASTER
from escrowmq.client.instance import Instance
from escrowmq.codec.client_bodies import decode_body
from escrowmq.errors import RouteMissing

T = TypeVar("T")


class Cluster:
    """The brokers as an admin client sees them. Names of topics and groups are the users'."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance

    def wrap(self, name: str) -> str:
        """The brokers' name for a topic or a group."""
        return self.instance.options.wrap(name)

    def unwrap(self, name: str) -> str:
        """The user's name for a topic or a group."""
        return self.instance.options.unwrap(name)

    async def masters(self, broker: str = "") -> dict[str, str]:
        """Addresses of all masters by broker name, or that of one broker. RouteMissing without
        any."""
        self.instance.check_usable()
        await self.instance.refresh_brokers()
        book = self.instance.book
        if broker:
            return {broker: self.instance.address_of(broker)}
        found = {name: book.address(name, MASTER) for name in sorted(book.broker_names())}
        masters = {name: address for name, address in found.items() if address is not None}
        if not masters:
            raise RouteMissing(
                "the name server knows no broker; is one running, and started with its address?"
            )
        return masters

    async def of_topic(self, topic: str) -> dict[str, str]:
        """Addresses of the masters that have a topic, by broker name. RouteMissing when there are
        none."""
        self.instance.check_usable()
        wire_topic = self.wrap(topic)
        await self.instance.refresh(wire_topic)
        route = await self.instance.route(wire_topic)
        names = sorted(data.broker_name for data in route.broker_datas or ())
        return {name: self.instance.address_of(name) for name in names}

    async def ask(
        self,
        address: str,
        code: int,
        fields: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Command:
        """The reply of one server; ResponseError when it refuses."""
        return await self.instance.ask(address, code, dict(fields or {}), body)

    async def ask_for(
        self,
        address: str,
        code: int,
        kind: type[T],
        *,
        fields: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> T:
        """The typed body of a reply."""
        reply = await self.ask(address, code, fields, body)
        return decode_body(kind, reply.body)

    async def each(
        self, masters: Mapping[str, str], work: Callable[[str, str], Awaitable[T]]
    ) -> list[T]:
        """What the work gives for each master (name, address), all at the same time."""
        return list(await asyncio.gather(*(work(*master) for master in masters.items())))


P = TypeVar("P", bound=msgspec.Struct)
