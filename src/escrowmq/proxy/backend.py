"""The front's interface to a broker: a few methods over values.

In one process it is implemented by the core itself (broker.guests.Guests). A front before brokers
in other processes would implement it over remoting: nothing here assumes that an answer comes at
once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from escrowmq.base.answer import Answer, Refusal
from escrowmq.base.guests import (
    ClientCallbacks,
    GroupFacts,
    GuestIdentity,
    MessageByValue,
    OnPut,
    OnReply,
    RequestByValue,
    TopicFacts,
)


class PeerConnection(Protocol):
    """A connection as the broker knows it."""

    id: int
    host: str
    address: str
    identity: str
    """The account that its certificate stands for."""

    is_stranger: bool
    """No account has been proved on it yet."""


class Backend(Protocol):
    """A broker."""

    @property
    def name(self) -> str:
        """The broker's name."""

    @property
    def judges(self) -> bool:
        """Whether access control is on."""

    def add_guest(
        self, who: GuestIdentity, callbacks: ClientCallbacks, *, is_stranger: bool
    ) -> int:
        """Register a client; return its number."""

    def passed_count(self, guest: int) -> int:
        """How many of a client's requests have passed access control. Those of others do not count,
        even under its name."""

    def can_be_asked(self, guest: int, *, can_be: bool) -> None:
        """Register whether a client can be reached by requests at present. Messages that it hides
        until it is done stay hidden while it can."""

    def stop_producing(self, guest: int, groups: Iterable[str]) -> None:
        """A client can no longer be asked about halves of these groups, whatever it may do: its
        signature may be old by now, or its account deleted."""

    def leave(self, guest: int, now_ms: int) -> None:
        """A client is gone; drop everything that waits for it."""

    def ask(self, guest: int, wish: RequestByValue, on_reply: OnReply | None, now_ms: int) -> int:
        """Make a request; it is answered now or later, or, without `on_reply`, never. Returns the
        number by which it can be forgotten."""

    def refusal(self, guest: int, wish: RequestByValue, now_ms: int) -> Refusal | None:
        """Why a request would be refused; None if it would be accepted."""

    def put(self, guest: int, message: MessageByValue, on_put: OnPut, now_ms: int) -> bool:
        """Store a plain message, together with others, by the end of the turn; return False if it
        must be sent by `ask`, as a remote front always must."""

    def forget(self, guest: int, number: int) -> None:
        """The answer is no longer needed."""

    def answered(self, guest: int, opaque: int, answer: Answer, now_ms: int) -> None:
        """A client has answered a request of the broker's."""

    def topic(self, name: str) -> TopicFacts | None:
        """A topic, if it exists. A remote front would cache this."""

    def group(self, name: str) -> GroupFacts | None:
        """A consumer group, if it exists."""

    def begin_turn(self) -> None:
        """Another turn begins."""

    def end_turn(self, now_ms: int) -> None:
        """The turn ends: store what was put, and answer its senders."""

    def is_tired(self) -> bool:
        """Whether this turn has cost enough and others should have theirs."""

    def send(self, peer: int, *chunks: bytes) -> None:
        """Write bytes to one of the front's connections."""

    def close(self, peer: int, reason: str) -> None:
        """Close a connection after everything is written."""

    def hold(self, peer: int) -> None:
        """Let others have their turn; the connection is fed again afterwards."""
