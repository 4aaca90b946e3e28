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

INSIDE: Final = "203.0.113."
"""Addresses for documentation (RFC 5737), which hardly any network has. Only those that were given
a gate are looked for here, each with its port."""

GATES_MAX: Final = 20_000
"""Gates that are known, open or closed: what is dialled behind its time is refused here, and does
not go to whoever has that address."""

Gate = Callable[[asyncio.BaseProtocol], None]
"""Connects a protocol, on whose loop it is called, with whoever stands behind an address."""

_gates: dict[tuple[str, int], Gate | None] = {}
"""None where one was closed."""


def open_gate(host: str, port: int, gate: Gate) -> None:
    """Let connections to an address of this process in."""
    assert host.startswith(INSIDE), host
    assert _gates.get((host, port)) is None, "there is somebody already"
    _gates[host, port] = gate
    assert len(_gates) <= GATES_MAX, "addresses are to be used again"


def close_gate(host: str, port: int) -> None:
    """Refuse them from now on."""
    if (host, port) in _gates:
        _gates[host, port] = None


async def dial(
    make: Callable[[], P], host: str, port: int, *, tls: ssl.SSLContext | None = None
) -> P:
    """The protocol of a new connection. OSError says why there is none."""
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
    """A forked child has no thread that would serve it."""
    _gates.update(dict.fromkeys(_gates))


os.register_at_fork(after_in_child=_close_all)
