"""A port of ours, and what is spoken there."""

from __future__ import annotations

import socket

import msgspec

from escrowmq.base.wire import Wire
from escrowmq.net.tls import TlsDoor

BOTH = (Wire.REMOTING, Wire.GRPC)
"""A port that serves either, by the first bytes of a connection."""


class Listener(msgspec.Struct, frozen=True):
    """A bound socket that is to be listened at."""

    socket: socket.socket
    wires: tuple[Wire, ...] = (Wire.REMOTING,)
    tls: TlsDoor | None = None
    """How this port speaks TLS where `Doors.tls` says nothing."""
