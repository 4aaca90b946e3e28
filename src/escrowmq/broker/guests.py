"""Guests: clients of a front in the broker's own process, which have no connection of their own.

Their requests are judged and served like those of connections. Requests and answers are passed as
values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final

import msgspec

from escrowmq.base.answer import Answer, Refusal
from escrowmq.base.codes import Flag, Response, Version
from escrowmq.base.command import Command, ForeignRequest
from escrowmq.base.effects import Close, Hold
from escrowmq.base.fixed_limits import KEYS_AT_ONCE_MAX
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
from escrowmq.broker.core import BrokerCore
from escrowmq.broker.fast.plain_sends import PlainSends
from escrowmq.broker.peer import Peer
from escrowmq.delivery.topics import MESSAGE_TYPE, Perm

FIRST_GUEST: Final = 1 << 48
"""The number of the first guest; connections have lower ones."""

_LEFT: Final = Refusal(Response.SYSTEM_ERROR, "the client has left")


class GuestClients:
    """Accepts the requests of a front's clients."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._broker = core.broker
        self._numbers = itertools.count(FIRST_GUEST)
        self._keys_max = 0
        self.plain: PlainSends | None = core.assembly.plain_sends
        """Stores plain messages together, without a request for each. They are written before any
        other request is served."""

    # -- coming and going ------------------------------------------------------------------------

    def add_guest(
        self, who: GuestIdentity, callbacks: ClientCallbacks, *, is_stranger: bool
    ) -> int:
        """Register a client; return its number."""
        peer = Peer(next(self._numbers), who.host, who.port)
        peer.identity = who.identity
        peer.is_stranger = is_stranger
        peer.is_guest = peer.knows_signed_ids = True
        peer.is_unreachable = True
        peer.dialogue = _GuestDialogue(who, callbacks)
        self._broker.peers.by_id[peer.id] = peer
        return peer.id

    def proved_requests_count(self, guest: int) -> int:
        """Return the number of a guest's requests that were admitted with proof of identity."""
        peer = self._broker.peers.by_id.get(guest)
        return 0 if peer is None else peer.proved_requests_count

    def set_reachable(self, guest: int, *, is_reachable: bool) -> None:
        """Set whether the broker can send this client requests now."""
        peer = self._broker.peers.by_id.get(guest)
        if peer is not None:
            peer.is_unreachable = not is_reachable

    def stop_producing(self, guest: int, groups: Iterable[str]) -> None:
        """Send this client no more checks about halves of these groups."""
        for group in groups:
            self._broker.clients.remove_producer(group, guest)

    def remove_guest(self, guest: int, now_ms: int) -> None:
        """Remove a client that has disconnected, with its waiting requests."""
        self._write_plain_messages(now_ms)
        self._core.disconnected(guest, now_ms)

    # -- questions -------------------------------------------------------------------------------

    @property
    def requires_authentication(self) -> bool:
        """Whether every peer must prove its identity."""
        return self._core.requires_authentication

    def make_request(
        self, guest: int, request: RequestByValue, on_reply: OnReply | None, now_ms: int
    ) -> int:
        """Make a request. `on_reply` is called with the answer, immediately or later; without it no
        answer is passed on. Return the request's number for `forget_request`."""
        self._write_plain_messages(now_ms)
        peer = self._broker.peers.by_id.get(guest)
        if peer is None:
            if on_reply is not None:
                on_reply(_LEFT)
            return 0
        dialogue = peer.dialogue
        assert isinstance(dialogue, _GuestDialogue), guest
        command = dialogue.to_command(request, on_reply)
        # A call that has waited for an answer passes the time at which it began.
        self._core.serving.serve(peer, command, max(now_ms, self._broker.moment.now_ms))
        self._broker.present.account = ""
        return command.opaque

    def refusal(self, guest: int, request: RequestByValue, now_ms: int) -> Refusal | None:
        """Return why a request would be refused; None if it would be admitted."""
        peer = self._broker.peers.by_id.get(guest)
        if peer is None:
            return _LEFT
        dialogue = peer.dialogue
        assert isinstance(dialogue, _GuestDialogue), guest
        return self._core.serving.judge_ahead(peer, dialogue.to_command(request, None), now_ms)

    def put_plain(self, guest: int, message: MessageByValue, on_put: OnPut, now_ms: int) -> bool:
        """Store a plain message by the end of the turn; return False if it must be sent as a
        request."""
        peer = self._broker.peers.by_id.get(guest)
        if peer is None or self.plain is None:
            return False
        return self.plain.put(peer, message, on_put, now_ms)

    def _write_plain_messages(self, now_ms: int) -> None:
        if self.plain is not None:
            self.plain.finish(now_ms)

    def forget_request(self, guest: int, number: int) -> None:
        """Drop a request whose answer is no longer wanted, so that it takes no messages from other
        consumers."""
        peer = self._broker.peers.by_id.get(guest)
        if peer is None:
            return
        dialogue = peer.dialogue
        assert isinstance(dialogue, _GuestDialogue), guest
        dialogue.waiting.pop(number, None)
        self._core.assembly.drop_held_request(guest, number)

    def pass_answer(self, guest: int, opaque: int, answer: Answer, now_ms: int) -> None:
        """Pass on a client's answer to a request of the broker."""
        self._write_plain_messages(now_ms)
        peer = self._broker.peers.by_id.get(guest)
        if peer is not None:
            reply = Command(
                code=answer.code,
                opaque=opaque,
                flag=Flag.REPLY,
                ext=answer.ext,
                body=answer.body,
                remark=answer.remark,
            )
            self._core.serving.pass_answer(peer, reply, now_ms)

    # -- what a front needs to know ------------------------------------------------------------

    @property
    def name(self) -> str:
        """The broker's name."""
        return self._broker.settings.name

    def topic_facts(self, name: str) -> TopicFacts | None:
        """Return the properties of a topic; None if it does not exist."""
        found = self._broker.topics.get(name)
        if found is None:
            return None
        perm = found.perm & self._broker.settings.permission
        return TopicFacts(
            found.read_queue_nums,
            found.write_queue_nums,
            bool(perm & Perm.READ),
            bool(perm & Perm.WRITE),
            found.attributes.get(MESSAGE_TYPE, "UNSPECIFIED"),
        )

    def group_facts(self, name: str) -> GroupFacts | None:
        """Return the properties of a consumer group; None if it does not exist. This creates no
        group."""
        found = self._broker.groups.find(name)
        if found is None:
            return None
        return GroupFacts(
            found.consume_message_orderly, found.retry_max_times, found.group_retry_policy
        )

    # -- turns -----------------------------------------------------------------------------------

    def has_used_up_turn(self) -> bool:
        """Whether this turn has done as much work as one turn may do."""
        return self._broker.store.dispatcher.keys_count > self._keys_max

    def begin_turn(self) -> None:
        """Begin a turn of a front."""
        self._keys_max = self._broker.store.dispatcher.keys_count + KEYS_AT_ONCE_MAX

    def end_turn(self, now_ms: int) -> None:
        """End a turn of a front: write the messages that were put in it."""
        self._write_plain_messages(now_ms)

    # -- connections -----------------------------------------------------------------------------

    def send(self, peer: int, *chunks: bytes) -> None:
        """Send bytes to a connection of the front."""
        self._broker.output.send(peer, *chunks)

    def close(self, peer: int, reason: str) -> None:
        """Close a connection once all its bytes are written."""
        self._broker.output.add_effect(Close(peer, reason))

    def pause_reading(self, peer: int) -> None:
        """Stop reading a connection for this turn. Its remaining input is processed after the other
        connections' turns."""
        self._broker.output.add_effect(Hold(peer))


