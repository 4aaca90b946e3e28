"""One connection of a replication port, at either end."""

from __future__ import annotations

from collections.abc import Callable

from escrowmq.base.answer import Answer, Refusal
from escrowmq.base.command import Command
from escrowmq.broker.peer import Peer


class PortDialogue:
    """Passes on what arrives, and that the connection was lost (broker.dialogue.Dialogue)."""

    __slots__ = ("_gone", "_peer", "_receive")

    def __init__(
        self,
        peer: Peer,
        receive: Callable[[Peer, bytes, int], None],
        gone: Callable[[Peer, int], None] | None = None,
    ) -> None:
        """`gone` is left out by the side that has dialled: its `unreached` is called as well."""
        self._peer = peer
        self._receive = receive
        self._gone = gone

    def receive(self, data: bytes, now_ms: int) -> None:
        """Process bytes of the peer."""
        self._receive(self._peer, data, now_ms)

    def answer(self, question: Command, reply: Answer | Refusal) -> None:
        """Not used: the protocols have no requests."""

    def ask(
        self, code: int, opaque: int, ext: dict[str, str] | None, body: bytes, *, is_one_way: bool
    ) -> None:
        """Not used: the protocols have no requests of ours."""

    def let_in(self) -> None:
        """Not used: peers of these ports have no accounts."""

    def lost(self, now_ms: int) -> None:
        """The connection was lost."""
        if self._gone is not None:
            self._gone(self._peer, now_ms)
