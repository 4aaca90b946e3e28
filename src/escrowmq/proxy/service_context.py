"""State shared by all methods of the service."""

from __future__ import annotations

import msgspec

from escrowmq.proxy.backend import Backend
from escrowmq.proxy.clients import FrontClients
from escrowmq.proxy.clock_leaps import ClockLeaps


class FrontOptions(msgspec.Struct, kw_only=True):
    """The settings of a gRPC front."""

    endpoint: tuple[str, int]
    """The address of this front, for routes."""

    is_of_group: bool = False
    """Whether another broker may take over: routes then contain the addresses that the client was
    given."""

    body_size_max: int
    """Maximum bytes of a message's body."""


class ServiceContext(msgspec.Struct, frozen=True):
    """The objects that all methods of the service share: the broker, the clients, and the jumps of
    the clock."""

    backend: Backend
    options: FrontOptions
    clients: FrontClients
    leaps: ClockLeaps
