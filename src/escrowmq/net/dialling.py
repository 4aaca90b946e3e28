"""Opens connections: over the network, or inside this process to the broker of a test."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import ssl

P = TypeVar("P", bound=asyncio.BaseProtocol)

TEST_ADDRESS_PREFIX: Final = "203.0.113."
"""The prefix of the addresses that may lead to a server in this process: those that RFC 5737
reserves for documentation, which hardly any network uses."""

INSIDE_SERVERS_MAX: Final = 20_000
"""The most gates that are remembered, open or closed. A closed one is remembered so that a late
connection to it is refused, instead of going to the network."""

InsideServer = Callable[[asyncio.BaseProtocol], None]
"""Connects a protocol, on the caller's event loop, with the server behind an address."""

_inside_servers: dict[tuple[str, int], InsideServer | None] = {}
"""Gates by address and port; None for a closed one."""


def register_inside_server(host: str, port: int, gate: InsideServer) -> None:
    """Accept connections to an address inside this process."""
    assert host.startswith(TEST_ADDRESS_PREFIX), host
    assert _inside_servers.get((host, port)) is None, "there is somebody already"
    _inside_servers[host, port] = gate
    assert len(_inside_servers) <= INSIDE_SERVERS_MAX, "addresses are to be used again"


def unregister_inside_server(host: str, port: int) -> None:
    """Refuse connections to an address from now on."""
    if (host, port) in _inside_servers:
        _inside_servers[host, port] = None


async def dial(
    make: Callable[[], P], host: str, port: int, *, tls: ssl.SSLContext | None = None
) -> P:
    """Open a connection and return its protocol object. Raises OSError if that fails."""
    if (host, port) in _inside_servers:
        return _connect_to_gate(make, _inside_servers[host, port], tls)
    loop = asyncio.get_running_loop()
    server_hostname = host if tls is not None else None
    _, protocol = await loop.create_connection(
        make, host, port, ssl=tls, server_hostname=server_hostname
    )
    return protocol


def _connect_to_gate(
    make: Callable[[], P], gate: InsideServer | None, tls: ssl.SSLContext | None
) -> P:
    if gate is None:
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    if tls is not None:
        raise OSError(
            errno.EPROTONOSUPPORT, "there is no TLS inside a test's process; leave out `tls`"
        )
    protocol = make()
    gate(protocol)
    return protocol


def _close_all_gates() -> None:
    """Close all gates in a forked child, which has no thread to serve them."""
    _inside_servers.update(dict.fromkeys(_inside_servers))


os.register_at_fork(after_in_child=_close_all_gates)
