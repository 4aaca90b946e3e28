"""A listening port and its protocols."""

from __future__ import annotations

import socket

import msgspec

from escrowmq.base.wire import Wire
from escrowmq.net.tls import TlsPolicy

BOTH = (Wire.REMOTING, Wire.GRPC)
"""A port that serves either protocol, by the first bytes of a connection."""


class Listener(msgspec.Struct, frozen=True):
    """A bound socket and its protocols."""

    socket: socket.socket
    wires: tuple[Wire, ...] = (Wire.REMOTING,)
    tls: TlsPolicy | None = None
    """How this port speaks TLS where `PortOptions.tls` says nothing."""
    has_tls: bool = True
    """Whether TLS of `PortOptions.tls` is spoken there."""