class _GuestDialogue:
    """The dialogue with one guest (broker.dialogue.Dialogue)."""

    __slots__ = ("_ear", "_language", "_number", "waiting")

    def __init__(self, who: GuestIdentity, callbacks: ClientCallbacks) -> None:
        self._language = who.language
        self._ear = callbacks
        self._number = 0
        self.waiting: dict[int, OnReply] = {}

    def to_command(self, request: RequestByValue, on_reply: OnReply | None) -> Command:
        """Convert a request to the form that handlers take."""
        self._number += 1
        if on_reply is not None:
            self.waiting[self._number] = on_reply
        flag = Flag.ONE_WAY if on_reply is None else 0
        command = Command(
            code=request.code,
            opaque=self._number,
            flag=flag,
            version=Version.OURS,
            language=self._language,
            ext=request.ext,
            body=request.body,
        )
        if request.content is None:
            return command
        fields = msgspec.structs.asdict(command)
        return ForeignRequest(**fields, content=request.content, signed_ms=request.signed_ms)

    def receive(self, data: bytes, now_ms: int) -> None:
        """Never called: a guest sends no bytes."""
        raise AssertionError("bytes of a guest")

    def answer(self, question: Command, reply: Answer | Refusal) -> None:
        """Pass the answer to the front."""
        on_reply = self.waiting.pop(question.opaque, None)
        if on_reply is not None:
            on_reply(reply)

    def send_request(
        self, code: int, opaque: int, ext: dict[str, str] | None, body: bytes, *, is_one_way: bool
    ) -> None:
        """Pass a request of the broker to the front."""
        self._ear.send_request(code, opaque, ext or {}, body, is_one_way=is_one_way)

    def lift_stranger_limits(self) -> None:
        """Do nothing: the front asks whether its clients are authenticated
        (`proved_requests_count`)."""

    def disconnected(self, now_ms: int) -> None:
        """Answer all waiting requests of a guest that has disconnected, because the connections
        that they came on may stay open."""
        waiting, self.waiting = self.waiting, {}
        for on_reply in waiting.values():
            on_reply(_LEFT)
