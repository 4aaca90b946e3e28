"""The batches of streaming queries: decided for, abandoned, asked about (docs/extensions.md)."""

from __future__ import annotations

import msgspec

from escrowmq.base.codes import Flag, Request, Response
from escrowmq.base.command import Command
from escrowmq.base.effects import Replace
from escrowmq.base.message import Topic
from escrowmq.base.ports import Disk
from escrowmq.broker.putting import Putter
from escrowmq.broker.state import Broker, Handler, Peer
from escrowmq.codec.bodies import read_own_body
from escrowmq.codec.command import encode_reply
from escrowmq.codec.decision import Abandon, Abandoned, Decide, Decided, Epoch
from escrowmq.delivery.progress import Mark, Marks
from escrowmq.store.store import Put, PutStatus
from escrowmq.txn import decision
from escrowmq.txn.decision import Decider
from escrowmq.txn.engine import Engine
from escrowmq.txn.epoch import Query, parse_epoch


class _Waiting(msgspec.Struct):
    """A request whose answer waits until what was decided is done."""

    peer: Peer
    request: Command
    query: Query
    batch: int
    body: bytes


class EpochHandlers:
    """Codes 7709 to 7711."""

    def __init__(self, broker: Broker, putter: Putter, engine: Engine) -> None:
        self._broker = broker
        self._putter = putter
        self._engine = engine
        self._decider = Decider(engine, broker.store, host=broker.packed)
        self._waiting: list[_Waiting] = []
        self._marks: Marks[bytes] = Marks()

    def routes(self) -> dict[int, Handler]:
        """Request codes and who serves them."""
        return {
            Request.ESCROW_DECIDE: self.decide,
            Request.ESCROW_ABANDON: self.abandon,
            Request.ESCROW_DECISION: self.tell,
        }

    # -- life --------------------------------------------------------------------------------

    def load(self, disk: Disk, now_ms: int) -> None:
        """Read what was decided, when it is known what is pending."""
        self._decider.load(disk.read(decision.PATH), now_ms)

    def note_progress(self) -> None:
        """Keep the decisions in a file, once the log that they stand in is durable: records are
        deleted for their age, and a query may rest for longer."""
        store = self._broker.store
        saved = self._decider.save()
        if saved is not None:
            self._marks.note(Mark(store.end_offset, store.end_offset, saved))
        mark = self._marks.take(store.durable_offset)
        if mark is not None:
            self._broker.effects.append(Replace(decision.PATH, mark.state))

    # -- requests ----------------------------------------------------------------------------

    def decide(self, peer: Peer, request: Command, now_ms: int) -> bytes | None:
        """Decide which tokens of an epoch count; the answer leaves when that is done durably."""
        wish = read_own_body(request, Decide)
        query, batch = parse_epoch(wish.group, wish.epoch)
        self._broker.topics.ensure(Topic.DECISIONS, now_ms=now_ms)
        decided = self._decider.decide(query, batch, wish.tokens, now_ms)
        if decided.refusal:
            return encode_reply(request, Response.SYSTEM_ERROR, remark=decided.refusal)
        if decided.put is not None:
            refusal = self._putter.refusal(decided.put)
            return encode_reply(request, refusal.code, remark=refusal.remark)
        body = Decided(
            decided="now" if decided.is_new else "before",
            tokens=decided.tokens,
            count=sum(decided.tokens.values()),
        )
        self._wait(peer, request, query, batch, body)
        return None

    def abandon(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """Drop the halves of tokens that do not count."""
        wish = read_own_body(request, Abandon)
        query, batch = parse_epoch(wish.group, wish.epoch)
        count = self._decider.abandon(query, batch, wish.tokens, now_ms)
        return encode_reply(
            request, Response.SUCCESS, body=msgspec.json.encode(Abandoned(count=count))
        )

    def tell(self, peer: Peer, request: Command, now_ms: int) -> bytes | None:
        """Whether an epoch is decided, and for which tokens."""
        wish = read_own_body(request, Epoch)
        query, batch = parse_epoch(wish.group, wish.epoch)
        known = self._engine.epochs.decision(query, batch)
        if known is None:
            body = Decided(decided="no", tokens={}, count=0)
            return encode_reply(request, Response.SUCCESS, body=msgspec.json.encode(body))
        body = Decided(decided="before", tokens=known.tokens, count=sum(known.tokens.values()))
        self._wait(peer, request, query, batch, body)
        return None

    def _wait(self, peer: Peer, request: Command, query: Query, batch: int, body: Decided) -> None:
        """An outcome is told when all messages are visible, and no earlier than it is durable."""
        waiting = _Waiting(peer, request, query, batch, msgspec.json.encode(body))
        self._waiting.append(waiting)

    def settle(self, now_ms: int) -> None:
        """Answer who waited for what this input has done; call it when its ends are sealed."""
        if not self._waiting:
            return
        still: list[_Waiting] = []
        for item in self._waiting:
            if item.peer.id not in self._broker.peers or item.request.flag & Flag.ONE_WAY:
                continue
            if not self._decider.is_carried_out(item.query, item.batch):
                still.append(item)
                continue
            reply = self._putter.answer(
                item.peer,
                item.request,
                Put(PutStatus.OK, log_end=self._broker.store.end_offset),
                ext={},
                waits=True,
                now_ms=now_ms,
                reply=encode_reply(item.request, Response.SUCCESS, body=item.body),
            )
            if reply is not None:
                self._broker.send(item.peer.id, reply)
        self._waiting = still
