"""The clients of a front. A client is identified by its id, its account, its address and the
account of its TLS certificate, so that no client can impersonate another."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from escrowmq.base.fixed_limits import (
    GRPC_CLIENTS_MAX,
    GRPC_CLIENTS_OF_CONNECTION_MAX,
    GRPC_CLIENTS_OF_STRANGER_MAX,
    GRPC_SETTINGS_KEPT_SIZE_MAX,
)
from escrowmq.base.guests import GuestIdentity
from escrowmq.proxy.backend import Backend
from escrowmq.proxy.gen import v2
from escrowmq.proxy.result_codes import CallFault

IDLE_MS: Final = 120_000
"""The time after the last call of a client without a stream until it is removed, as in RocketMQ."""

_SCAN_MS: Final = 10_000


class ClientKey(msgspec.Struct, frozen=True):
    """The identity of a client."""

    id: str
    account: str
    host: str
    identity: str


class ClientStream(Protocol):
    """The stream on which the broker's requests are sent to a client (proxy/telemetry)."""

    def send_request(
        self, code: int, opaque: int, ext: dict[str, str], body: bytes, *, is_one_way: bool
    ) -> None:
        """Send a request of the broker to the client."""

    def send_changed_settings(self) -> None:
        """Send the client its settings, if operators have changed them."""

    def order_reconnect(self) -> None:
        """Make the client reconnect."""


class ClientConnection(Protocol):
    """A connection on which a client makes calls (proxy/dialogue)."""

    def forget_client(self, client: FrontClient) -> None:
        """Forget a client that has left; a later client of that name is a new one."""


class FrontClient:
    """A client of the gRPC front."""

    __slots__ = (
        "connections", "guest", "is_registered", "key", "language", "published_topics", "seen_ms",
        "settings", "settings_size", "stream",
    )  # fmt: skip

    def __init__(self, key: ClientKey, language: str) -> None:
        self.key = key
        self.language = language
        self.guest = 0
        self.is_registered = True
        """Whether the client is registered: it has not left or timed out."""
        self.connections: set[ClientConnection] = set()
        self.seen_ms = 0
        self.settings: v2.Settings | None = None
        self.settings_size = 0
        self.stream: ClientStream | None = None
        """The stream on which requests are sent to the client; None without one."""
        self.published_topics: list[str] = []
        """The topics to which the client publishes. The broker has it as a producer in the groups
        of these names."""

    def send_request(
        self, code: int, opaque: int, ext: dict[str, str], body: bytes, *, is_one_way: bool
    ) -> None:
        """Pass a request of the broker on to the client (base.guests.ClientCallbacks)."""
        if self.stream is not None:
            self.stream.send_request(code, opaque, ext, body, is_one_way=is_one_way)


class FrontClients:
    """All clients of the gRPC front, by identity."""

    def __init__(self, backend: Backend, *, count_max: int = GRPC_CLIENTS_MAX) -> None:
        self._backend = backend
        self._count_max = count_max
        self._clients: dict[ClientKey, FrontClient] = {}
        self.settings_size = 0
        """Total bytes of the settings of all clients."""
        self._scan_at_ms = 0

    def __len__(self) -> int:
        return len(self._clients)

    def registered_clients(self) -> list[FrontClient]:
        """Return all registered clients."""
        return list(self._clients.values())

    def find_or_add(
        self,
        key: ClientKey,
        *,
        language: str,
        connection: ClientConnection,
        port: int,
        known: int,
        is_stranger: bool,
    ) -> FrontClient:
        """Return the client with this identity, adding it if it is new. `known`: the number of
        clients on the connection, which is limited for strangers."""
        client = self._clients.get(key)
        if client is None:
            most = GRPC_CLIENTS_OF_STRANGER_MAX if is_stranger else GRPC_CLIENTS_OF_CONNECTION_MAX
            if len(self._clients) >= self._count_max or known >= most:
                raise CallFault(
                    v2.TOO_MANY_REQUESTS,
                    f"{len(self._clients)} clients are already registered, {known} of them "
                    f"on this connection; {self._count_max} and {most} are allowed; stop "
                    "some, or use fewer client ids",
                )
            client = self._clients[key] = FrontClient(key, language)
            who = GuestIdentity(key.host, port, key.identity, language)
            client.guest = self._backend.add_guest(
                who, client, is_stranger=self._backend.requires_authentication
            )
        client.connections.add(connection)
        return client

    def require_memory(self, client: FrontClient, settings: v2.Settings) -> None:
        """Raise a Fault if a client's settings would exceed the memory limit."""
        size = self.settings_size - client.settings_size + settings.ByteSize()
        if size > GRPC_SETTINGS_KEPT_SIZE_MAX:
            raise CallFault(
                v2.TOO_MANY_REQUESTS,
                f"the settings of {len(self._clients)} clients have {size} bytes; "
                f"{GRPC_SETTINGS_KEPT_SIZE_MAX} are allowed; stop some, or let them name fewer "
                "topics",
            )

    def store_settings(self, client: FrontClient, settings: v2.Settings | None) -> None:
        """Store a client's settings, in place of earlier ones."""
        size = 0 if settings is None else settings.ByteSize()
        if client.is_registered:
            self.settings_size += size - client.settings_size
        client.settings, client.settings_size = settings, size

    def remove_connection(
        self, client: FrontClient, connection: ClientConnection, now_ms: int
    ) -> None:
        """Remove a lost connection from its client. A client without another connection and without
        settings is removed too."""
        client.connections.discard(connection)
        client.seen_ms = now_ms
        if not client.connections and client.settings is None:
            self.remove_client(client, now_ms)

    def remove_client(self, client: FrontClient, now_ms: int) -> None:
        """Remove a client that unregisters or has timed out."""
        if client.is_registered:
            client.is_registered = False
            del self._clients[client.key]
            for connection in client.connections:
                connection.forget_client(client)
            client.connections.clear()
            self.settings_size -= client.settings_size
            self._backend.remove_guest(client.guest, now_ms)

    def wake(self, now_ms: int) -> None:
        """Remove clients that were silent for too long. A client with a stream stays: if it is
        gone, its connection ends."""
        if now_ms < self._scan_at_ms:
            return
        self._scan_at_ms = now_ms + _SCAN_MS
        for client in self.registered_clients():
            if client.stream is None and now_ms - client.seen_ms >= IDLE_MS:
                self.remove_client(client, now_ms)

    def clock_leapt(self, by_ms: int) -> None:
        """Shift the idle timers of all clients by a forward jump of the clock, so that none times
        out because of it."""
        for client in self._clients.values():
            client.seen_ms += by_ms

    def wake_at_ms(self) -> int:
        """Return when to call `wake` next."""
        return self._scan_at_ms
