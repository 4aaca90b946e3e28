"""The clients of a front. One is known by its id, the account that it names, where it comes from
and what its connection's certificate stands for: nobody steps into the place of another."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from escrowmq.base.fixed_limits import (
    GRPC_CLIENTS_MAX,
    GRPC_CLIENTS_OF_CONNECTION_MAX,
    GRPC_CLIENTS_OF_STRANGER_MAX,
)
from escrowmq.base.guests import Who
from escrowmq.proxy.backend import Backend
from escrowmq.proxy.gen import v2
from escrowmq.proxy.result_codes import Fault

IDLE_MS: Final = 120_000
"""For so long a client is remembered that has no connection, as at RocketMQ."""

_SCAN_MS: Final = 10_000


class ClientKey(msgspec.Struct, frozen=True):
    """By what a client is known."""

    id: str
    account: str
    host: str
    identity: str


class ClientStream(Protocol):
    """The way to say something to a client (proxy/telemetry)."""

    def asked(
        self, code: int, opaque: int, ext: dict[str, str], body: bytes, *, is_one_way: bool
    ) -> None:
        """The broker asks something."""

    def refresh(self) -> None:
        """Tell the client its settings, if operators have changed what it was told."""

    def reconnect(self) -> None:
        """Have the client connect anew."""


class Client:
    """One client."""

    __slots__ = (
        "connections", "guest", "is_here", "key", "language", "produces", "seen_ms", "settings",
        "stream",
    )  # fmt: skip

    def __init__(self, key: ClientKey, language: str) -> None:
        self.key = key
        self.language = language
        self.guest = 0
        self.is_here = True
        """Whether it has not left yet."""
        self.connections: set[int] = set()
        self.seen_ms = 0
        self.settings: v2.Settings | None = None
        self.stream: ClientStream | None = None
        """By which it can be asked something."""
        self.produces: list[str] = []
        """Topics that it publishes to; the broker knows it as a member of their groups."""

    def asked(
        self, code: int, opaque: int, ext: dict[str, str], body: bytes, *, is_one_way: bool
    ) -> None:
        """The broker asks something (base.guests.Ear)."""
        if self.stream is not None:
            self.stream.asked(code, opaque, ext, body, is_one_way=is_one_way)


class FrontClients:
    """All of them."""

    def __init__(self, backend: Backend, *, count_max: int = GRPC_CLIENTS_MAX) -> None:
        self._backend = backend
        self._count_max = count_max
        self._clients: dict[ClientKey, Client] = {}
        self._scan_at_ms = 0

    def __len__(self) -> int:
        return len(self._clients)

    def all(self) -> list[Client]:
        """Who is there."""
        return list(self._clients.values())

    def find(
        self,
        key: ClientKey,
        *,
        language: str,
        connection: int,
        port: int,
        known: int,
        is_stranger: bool,
    ) -> Client:
        """The client, who may be a new one; `known` are those of this connection, of which a
        stranger's may have few."""
        client = self._clients.get(key)
        if client is None:
            most = GRPC_CLIENTS_OF_STRANGER_MAX if is_stranger else GRPC_CLIENTS_OF_CONNECTION_MAX
            if len(self._clients) >= self._count_max or known >= most:
                raise Fault(
                    v2.TOO_MANY_REQUESTS,
                    f"{len(self._clients)} clients are here already, {known} of them on this "
                    f"connection; {self._count_max} and {most} are "
                    "allowed; stop some, or use fewer client ids",
                )
            client = self._clients[key] = Client(key, language)
            who = Who(key.host, port, key.identity, language)
            client.guest = self._backend.meet(who, client, is_stranger=self._backend.judges)
        client.connections.add(connection)
        return client

    def parted(self, client: Client, connection: int, now_ms: int) -> None:
        """A connection of a client is gone."""
        client.connections.discard(connection)
        client.seen_ms = now_ms
        if not client.connections and client.settings is None:
            self.leave(client, now_ms)

    def leave(self, client: Client, now_ms: int) -> None:
        """A client says good-bye, or is not heard of any more."""
        if client.is_here:
            client.is_here = False
            del self._clients[client.key]
            self._backend.leave(client.guest, now_ms)

    def wake(self, now_ms: int) -> None:
        """Forget those who have been away for too long."""
        if now_ms < self._scan_at_ms:
            return
        self._scan_at_ms = now_ms + _SCAN_MS
        for client in self.all():
            if not client.connections and now_ms - client.seen_ms >= IDLE_MS:
                self.leave(client, now_ms)

    def wake_at_ms(self) -> int:
        """When the next look is due."""
        return self._scan_at_ms
