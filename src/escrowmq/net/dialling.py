"""Makes connections: over the network, or inside this process, to the broker of a test."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import ssl

P = TypeVar("P", bound=asyncio.BaseProtocol)

INSIDE: Final = "203.0.113."
"""Addresses reserved for documentation (RFC 5737), used in hardly any network. Only those with a
gate are reached inside this process, each with its port."""

GATES_MAX: Final = 20_000
"""Remembered gates, open or closed: a late connection to a closed one is refused here, and never
goes to the network."""

Gate = Callable[[asyncio.BaseProtocol], None]
"""Connects a protocol, on the loop of the caller, with the server behind an address."""

_gates: dict[tuple[str, int], Gate | None] = {}
"""None for a closed gate."""


def open_gate(host: str, port: int, gate: Gate) -> None:
    """Accept connections to an address inside this process."""
    assert host.startswith(INSIDE), host
    assert _gates.get((host, port)) is None, "there is somebody already"
    _gates[host, port] = gate
    assert len(_gates) <= GATES_MAX, "addresses are to be used again"


def close_gate(host: str, port: int) -> None:
    """Refuse connections to an address from now on."""
    if (host, port) in _gates:
        _gates[host, port] = None


async def dial(
    make: Callable[[], P], host: str, port: int, *, tls: ssl.SSLContext | None = None
) -> P:
    """The protocol of a new connection. Raises OSError if it fails."""
    if (host, port) in _gates:
        return _enter(make, _gates[host, port], tls)
    loop = asyncio.get_running_loop()
    server_hostname = host if tls is not None else None
    _, protocol = await loop.create_connection(
        make, host, port, ssl=tls, server_hostname=server_hostname
    )
    return protocol


def _enter(make: Callable[[], P], gate: Gate | None, tls: ssl.SSLContext | None) -> P:
    if gate is None:
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    if tls is not None:
        raise OSError(
            errno.EPROTONOSUPPORT, "there is no TLS inside a test's process; leave out `tls`"
        )
    protocol = make()
    gate(protocol)
    return protocol


def _close_all() -> None:
    """A forked child has no thread that would serve them."""
    _gates.update(dict.fromkeys(_gates))


os.register_at_fork(after_in_child=_close_all)
