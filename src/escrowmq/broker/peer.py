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
    """A question that takes many turns. Its sender's further ones wait behind it."""

    asked: Q
    parts: Iterator[Reply]
    """Each does a part of it, and is HELD until the last, which has the answer."""


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
        """Of whom the last heartbeat was that the door let in."""
        self.counted_for = ""
        """Whose quota of connections it is in."""
        self.identity = ""
        """The account that its certificate stands for."""
        self.session = ""
        """What our own clients sign on this connection beside their requests."""
        self.signed_number = 0
        """Of the last request that was signed so."""
        self.is_stranger = False
        """Has still to prove who it is."""
        self.passed_count = 0
        """Requests of it that the door let in on a proof."""
        self.is_guest = False
        """It comes by a front in this process, and not by a connection of its own."""
        self.is_away = False
        """It is known, and cannot be asked anything just now."""
        self.knows_signed_ids = False
        """Transactions are named to it by the signed id alone."""
        self.long: Long[Any] | None = None
        """A request of it that takes many turns."""
        self.packed = pack_host(host, port)
        self.dialogue: Dialogue
        """What it is told, and it tells us; begun once it is known to be a stranger or not."""

    def passed(self) -> None:
        """A request of it was let in on a proof."""
        self.passed_count += 1
        if self.is_stranger:
            self.let_in()

    def let_in(self) -> None:
        """A stranger has proved who it is."""
        self.is_stranger = False
        self.dialogue.let_in()
