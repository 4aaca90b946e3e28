"""The protocols that somebody may speak who comes in by one of our doors."""

from __future__ import annotations

import enum


class Wire(enum.Enum):
    """How a connection speaks."""

    REMOTING = "remoting"
    """RocketMQ's own protocol, of all clients before 5.0, of its tools and its brokers."""

    GRPC = "gRPC"
    """gRPC over HTTP/2, of the clients of 5.x."""
