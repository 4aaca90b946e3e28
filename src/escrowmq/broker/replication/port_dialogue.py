"""The dialogue of a replication port, at both ends."""

from __future__ import annotations

from collections.abc import Callable

from escrowmq.base.answer import Answer, Refusal
from escrowmq.base.command import Command
from escrowmq.broker.peer import Peer


class ReplicationDialogue:
    """Passes the received bytes, and the loss of the connection, to two functions
    (broker.dialogue.Dialogue)."""

    __slots__ = ("_gone", "_peer", "_receive")

    def __init__(
        self,
        peer: Peer,
        receive: Callable[[Peer, bytes, int], None],
        gone: Callable[[Peer, int], None] | None = None,
    ) -> None:
        """`gone` is called when the connection is lost. The side that has dialled passes none,
        because the core calls its `unreached` anyway."""
        self._peer = peer
        self._receive = receive
        self._gone = gone

    def receive(self, data: bytes, now_ms: int) -> None:
        """Process bytes of the peer."""
        self._receive(self._peer, data, now_ms)

    def answer(self, question: Command, reply: Answer | Refusal) -> None:
        """Do nothing: the protocols have no requests to answer."""

    def send_request(
        self, code: int, opaque: int, ext: dict[str, str] | None, body: bytes, *, is_one_way: bool
    ) -> None:
        """Do nothing: the broker sends no requests over these protocols."""

    def lift_stranger_limits(self) -> None:
        """Do nothing: peers of these ports have no accounts."""

    def disconnected(self, now_ms: int) -> None:
        """Report the lost connection."""
        if self._gone is not None:
            self._gone(self._peer, now_ms)
