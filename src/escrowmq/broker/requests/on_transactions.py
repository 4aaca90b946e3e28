"""Serves transactions: ENDs, checks, and the resumption of discarded transactions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from escrowmq.base.answer import DONE, HELD, Answer, Refusal, Reply
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Flag, Request, Response
from escrowmq.base.message import Property, StoredMessage, Topic
from escrowmq.base.own_properties import OPEN, OUTCOME
from escrowmq.broker.answers.answer_delivery import AnswerSender
from escrowmq.broker.incoming_request import IncomingRequest, Question
from escrowmq.broker.part import Part
from escrowmq.broker.peer import Peer
from escrowmq.broker.peers import Peers
from escrowmq.broker.sends.end_reading import HALF_NOT_FOUND, read_end
from escrowmq.broker.sends.log_puts import MessageStorer
from escrowmq.codec.headers import (
    ResumeCheckHeader,
)
from escrowmq.codec.ids import offset_id, parse_offset_id
from escrowmq.codec.record import encode_message
from escrowmq.delivery.clients import Channel, Clients
from escrowmq.delivery.topics import TopicTable
from escrowmq.errors import StorageError
from escrowmq.store.store import Store
from escrowmq.txn.check_schedule import CheckToSend
from escrowmq.txn.end_claim import Claim, EndReply, EndResult
from escrowmq.txn.end_rules import VERDICTS
from escrowmq.txn.half_records import target_queue
from escrowmq.txn.state import State, Verdict
from escrowmq.txn.transactions import Transactions
from escrowmq.txn.unsealed_ends import SealResult

_log = logging.getLogger(__name__)

_SETTLED: Final = frozenset({EndResult.DONE, EndResult.REPEATED, EndResult.CONTRADICTED})
_REMARKS: Final = {
    EndResult.NOT_FOUND: HALF_NOT_FOUND,
    EndResult.GROUP_WRONG: "The producer group wrong",
    EndResult.QUEUE_OFFSET_WRONG: "The transaction state table offset wrong",
    EndResult.OF_EPOCH: "this message is of an epoch; request 7709 ends all of it",
    EndResult.UNREADABLE: "a message of the transaction cannot be read; it can be rolled back only",
}
_CONTRARY_OUTCOME_CODES: Final = {
    State.COMMITTED: Response.TRANSACTION_SHOULD_COMMIT,
    State.ROLLED_BACK: Response.TRANSACTION_SHOULD_ROLLBACK,
}
"""By outcome: RocketMQ's code for an END that contradicts it. RocketMQ defines these codes and does
not use them."""


class UnsealedEnd(msgspec.Struct):
    """An END whose answer waits until the op record is appended (txn.unsealed_ends.EndAnswer)."""

    request: Question
    ended: EndReply
    tell: Callable[[Question, EndReply, SealResult], None]

    def send_answer(self, sealed: SealResult) -> None:
        """Answer the END."""
        self.tell(self.request, self.ended, sealed)


class EndHandlers(Part):
    """Serves END_TRANSACTION (37) and RESUME_CHECK_HALF_MESSAGE (323), and sends checks (39)."""

    name = "transactions"

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: Store,
        topics: TopicTable,
        clients: Clients,
        peers: Peers,
        answers: AnswerSender,
        putter: MessageStorer,
        transactions: Transactions,
    ) -> None:
        self._settings = settings
        self._store = store
        self._topics = topics
        self._peers = peers
        self._answers = answers
        self._putter = putter
        self._transactions = transactions
        self.engine: Final = transactions.engine
        self._checker = transactions.checker
        self._unsealed = self.engine.unsealed
        self.work = self._unsealed.answers, self._unsealed.ends
        self._checker.unconfirmed.heard_ms = clients.last_heartbeat_ms

    # -- ends --------------------------------------------------------------------------------

    def end_transaction(self, request: IncomingRequest[None]) -> Reply:
        """Commit or roll back a transaction. The answer is sent when the op record may be
        acknowledged."""
        header = read_end(request.command, self._transactions, request.now_ms)
        if isinstance(header, Refusal):
            return self._answers.after_confirmation(request, header)
        claim = Claim(
            log_offset=header.commit_log_offset,
            queue_offset=header.tran_state_table_offset,
            group=header.producer_group,
            verdict=VERDICTS.get(header.commit_or_rollback, Verdict.UNKNOWN),
            is_from_check=header.from_transaction_check,
            ids=(header.transaction_id or "", header.msg_id),
            count=header.escrow_count,
        )
        ended = self._transactions.ends.end(claim, request.now_ms)
        if header.from_transaction_check:
            if ended.answer is EndResult.DONE:
                self.engine.halves.events.add(
                    request.now_ms, ended.queue_offset, "answered", who=request.peer.address
                )
            is_unknown = ended.answer is EndResult.UNKNOWN
            self._checker.note_answer(ended.queue_offset, request.peer.id, is_unknown=is_unknown)
            if is_unknown and request.ext.get(OPEN) == "true":
                self._checker.note_open_report(ended.queue_offset, request.peer.id)
        if ended.answer not in _SETTLED and ended.queue_offset >= 0:
            what = "said unknown" if ended.answer is EndResult.UNKNOWN else "refused"
            detail = "" if ended.answer is EndResult.UNKNOWN else ended.answer.name.lower()
            self.engine.halves.events.add(
                request.now_ms, ended.queue_offset, what, who=request.peer.address, detail=detail
            )
        return self.end_answer(request, ended)

    def end_answer(self, request: Question, ended: EndReply) -> Reply:
        """Return the answer to an END. For an outcome, return HELD: it is answered once it is
        durable."""
        match ended.answer:
            case EndResult.DONE | EndResult.REPEATED | EndResult.CONTRADICTED:
                if not request.command.flag & Flag.ONE_WAY:
                    self._unsealed.answers.append(UnsealedEnd(request, ended, self.send_end_answer))
                return HELD
            case EndResult.UNKNOWN:
                return HELD  # as in RocketMQ: nothing is changed or answered
            case EndResult.TOO_LATE:
                return self._answers.after_confirmation(request, Answer(Response.ILLEGAL_OPERATION))
            case EndResult.COUNT_WRONG:
                remark = (
                    f"the broker has {ended.count} messages of this transaction, not the number "
                    f"in escrowCount; nothing was changed"
                )
                return self._answers.after_confirmation(
                    request, Refusal(Response.SYSTEM_ERROR, remark)
                )
            case EndResult.NOT_STORED:
                assert ended.put is not None
                return self._putter.put_refusal(ended.put)
            case _:
                refusal = Refusal(Response.SYSTEM_ERROR, _REMARKS[ended.answer])
                return self._answers.after_confirmation(request, refusal)

    def finish_input(self, now_ms: int) -> None:
        """Append the op records of this input's ENDs, and answer the ENDs."""
        self._unsealed.seal(now_ms)

    def send_end_answer(self, request: Question, ended: EndReply, sealed: SealResult) -> None:
        """Send the answer to an END after its op record was appended, or report that this
        failed."""
        if ended.queue_offset in sealed.undone:
            remark = "the end could not be stored; the transaction is pending still"
            self._answers.send(request, Refusal(Response.SERVICE_NOT_AVAILABLE, remark))
        else:
            self._answers.send(request, self._outcome_answer(ended, sealed.log_end))

    def _outcome_answer(self, ended: EndReply, log_end: int) -> Answer:
        """Return the answer that reports a transaction's outcome, to be sent once it is durable."""
        state = ended.state
        code, remark = Response.SUCCESS, None
        if ended.answer is EndResult.CONTRADICTED or state in (State.EXPIRED, State.SETTLED):
            code = _CONTRARY_OUTCOME_CODES.get(state, Response.TRANSACTION_STATE_UNKNOW)
            remark = f"the transaction is {state.name} already; nothing was changed"
        ext = {OUTCOME: state.name.lower()}
        if ended.count > 1:
            ext["escrowCount"] = str(ended.count)
        return Answer(code, ext=ext, remark=remark, log_end=log_end, tells_safety=True)

    # -- checks ------------------------------------------------------------------------------

    def resume_parked_checks(self, group: str, channel: Channel, now_ms: int) -> None:
        """Resume checks of a group's parked halves, because a new producer can be sent checks."""
        self._checker.unpark_for_producer(group, now_ms)

    def disconnected(self, peer: Peer, now_ms: int) -> None:
        """Subtract the checks that the producer on a lost connection may not have received."""
        self._checker.peer_lost(peer.id, now_ms)

    def wake(self, now_ms: int) -> None:
        """Send the checks that are due."""
        if now_ms < self._checker.wake_at_ms():
            return
        for ask in self._checker.take_due_checks(now_ms):
            self._send_check(ask, now_ms)
        if self.engine.halves.counters.expired:
            self._topics.get_or_create(Topic.CHECK_MAX_TIME, now_ms=now_ms)

    def clock_leapt(self, by_ms: int) -> None:
        """Shift the times of due checks by the clock's jump, so that none is sent early."""
        self._checker.clock_leapt(by_ms)

    def wake_at_ms(self) -> int:
        """The time at which the next check is due."""
        return self._checker.wake_at_ms()

    def _send_check(self, ask: CheckToSend, now_ms: int) -> None:
        half = ask.half
        unique_key = half.properties.get(Property.UNIQ_KEY, "")
        ext = {
            "topic": Topic.HALF,
            "bname": self._settings.name,
            "tranStateTableOffset": str(ask.queue_offset),
            "commitLogOffset": str(half.log_offset),
            "msgId": unique_key,
            "transactionId": unique_key,
            "offsetMsgId": offset_id(half.store_host, half.log_offset),
        }
        peer = self._peers.by_id.get(ask.peer)
        if peer is not None and peer.knows_signed_ids:
            place = msgspec.structs.replace(half, queue_offset=ask.queue_offset)
            try:
                ext["escrowId"] = self._transactions.rotate_and_sign(place, unique_key, now_ms)
            except (StorageError, OSError) as error:
                _log.warning(
                    "a check is postponed, because no signing key could be saved: %s", error
                )
                self._checker.note_not_sent(ask.queue_offset)
                return
        body = encode_message(_half_for_producer(half, ask.count))
        self._peers.send_one_way(ask.peer, Request.CHECK_TRANSACTION_STATE, ext=ext, body=body)

    def resume_check(self, request: IncomingRequest[ResumeCheckHeader]) -> Reply:
        """Resume the checks of a discarded transaction."""
        header = request.header
        _, log_offset = parse_offset_id(header.msg_id)
        source = self._store.read(log_offset)
        if source is None or source.topic not in (Topic.CHECK_MAX_TIME, Topic.HALF):
            remark = f"no message that was given up has the offset id {header.msg_id}"
            return self._answers.after_confirmation(request, Refusal(Response.SYSTEM_ERROR, remark))
        # RocketMQ also resumes an ended transaction, which can lead to a second final message.
        state = self._transactions.resumption.state_of(source)
        if state == State.PENDING:
            return DONE
        if state != State.EXPIRED:
            remark = f"the transaction of {header.msg_id} is {state.name}; nothing was changed"
            return Refusal(Response.SYSTEM_ERROR, remark)
        resumed = self._transactions.resumption.resume(source, request.now_ms)
        if resumed.refusal or resumed.put is not None:
            remark = resumed.refusal or f"Put message back to {Topic.HALF} failed."
            return Refusal(Response.SYSTEM_ERROR, remark)
        return Answer(log_end=self._store.end_offset)


def _half_for_producer(half: StoredMessage, count: int) -> StoredMessage:
    """Return the half as the producer sees it: under its own topic, with the number of the
    check."""
    topic, queue_id = target_queue(half) or ("", 0)
    properties = {
        **half.properties,
        Property.TRANSACTION_CHECK_TIMES: str(count),
        Property.WAIT: "false",
    }
    return msgspec.structs.replace(half, topic=topic, queue_id=queue_id, properties=properties)
