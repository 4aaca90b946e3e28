"""The conversation between the broker and one connection, in the protocol of its front."""

from __future__ import annotations

from typing import Protocol

from escrowmq.base.answer import Answer, Refusal
from escrowmq.base.command import Command


class Dialogue(Protocol):
    """The broker's side of one connection."""

    def receive(self, data: bytes, now_ms: int) -> None:
        """Process bytes of the peer: serve the requests in them."""

    def answer(self, question: Command, reply: Answer | Refusal) -> None:
        """Send the answer to a request of the peer."""

    def send_request(
        self, code: int, opaque: int, ext: dict[str, str] | None, body: bytes, *, is_one_way: bool
    ) -> None:
        """Send a request to the peer. The answer goes to `Calls.answered` with the same opaque; a
        one-way request gets none."""

    def lift_stranger_limits(self) -> None:
        """Lift the limits for strangers: the peer has proved its identity."""

    def disconnected(self, now_ms: int) -> None:
        """Clean up after the peer has disconnected."""
