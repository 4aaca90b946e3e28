"""Serves requests about the batches of streaming queries: to decide, abandon and query them
(docs/extensions.md)."""

from __future__ import annotations

import msgspec

from escrowmq.base.answer import HELD, Answer, AnswerLater, Refusal, Reply
from escrowmq.base.codes import Flag, Response
from escrowmq.base.message import Topic
from escrowmq.broker.answers.answer_delivery import AnswerSender
from escrowmq.broker.identity import Identity
from escrowmq.broker.incoming_request import IncomingRequest, Question
from escrowmq.broker.part import NOTHING, File, Part, StartContext
from escrowmq.broker.peers import Peers
from escrowmq.broker.sends.log_puts import MessageStorer
from escrowmq.codec.client_bodies import read_own_body
from escrowmq.codec.epoch_bodies import (
    AbandonedCount,
    AbandonTokens,
    DecideEpoch,
    EpochDecision,
    EpochId,
)
from escrowmq.delivery.topics import TopicTable
from escrowmq.store.durable_progress import ProgressMark, ProgressMarks
from escrowmq.store.store import Store
from escrowmq.txn import epoch_decision
from escrowmq.txn.decisions import StreamQuery
from escrowmq.txn.engine import TransactionEngine
from escrowmq.txn.epoch import parse_epoch
from escrowmq.txn.epoch_decision import EpochDecider


class _WaitingRequest(msgspec.Struct):
    """A request to be answered once the decision is carried out."""

    request: Question
    query: StreamQuery
    batch: int
    body: bytes


class EpochHandlers(Part):
    """Serves requests about epochs of streaming queries (codes 7709 to 7711)."""

    name = "epochs"

    def __init__(
        self,
        *,
        store: Store,
        topics: TopicTable,
        identity: Identity,
        peers: Peers,
        answers: AnswerSender,
        putter: MessageStorer,
        engine: TransactionEngine,
    ) -> None:
        self._store = store
        self._topics = topics
        self._peers = peers
        self._answers = answers
        self._putter = putter
        self._engine = engine
        self._decider = EpochDecider(engine, store, host=identity.packed)
        self._waiting: list[_WaitingRequest] = []
        self.work = (self._waiting,)
        self._marks: ProgressMarks[bytes] = ProgressMarks()

    # -- life --------------------------------------------------------------------------------

    def load(self, start: StartContext) -> None:
        """Load the decisions. The pending halves are loaded already."""
        self._decider.load(start.disk.read(epoch_decision.PATH), start.now_ms)

    def files_to_save(self, now_ms: int) -> tuple[File, ...]:
        """Return the file of decisions, once the log with the decisions' records is durable. The
        file keeps decisions longer than the log does, because a query may pause for long."""
        store = self._store
        saved = self._decider.save()
        if saved is not None:
            self._marks.add(ProgressMark(store.end_offset, store.end_offset, saved))
        mark = self._marks.take_durable(store.irrevocable_offset)
        return NOTHING if mark is None else ((epoch_decision.PATH, mark.state),)

    # -- requests ----------------------------------------------------------------------------

    def decide_epoch(self, request: IncomingRequest[None]) -> Reply:
        """Decide which tokens of an epoch count. The answer is sent once their messages are visible
        and this is durable."""
        wish = read_own_body(request.command, DecideEpoch)
        query, batch = parse_epoch(wish.group, wish.epoch)
        self._topics.get_or_create(Topic.DECISIONS, now_ms=request.now_ms)
        decided = self._decider.decide(query, batch, wish.tokens, request.now_ms)
        if decided.refusal:
            return self._answers.after_confirmation(
                request, Refusal(Response.SYSTEM_ERROR, decided.refusal)
            )
        if decided.put is not None:
            return self._putter.put_refusal(decided.put)
        body = EpochDecision(
            decided="now" if decided.is_new else "before",
            tokens=decided.tokens,
            count=sum(decided.tokens.values()),
        )
        return self._hold_until_visible(request, query, batch, body)

    def abandon_tokens(self, request: IncomingRequest[None]) -> Reply:
        """Delete the halves of tokens that do not count."""
        wish = read_own_body(request.command, AbandonTokens)
        query, batch = parse_epoch(wish.group, wish.epoch)
        count = self._decider.abandon(query, batch, wish.tokens, request.now_ms)
        return Answer(body=msgspec.json.encode(AbandonedCount(count=count)))

    def show_decision(self, request: IncomingRequest[None]) -> Reply:
        """Answer whether an epoch is decided, and for which tokens."""
        wish = read_own_body(request.command, EpochId)
        query, batch = parse_epoch(wish.group, wish.epoch)
        known = self._engine.halves.epochs.decision(query, batch)
        if known is None:
            body = EpochDecision(decided="no", tokens={}, count=0)
            return self._answers.after_confirmation(request, Answer(body=msgspec.json.encode(body)))
        body = EpochDecision(
            decided="before", tokens=known.tokens, count=sum(known.tokens.values())
        )
        return self._hold_until_visible(request, query, batch, body)

    def _hold_until_visible(
        self, request: Question, query: StreamQuery, batch: int, body: EpochDecision
    ) -> AnswerLater:
        """Hold the answer until all messages of the epoch are visible and the outcome is
        durable."""
        if not request.command.flag & Flag.ONE_WAY:
            self._waiting.append(_WaitingRequest(request, query, batch, msgspec.json.encode(body)))
        return HELD

    def finish_input(self, now_ms: int) -> None:
        """Answer the requests whose decisions are carried out. Call it after the ENDs of the input
        are sealed."""
        still: list[_WaitingRequest] = []
        for item in self._waiting:
            if item.request.peer.id not in self._peers.by_id:
                continue
            if not self._decider.is_carried_out(item.query, item.batch):
                still.append(item)
                continue
            answer = Answer(body=item.body, log_end=self._store.end_offset)
            self._answers.send(item.request, answer, since_ms=now_ms)
        self._waiting[:] = still
