"""A connection as the broker core sees it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec

from escrowmq.base.answer import Reply
from escrowmq.broker.dialogue import Dialogue
from escrowmq.codec.ids import pack_host

Q = TypeVar("Q")


class LongRequest(msgspec.Struct, Generic[Q]):
    """A request that is served over several turns. Further requests of its sender wait until it is
    finished."""

    request: Q
    parts: Iterator[Reply]
    """The steps of the request. Each returns HELD, except the last, which returns the answer."""


class Peer:
    """A connection as the broker core sees it: its address, identity and state."""

    __slots__ = (
        "account",
        "address",
        "counted_for",
        "dialogue",
        "host",
        "id",
        "identity",
        "is_guest",
        "is_stranger",
        "is_unreachable",
        "knows_signed_ids",
        "long",
        "packed",
        "proved_requests_count",
        "session",
        "signed_number",
    )

    def __init__(self, peer: int, host: str, port: int) -> None:
        self.id = peer
        self.host = host
        self.address = f"{host}:{port}"
        self.account = ""
        """The account that sent the last admitted heartbeat."""
        self.counted_for = ""
        """The account whose number of connections includes this one."""
        self.identity = ""
        """The account that its client certificate names."""
        self.session = ""
        """The text that our own clients sign with each request on this connection."""
        self.signed_number = 0
        """The number of the last request that was signed with the session's text."""
        self.is_stranger = False
        """Whether it must still prove its identity."""
        self.proved_requests_count = 0
        """The number of its requests that were admitted with proof of identity."""
        self.is_guest = False
        """Whether it belongs to a front in this process and has no connection of its own."""
        self.is_unreachable = False
        """Whether the peer is registered, but cannot be sent requests at present."""
        self.knows_signed_ids = False
        """Whether checks that are sent to it must include the signed id of the transaction."""
        self.long: LongRequest[Any] | None = None
        """The request that is served over several turns; None if there is none."""
        self.packed = pack_host(host, port)
        self.dialogue: Dialogue
        """Its dialogue; set once it is known whether the peer is a stranger."""

    def count_proved_request(self) -> None:
        """Count a request that was admitted with proof of identity. The first makes the peer no
        longer a stranger."""
        self.proved_requests_count += 1
        if self.is_stranger:
            self.mark_authenticated()

    def mark_authenticated(self) -> None:
        """Treat the peer as authenticated from now on."""
        self.is_stranger = False
        self.dialogue.lift_stranger_limits()
