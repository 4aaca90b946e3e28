"""The name servers of one client: it uses one until that fails, then the next."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.ports import RandomSource
from escrowmq.client.connection import Connection
from escrowmq.client.core.dialogue import Fields
from escrowmq.client.core.unreadable_answers import convert_parse_errors
from escrowmq.client.pool import ConnectionPool
from escrowmq.codec.routes import ClusterInfo, TopicRoute, decode_cluster_info, decode_route
from escrowmq.errors import (
    ConnectFailed,
    NoNameServer,
    RouteMissing,
    TransportError,
    response_error,
)

T = TypeVar("T")
_log = logging.getLogger(__name__)
_PROBE_CODE: Final = (Request.GET_ROUTEINFO_BY_TOPIC, Request.GET_BROKER_CLUSTER_INFO)
"""A request code that every name server answers. A broker whose address was given by mistake does
not."""


class NameServers:
    """Sends requests to the name servers. Raises NoNameServer if none of them answers."""

    def __init__(
        self,
        addresses: Sequence[str],
        pool: ConnectionPool,
        chance: RandomSource,
        *,
        timeout_s: float,
    ) -> None:
        self.addresses = tuple(addresses)
        self._pool = pool
        self._timeout_s = timeout_s
        self.has_answered = False
        """Whether any of them ever answered; if not, their addresses may be wrong."""
        # Clients of one configuration spread over all name servers.
        self._index = chance.randrange(len(self.addresses))

    async def ask(self, code: int, fields: Fields | None = None, body: bytes = b"") -> Command:
        """Return the reply of the first name server that answers, whatever its code."""
        failures: list[str] = []
        for _ in self.addresses:
            address = self.addresses[self._index]
            try:
                connection = await self._pool.get(address)
                reply = await connection.request(code, fields, body, timeout_s=self._timeout_s)
                if reply.code != Response.REQUEST_CODE_NOT_SUPPORTED or code not in _PROBE_CODE:
                    self.has_answered = True
                    return reply
                raise ConnectFailed(
                    f"{address} is not a name server; is it a broker's address? Name servers "
                    "listen on port 9876 by default"
                )
            except TransportError as error:
                failures.append(str(error))
                self._try_next_server(address, error)
        raise NoNameServer(
            f"none of {len(self.addresses)} name servers answers: {'; '.join(failures)}"
        )

    async def fetch_route(self, topic: str) -> TopicRoute:
        """Return a topic's route; raises RouteMissing if the name server does not know it."""
        reply = await self.ask(
            Request.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"}
        )
        if reply.code == Response.TOPIC_NOT_EXIST:
            raise RouteMissing(
                f"no name server knows the topic {topic!r}; create it, or let brokers create "
                "topics (autoCreateTopicEnable), and check that the brokers are registered"
            )
        return self.decode_reply(reply, Request.GET_ROUTEINFO_BY_TOPIC, decode_route)

    async def fetch_brokers(self) -> ClusterInfo:
        """Return all registered brokers."""
        return await self.ask_decoded(Request.GET_BROKER_CLUSTER_INFO, decode_cluster_info)

    async def ask_decoded(self, code: int, decode: Callable[[bytes], T]) -> T:
        """Send a request and decode its answer. Raises RemoteProtocolError if that fails."""
        return self.decode_reply(await self.ask(code), code, decode)

    def is_name_server(self, connection: Connection) -> bool:
        """Whether a connection leads to a name server."""
        return connection.address in self.addresses

    def raise_refusal(self, reply: Command) -> None:
        """Raise ResponseError if a reply is a refusal."""
        if reply.code != Response.SUCCESS:
            raise response_error(reply.code, reply.remark, address=self.addresses[self._index])

    def decode_reply(self, reply: Command, code: int, decode: Callable[[bytes], T]) -> T:
        """Decode a reply; raise ResponseError if it is a refusal."""
        self.raise_refusal(reply)
        with convert_parse_errors(self.addresses[self._index], code):
            return decode(reply.body)

    def _try_next_server(self, address: str, error: Exception) -> None:
        if self.addresses[self._index] == address:
            self._index = (self._index + 1) % len(self.addresses)
            if len(self.addresses) > 1:
                following = self.addresses[self._index]
                _log.warning("name server %s fails: %s; %s is next", address, error, following)
