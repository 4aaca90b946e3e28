"""A connection as the broker sees it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec

from escrowmq.base.answer import Reply
from escrowmq.broker.dialogue import Dialogue
from escrowmq.codec.ids import pack_host

Q = TypeVar("Q")


class Long(msgspec.Struct, Generic[Q]):
    """A request that takes many turns. Further requests of its sender wait until it is finished."""

    asked: Q
    parts: Iterator[Reply]
    """Each does one part; it is HELD until the last, which has the answer."""


class Peer:
    """One connection as the broker sees it."""

    __slots__ = (
        "account",
        "address",
        "counted_for",
        "dialogue",
        "host",
        "id",
        "identity",
        "is_away",
        "is_guest",
        "is_stranger",
        "knows_signed_ids",
        "long",
        "packed",
        "passed_count",
        "session",
        "signed_number",
    )

    def __init__(self, peer: int, host: str, port: int) -> None:
        self.id = peer
        self.host = host
        self.address = f"{host}:{port}"
        self.account = ""
        """The account of the last admitted heartbeat."""
        self.counted_for = ""
        """The account whose quota of connections includes it."""
        self.identity = ""
        """The account that its certificate stands for."""
        self.session = ""
        """What our own clients sign on this connection with their requests."""
        self.signed_number = 0
        """The number of the last request that was signed with the session."""
        self.is_stranger = False
        """It still has to prove its identity."""
        self.passed_count = 0
        """Its requests that the door admitted with a proof."""
        self.is_guest = False
        """It belongs to a front in this process and has no connection of its own."""
        self.is_away = False
        """It is known, but cannot be sent requests just now."""
        self.knows_signed_ids = False
        """It gets only the signed id of transactions."""
        self.long: Long[Any] | None = None
        """A request of it that takes many turns."""
        self.packed = pack_host(host, port)
        self.dialogue: Dialogue
        """Its dialogue, created once it is known whether it is a stranger."""

    def passed(self) -> None:
        """Count a request that was admitted with a proof."""
        self.passed_count += 1
        if self.is_stranger:
            self.let_in()

    def let_in(self) -> None:
        """A peer has proved its identity."""
        self.is_stranger = False
        self.dialogue.let_in()
