"""The protocols of incoming connections."""

from __future__ import annotations

import enum


class Wire(enum.Enum):
    """The protocol of a connection."""

    REMOTING = "remoting"
    """RocketMQ's own protocol: all clients before 5.0, its tools and its brokers."""

    GRPC = "gRPC"
    """gRPC over HTTP/2: the clients of 5.x."""

    HA = "HA"
    """RocketMQ's replication of the log from a master to its slaves."""

    GROUP = "group"
    """EscrowMQ's own replication of log and tables, from a master to the other members of its
    group."""
