"""Clients that come by a front in this process: peers without bytes of their own.

Their questions go where those of every connection go, through the same door; what is said to them
is handed over as a value.
"""

from __future__ import annotations

import itertools
from typing import Final

import msgspec

from escrowmq.base.answer import Answer, Refusal
from escrowmq.base.codes import Flag, Response, Version
from escrowmq.base.command import Command, Vouched
from escrowmq.base.effects import Close, Hold
from escrowmq.base.fixed_limits import KEYS_AT_ONCE_MAX
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
from escrowmq.broker.core import BrokerCore
from escrowmq.broker.fast.plain_sends import PlainSends
from escrowmq.broker.peer import Peer
from escrowmq.delivery.topics import MESSAGE_TYPE, Perm

FIRST: Final = 1 << 48
"""Number of the first guest; connections have lesser ones."""


class Guests:
    """What a front puts its clients' questions to."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._broker = core.broker
        self._numbers = itertools.count(FIRST)
        self._keys_max = 0
        self.plain: PlainSends | None = core.assembly.plain_sends
        """What need not be asked for. Whatever else is served comes behind it."""

    # -- coming and going ------------------------------------------------------------------------

    def meet(self, who: Who, ear: Ear, *, is_stranger: bool) -> int:
        """A client is there; its number."""
        peer = Peer(next(self._numbers), who.host, who.port)
        peer.identity = who.identity
        peer.is_stranger = is_stranger
        peer.is_guest = peer.knows_signed_ids = True
        peer.is_away = True
        peer.dialogue = _Guest(who, ear)
        self._broker.peers.by_id[peer.id] = peer
        return peer.id

    def passed_count(self, guest: int) -> int:
        """How many of its questions have passed where everybody has to prove who he is."""
        peer = self._broker.peers.by_id.get(guest)
        return 0 if peer is None else peer.passed_count

    def can_be_asked(self, guest: int, *, can_be: bool) -> None:
        """Whether there is a way to say something to it just now."""
        peer = self._broker.peers.by_id.get(guest)
        if peer is not None:
            peer.is_away = not can_be

    def leave(self, guest: int, now_ms: int) -> None:
        """It is gone, with all that waits for it."""
        self._finish(now_ms)
        self._core.lost(guest, now_ms)

    # -- questions -------------------------------------------------------------------------------

    @property
    def judges(self) -> bool:
        """Whether everybody has to prove who he is."""
        return self._core.judges

    def ask(self, guest: int, wish: Wish, on_reply: OnReply | None, now_ms: int) -> int:
        """Put a question; it is answered now or later, or, without `on_reply`, never. By the number
        that is given back it can be forgotten."""
        self._finish(now_ms)
        peer = self._broker.peers.by_id.get(guest)
        if peer is None:
            if on_reply is not None:
                on_reply(Refusal(Response.SYSTEM_ERROR, "the client has left"))
            return 0
        dialogue = peer.dialogue
        assert isinstance(dialogue, _Guest), guest
        command = dialogue.command(wish, on_reply)
        self._core.serving.serve(peer, command, now_ms)
        self._broker.present.account = ""
        return command.opaque

    def refusal(self, guest: int, wish: Wish, now_ms: int) -> Refusal | None:
        """Why a question would be refused at the door; None when it is to be asked."""
        peer = self._broker.peers.by_id.get(guest)
        if peer is None:
            return Refusal(Response.SYSTEM_ERROR, "the client has left")
        dialogue = peer.dialogue
        assert isinstance(dialogue, _Guest), guest
        return self._core.serving.judge_ahead(peer, dialogue.command(wish, None), now_ms)

    def put(self, guest: int, message: PlainMessage, on_put: OnPut, now_ms: int) -> bool:
        """Store a plain message, by the end of the turn; False when it has to be asked for."""
        peer = self._broker.peers.by_id.get(guest)
        if peer is None or self.plain is None:
            return False
        return self.plain.put(peer, message, on_put, now_ms)

    def _finish(self, now_ms: int) -> None:
        if self.plain is not None:
            self.plain.finish(now_ms)

    def forget(self, guest: int, number: int) -> None:
        """Nobody waits for an answer any more: let it take nothing that others could have."""
        peer = self._broker.peers.by_id.get(guest)
        if peer is None:
            return
        dialogue = peer.dialogue
        assert isinstance(dialogue, _Guest), guest
        dialogue.waiting.pop(number, None)
        self._core.assembly.give_up(guest, number)

    def heard(self, guest: int, opaque: int, answer: Answer, now_ms: int) -> None:
        """A client has answered a question of the broker's."""
        self._finish(now_ms)
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
            self._core.serving.answered(peer, reply, now_ms)

    # -- what a front has to know ----------------------------------------------------------------

    @property
    def name(self) -> str:
        """The broker's name."""
        return self._broker.settings.name

    def topic(self, name: str) -> TopicFacts | None:
        """A topic, if there is one."""
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

    def group(self, name: str) -> GroupFacts | None:
        """A consumer group, if there is one; nobody begins one by asking."""
        found = self._broker.groups.peek(name)
        if found is None:
            return None
        return GroupFacts(
            found.consume_message_orderly, found.retry_max_times, found.group_retry_policy
        )

    # -- turns -----------------------------------------------------------------------------------

    def is_tired(self) -> bool:
        """Whether this turn has cost enough: others are to have theirs."""
        return self._broker.store.dispatcher.keys_count > self._keys_max

    def begin_turn(self) -> None:
        """Another turn begins."""
        self._keys_max = self._broker.store.dispatcher.keys_count + KEYS_AT_ONCE_MAX

    def end_turn(self, now_ms: int) -> None:
        """Nothing more is put for the time being."""
        self._finish(now_ms)

    # -- connections -----------------------------------------------------------------------------

    def send(self, peer: int, *chunks: bytes) -> None:
        """Bytes for a connection of the front's."""
        self._broker.output.send(peer, *chunks)

    def close(self, peer: int, reason: str) -> None:
        """End a connection, once all is written."""
        self._broker.output.add(Close(peer, reason))

    def hold(self, peer: int) -> None:
        """Let others have their turn; the connection is fed again afterwards."""
        self._broker.output.add(Hold(peer))


