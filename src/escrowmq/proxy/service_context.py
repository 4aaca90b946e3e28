"""What all methods of the service share."""

from __future__ import annotations

import msgspec

from escrowmq.proxy.backend import Backend
from escrowmq.proxy.clients import FrontClients


class FrontOptions(msgspec.Struct, kw_only=True):
    """How a front is set up."""

    endpoint: tuple[str, int]
    """Where clients are to connect to."""

    body_size_max: int
    """Bytes of a message's body."""


class Shared(msgspec.Struct, frozen=True):
    """One front's broker, and who speaks with it."""

    backend: Backend
    options: FrontOptions
    clients: FrontClients
