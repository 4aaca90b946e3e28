"""How connections are made: over the network, or inside this process, to the broker of a test."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import ssl

P = TypeVar("P", bound=asyncio.BaseProtocol)

INSIDE: Final = "192.0.2."
"""Addresses for documentation (RFC 5737): no network has them. What asks for one of them while no
gate is open there is refused at once, and nothing leaves the machine."""

Gate = Callable[[asyncio.BaseProtocol], None]
"""Connects a protocol, on whose loop it is called, with whoever stands behind an address."""

_gates: dict[tuple[str, int], Gate] = {}


def open_gate(host: str, port: int, gate: Gate) -> None:
    """Let connections to an address of this process in."""
    assert host.startswith(INSIDE), host
    _gates[host, port] = gate


def close_gate(host: str, port: int) -> None:
    """Refuse them from now on."""
    _gates.pop((host, port), None)


async def dial(
    make: Callable[[], P], host: str, port: int, *, tls: ssl.SSLContext | None = None
) -> P:
    """The protocol of a new connection. OSError says why there is none."""
    if host.startswith(INSIDE):
        return _enter(make, host, port, tls)
    loop = asyncio.get_running_loop()
    server_hostname = host if tls is not None else None
    _, protocol = await loop.create_connection(
        make, host, port, ssl=tls, server_hostname=server_hostname
    )
    return protocol


def _enter(make: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None) -> P:
    gate = _gates.get((host, port))
    if gate is None:
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    if tls is not None:
        raise OSError(
            errno.EPROTONOSUPPORT, "there is no TLS inside a test's process; leave out `tls`"
        )
    protocol = make()
    gate(protocol)
    return protocol


# A forked child has no thread that would serve it.
os.register_at_fork(after_in_child=_gates.clear)