class _Guest:
    """The dialogue with one client (broker.dialogue.Dialogue)."""

    __slots__ = ("_ear", "_language", "_number", "waiting")

    def __init__(self, who: Who, ear: Ear) -> None:
        self._language = who.language
        self._ear = ear
        self._number = 0
        self.waiting: dict[int, OnReply] = {}

    def command(self, wish: Wish, on_reply: OnReply | None) -> Command:
        """A wish as handlers get it."""
        self._number += 1
        if on_reply is not None:
            self.waiting[self._number] = on_reply
        flag = Flag.ONE_WAY if on_reply is None else 0
        command = Command(
            code=wish.code,
            opaque=self._number,
            flag=flag,
            version=Version.OURS,
            language=self._language,
            ext=wish.ext,
            body=wish.body,
        )
        if wish.content is None:
            return command
        return Vouched(**msgspec.structs.asdict(command), content=wish.content)

    def receive(self, data: bytes, now_ms: int) -> None:
        """A guest has no bytes."""
        raise AssertionError("bytes of a guest")

    def answer(self, question: Command, reply: Answer | Refusal) -> None:
        """Hand it over."""
        on_reply = self.waiting.pop(question.opaque, None)
        if on_reply is not None:
            on_reply(reply)

    def ask(
        self, code: int, opaque: int, ext: dict[str, str] | None, body: bytes, *, is_one_way: bool
    ) -> None:
        """Hand over a question of the broker's."""
        self._ear.asked(code, opaque, ext or {}, body, is_one_way=is_one_way)

    def let_in(self) -> None:
        """Its front asks, when it has to know."""

    def lost(self, now_ms: int) -> None:
        """It is gone."""
        self.waiting.clear()
