"""State shared by all methods of the service."""

from __future__ import annotations

import msgspec

from escrowmq.proxy.backend import Backend
from escrowmq.proxy.clients import FrontClients
from escrowmq.proxy.clock_leaps import ClockLeaps


class FrontOptions(msgspec.Struct, kw_only=True):
    """Configuration of a front."""

    endpoint: tuple[str, int]
    """The address that routes contain."""

    is_of_group: bool = False
    """Whether another broker may take over: routes then contain what clients were given."""

    body_size_max: int
    """Maximum bytes of a message's body."""


class Shared(msgspec.Struct, frozen=True):
    """A front's broker and clients, and how its clock was set."""

    backend: Backend
    options: FrontOptions
    clients: FrontClients
    leaps: ClockLeaps
