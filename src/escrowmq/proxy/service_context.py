"""State shared by all methods of the service."""

from __future__ import annotations

import msgspec

from escrowmq.proxy.backend import Backend
from escrowmq.proxy.clients import FrontClients


class FrontOptions(msgspec.Struct, kw_only=True):
    """Configuration of a front."""

    endpoint: tuple[str, int]
    """The address that routes contain."""

    is_of_group: bool = False
    """Whether another broker may take over: routes then contain what clients were given."""

    body_size_max: int
    """Maximum bytes of a message's body."""


class Shared(msgspec.Struct, frozen=True):
    """A front's broker and clients."""

    backend: Backend
    options: FrontOptions
    clients: FrontClients
