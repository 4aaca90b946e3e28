"""Settings shared by all clients of the SDK."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

import msgspec

from escrowmq.client.core.addresses import parse_addresses
from escrowmq.client.core.credentials import Credentials as Credentials
from escrowmq.client.core.namespace import with_namespace, without_namespace
from escrowmq.client.tls import TlsSetting
from escrowmq.errors import UsageError

NAME_SERVERS_VARIABLE: Final = "NAMESRV_ADDR"


class ClientOptions(msgspec.Struct, kw_only=True, frozen=True):
    """Settings of one connection layer. Times are in milliseconds."""

    name_servers: tuple[str, ...]
    credentials: Credentials | None = None
    tls: TlsSetting = None
    """TLS for all connections: True trusts the system's root certificates, a `Tls` sets details."""
    namespace: str = ""
    is_namespace_v2: bool = False
    """Version 2 sends the namespace with each request; version 1 prefixes names with it."""
    instance_name: str = ""
    """Part of the client id; generated if empty."""
    connect_timeout_ms: int = 3_000
    request_timeout_ms: int = 3_000
    """For requests to name servers, heartbeats and administration."""
    route_interval_ms: int = 30_000
    heartbeat_interval_ms: int = 30_000

    def with_namespace(self, name: str) -> str:
        """Return the name that brokers use for a user's topic or group."""
        return name if self.is_namespace_v2 else with_namespace(name, self.namespace)

    def without_namespace(self, name: str) -> str:
        """Return the user's name for a topic or group, from the name that brokers use."""
        return name if self.is_namespace_v2 else without_namespace(name, self.namespace)


def unknown_setting_error(unknown: Sequence[str], known: Sequence[str], *, of: str) -> UsageError:
    """Make the error for unknown settings; it suggests the most similar known one."""
    import difflib  # which nothing else needs

    said = ", ".join(unknown)
    near = difflib.get_close_matches(unknown[0], known, n=1)
    if near:
        return UsageError(f"{said}: no such setting; did you mean {near[0]}?")
    return UsageError(f"{said}: no such setting; {of} has {', '.join(known)}")


def parse_client_options(
    name_servers: str | Sequence[str] | None, settings: dict[str, object]
) -> ClientOptions:
    """Make options from the arguments of a client's constructor: name servers (None means the
    environment variable) and keywords. Raises UsageError, which names the wrong argument."""
    unknown = [name for name in settings if name not in ClientOptions.__struct_fields__]
    if unknown:
        raise unknown_setting_error(unknown, ClientOptions.__struct_fields__[1:], of="a connection")
    found = name_servers or os.environ.get(NAME_SERVERS_VARIABLE, "")
    for name, value in settings.items():
        if name.endswith("_ms") and not (isinstance(value, int) and value > 0):
            raise UsageError(f"{name}={value!r}: a whole number of milliseconds is expected")
    return ClientOptions(name_servers=parse_addresses(found), **settings)  # type: ignore[arg-type]
