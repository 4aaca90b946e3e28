"""A listening port and its protocols."""

from __future__ import annotations

import socket

import msgspec

from escrowmq.base.wire import Wire
from escrowmq.net.tls import TlsPolicy

REMOTING_AND_GRPC = (Wire.REMOTING, Wire.GRPC)
"""The protocols of a port that serves both, told apart by the first bytes of a connection."""


class ListeningPort(msgspec.Struct, frozen=True):
    """A bound socket and its protocols."""

    socket: socket.socket
    wires: tuple[Wire, ...] = (Wire.REMOTING,)
    tls: TlsPolicy | None = None
    """The port's own TLS policy, used if `PortOptions.tls` is None."""
    has_tls: bool = True
    """Whether the port uses TLS by the policy `PortOptions.tls`."""
