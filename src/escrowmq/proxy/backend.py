"""The interface through which the gRPC front uses a broker: a few methods over values.

In the broker's own process, broker.guests.GuestClients implements it. A front in another process
would implement it over remoting: nothing here assumes that an answer comes at once."""

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


class FrontConnection(Protocol):
    """A client's connection, as a front sees it: its address and its account."""

    id: int
    host: str
    address: str
    identity: str
    """The account of its TLS certificate."""

    is_stranger: bool
    """Whether no account has been proved on the connection yet."""


class Backend(Protocol):
    """A broker, as the gRPC front uses it."""

    @property
    def name(self) -> str:
        """The broker's name."""

    @property
    def requires_authentication(self) -> bool:
        """Whether access control is on."""

    def add_guest(
        self, who: GuestIdentity, callbacks: ClientCallbacks, *, is_stranger: bool
    ) -> int:
        """Register a client; return its number."""

    def proved_requests_count(self, guest: int) -> int:
        """Return the number of this client's requests that were admitted with proof of identity.
        Requests of another client under the same name do not count."""

    def set_reachable(self, guest: int, *, is_reachable: bool) -> None:
        """Set whether the broker can send requests to a client at present. Messages that are
        invisible until the client has finished them stay invisible while it can."""

    def stop_producing(self, guest: int, groups: Iterable[str]) -> None:
        """Send a client no more checks about halves of these groups. This needs no right: the
        client's signature may be old by now, or its account deleted."""

    def remove_guest(self, guest: int, now_ms: int) -> None:
        """Remove a client that has disconnected, with its waiting requests."""

    def make_request(
        self, guest: int, request: RequestByValue, on_reply: OnReply | None, now_ms: int
    ) -> int:
        """Make a request. `on_reply` is called with the answer, immediately or later; without it no
        answer is passed on. Return the request's number for `forget_request`."""

    def refusal(self, guest: int, request: RequestByValue, now_ms: int) -> Refusal | None:
        """Return the reason why a request would be refused; None if it would be accepted."""

    def put_plain(self, guest: int, message: MessageByValue, on_put: OnPut, now_ms: int) -> bool:
        """Store a plain message at the end of the turn, together with others. Return False if it
        must be sent by `make_request` instead; a front in another process always returns False."""

    def forget_request(self, guest: int, number: int) -> None:
        """Drop a request whose answer is no longer needed."""

    def pass_answer(self, guest: int, opaque: int, answer: Answer, now_ms: int) -> None:
        """Pass on a client's answer to a request of the broker."""

    def topic_facts(self, name: str) -> TopicFacts | None:
        """Return the properties of a topic; None if it does not exist. A front in another process
        would cache them."""

    def group_facts(self, name: str) -> GroupFacts | None:
        """Return the properties of a consumer group; None if it does not exist."""

    def begin_turn(self) -> None:
        """Begin a turn of the front."""

    def end_turn(self, now_ms: int) -> None:
        """End the turn: store the messages that were put in it, and answer their senders."""

    def has_used_up_turn(self) -> bool:
        """Whether this turn has done as much work as one turn may do."""

    def send(self, peer: int, *chunks: bytes) -> None:
        """Write bytes to one of the front's connections."""

    def close(self, peer: int, reason: str) -> None:
        """Close a connection after everything is written."""

    def pause_reading(self, peer: int) -> None:
        """Stop reading a connection for this turn. Its remaining input is processed after the other
        connections' turns."""
