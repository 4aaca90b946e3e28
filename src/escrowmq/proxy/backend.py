"""What the front needs of a broker: a few verbs over values.

In one process it is the core itself (broker.guests.Guests). A front that stands before brokers of
other processes implements the same over remoting: nothing here says that an answer comes at once.
"""

from __future__ import annotations

from typing import Protocol

from escrowmq.base.answer import Answer, Refusal
from escrowmq.base.guests import (
    Ear,
    GroupFacts,
    OnPut,
    OnReply,
    PlainMessage,
    TopicFacts,
    Who,
    Wish,
)


class PeerConnection(Protocol):
    """A connection as the broker knows it."""

    id: int
    host: str
    address: str
    identity: str
    """The account that its certificate stands for."""

    is_stranger: bool
    """Nobody on it has proved yet who he is."""


class Backend(Protocol):
    """A broker."""

    @property
    def name(self) -> str:
        """The broker's name."""

    @property
    def judges(self) -> bool:
        """Whether everybody has to prove who he is."""

    def meet(self, who: Who, ear: Ear, *, is_stranger: bool) -> int:
        """A client is there; its number."""

    def passed_count(self, guest: int) -> int:
        """How many of its questions have passed where everybody has to prove who he is. Those of
        others do not count, though they use its name."""

    def can_be_asked(self, guest: int, *, can_be: bool) -> None:
        """Whether there is a way to say something to a client just now. What it holds until it is
        done is its own as long as there is."""

    def leave(self, guest: int, now_ms: int) -> None:
        """A client is gone, with all that waits for it."""

    def ask(self, guest: int, wish: Wish, on_reply: OnReply | None, now_ms: int) -> int:
        """Put a question; it is answered now or later, or, without `on_reply`, never. By the number
        that is given back it can be forgotten."""

    def refusal(self, guest: int, wish: Wish, now_ms: int) -> Refusal | None:
        """Why a question would be refused, if it were asked; None when it would be let in."""

    def put(self, guest: int, message: PlainMessage, on_put: OnPut, now_ms: int) -> bool:
        """Store a plain message, together with others, by the end of the turn; False when it has
        to be asked for: a front elsewhere knows no other way."""

    def forget(self, guest: int, number: int) -> None:
        """Nobody waits for an answer any more."""

    def heard(self, guest: int, opaque: int, answer: Answer, now_ms: int) -> None:
        """A client has answered a question of the broker's."""

    def topic(self, name: str) -> TopicFacts | None:
        """A topic, if there is one. A front elsewhere keeps what it knows fresh."""

    def group(self, name: str) -> GroupFacts | None:
        """A consumer group, if there is one."""

    def begin_turn(self) -> None:
        """Another turn begins."""

    def end_turn(self, now_ms: int) -> None:
        """It is over: what was put is stored, and those who sent it are told."""

    def is_tired(self) -> bool:
        """Whether this turn has cost enough: others are to have theirs."""

    def send(self, peer: int, *chunks: bytes) -> None:
        """Bytes for a connection of the front's."""

    def close(self, peer: int, reason: str) -> None:
        """End a connection, once all is written."""

    def hold(self, peer: int) -> None:
        """Let others have their turn; the connection is fed again afterwards."""
