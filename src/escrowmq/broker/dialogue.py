"""What the broker and one connection have to say to each other, in the protocol of its door."""

from __future__ import annotations

from typing import Protocol

from escrowmq.base.answer import Answer, Refusal
from escrowmq.base.command import Command


class Dialogue(Protocol):
    """One connection's side of a front."""

    def receive(self, data: bytes, now_ms: int) -> None:
        """Bytes of the peer: serve what is asked in them."""

    def answer(self, question: Command, reply: Answer | Refusal) -> None:
        """Say to a question that was served what is to be said."""

    def ask(
        self, code: int, opaque: int, ext: dict[str, str] | None, body: bytes, *, is_one_way: bool
    ) -> None:
        """Put a question of ours to the peer. The answer goes to `Calls.answered` under the same
        opaque; nobody waits for one when it is one-way."""

    def let_in(self) -> None:
        """The peer has proved who it is."""

    def lost(self, now_ms: int) -> None:
        """The peer is gone."""
