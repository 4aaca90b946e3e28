"""A producer whose decisions are the SDK's: which queue and broker, which failure is tried again,
what a check is told and how often an end. Only sockets and clock are of the simulator."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.client.core.end_attempts import EndAttempts
from escrowmq.client.core.end_request import Half, check_answer_fields, end_fields, parse_half
from escrowmq.client.core.message import Message
from escrowmq.client.core.queue_choice import QueueChooser
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.send_attempts import SendAnswer, SendAttempts, SendRequest, SendRules
from escrowmq.client.core.sending import (
    Compression,
    Outcome,
    OutgoingMessage,
    half_properties,
    is_stored_safely,
    make_outgoing,
    parse_send_result,
    properties_of,
    send_fields,
)
from escrowmq.client.core.verdicts import KnownOutcomes, TransactionCourse
from escrowmq.codec.record import decode_record
from escrowmq.errors import (
    ConnectFailed,
    EscrowMQError,
    RequestTimeout,
    TransportError,
)
from tests.sim import ledger as told
from tests.sim.ledger import ROLLBACK, Given, Ident, Ledger
from tests.sim.network import Address, SimNetwork
from tests.sim.plan import Plan
from tests.sim.sdk_client import BROKER, SdkClient
from tests.sim.stage import Stage, Violation

GROUP = "sdk-orders"
GONE = "gone-broker"
"""A broker that the route names and that nobody can reach: half of the sends begin there."""

_MEMBERS = 2
_TIMEOUT_MS = 3_000
_LATE_MS = 50
_RETRIES = 2
_LEFT_OPEN_SHARE = 0.1
_LOCAL_MS = (0, 0, 5, 5, 50, 50, 5_000, 70_000)
"""How long local transactions take; about the longest somebody is asked meanwhile."""
_COMPRESSION = Compression(form="")


class Block:
    """One transaction of this producer, from its beginning to its end."""

    def __init__(
        self,
        sent: told.Sent,
        course: TransactionCourse,
        attempts: SendAttempts,
        out: OutgoingMessage,
    ) -> None:
        self.sent = sent
        self.course = course
        self.attempts = attempts
        self.out = out
        self.half: Half | None = None
        self.asked_ms = 0
        self.asked_count = 0
        """Attempts that reached the broker that is there."""

    def ident(self) -> Ident:
        """Which half it is, once it is stored."""
        assert self.half is not None
        return self.sent.key, self.half.log_offset


class SdkProducer(SdkClient):
    """One member of a producer group, whose database is the ledger's truths."""

    def __init__(
        self,
        stage: Stage,
        network: SimNetwork,
        broker: Address,
        *,
        number: int,
        plan: Plan,
        ledger: Ledger,
    ) -> None:
        host = (f"10.0.4.{number}", 41_000)
        super().__init__(stage, network, broker, name=f"{GROUP}-{number}@sdk", host=host)
        self.broker_ms: Callable[[], int] = stage.clock.now_ms
        """What the broker's clock says."""
        self._plan = plan
        self._ledger = ledger
        self._chance = random.Random(plan.seed * 31 + number)
        self._chooser = QueueChooser(self._chance)
        self._rules = SendRules(group=GROUP, retries=_RETRIES)
        self._verdicts = KnownOutcomes()
        self._blocks: dict[str, Block] = {}
        self._there_since_ms = 0

    def groups(self) -> dict[str, object]:
        """See SimClient."""
        return {"producerDataSet": [{"groupName": GROUP}], "consumerDataSet": []}

    def on_connected(self) -> None:
        """See SimClient."""
        self._there_since_ms = self.stage.clock.now_ms()

    def crash(self) -> None:
        """See SimClient. Local transactions that had not begun never will."""
        super().crash()
        for block in self._blocks.values():
            if block.half is None:
                self._never_ran(block)
        self._blocks.clear()
        self._verdicts = KnownOutcomes()

    # -- the first phase -------------------------------------------------------------------------

    def begin(self, sent: told.Sent) -> None:
        """Store the half; the local transaction runs when it is there."""
        self._ledger.sent[sent.key] = sent
        message = Message(sent.topic, sent.body, tag="paid", keys=[f"k{sent.key}"])
        properties = properties_of(message, unique_key=sent.key)
        properties |= half_properties(message, group=GROUP)
        now_ms = self.stage.clock.now_ms()
        out = make_outgoing(
            message, properties, topic=sent.topic, compression=_COMPRESSION, born_ms=now_ms
        )
        out.wants_id = self._chance.random() < self._plan.habits.id_share
        sending = SendRequest(message=out, timeout_ms=_TIMEOUT_MS)
        attempts = SendAttempts(sending, self._rules, started=now_ms / 1000)
        block = Block(sent, TransactionCourse(self._verdicts), attempts, out)
        block.course.begin(sent.key)
        self._blocks[sent.key] = block
        self._attempt(block)

    def _queues(self, topic: str) -> list[MessageQueue]:
        count = self._plan.queues_count
        return [
            MessageQueue(topic, name, number) for name in (BROKER, GONE) for number in range(count)
        ]

    def _attempt(self, block: Block) -> None:
        queue = block.attempts.choose_target(self._queues(block.sent.topic), self._chooser)
        try:
            left_s = block.attempts.left_s(self.now())
        except RequestTimeout as late:
            self._came(block, late)
            return
        if queue.broker_name == GONE:
            self._came(block, ConnectFailed(f"{GONE} cannot be reached"))
            return
        if not self.is_connected:
            self._came(block, ConnectFailed(f"{BROKER} cannot be reached"))
            return
        block.sent.queue_id = queue.queue_id
        block.attempts.mark_sent()
        block.asked_count += 1
        if block.asked_count > 1 + _RETRIES:
            raise Violation(f"half {block.sent.key}: {block.asked_count} attempts were made")
        self.stage.done["halves sent by the SDK"] += 1

        def done(reply: Command | None, error: TransportError | None) -> None:
            came = SendAnswer(reply, queue, BROKER) if reply is not None else error
            assert came is not None
            self._came(block, came)

        block.asked_ms = self.broker_ms()
        fields = send_fields(block.out, queue, group=GROUP)
        fields["d"] = str(self._plan.queues_count)  # of a topic that its first message creates
        self.ask(block.out.request_code, fields, done, body=block.out.body, timeout_s=left_s)

    def _came(self, block: Block, what: SendAnswer | EscrowMQError) -> None:
        try:
            then = block.attempts.report_attempt(what, now=self.now(), names=lambda: {BROKER, GONE})
        except EscrowMQError as error:
            self._failed(block, error)
            return
        if isinstance(then, SendAnswer):
            self._stored(block, then)
        else:
            self.after(max(1, round(then * 1000)), partial(self._attempt, block))

    def _failed(self, block: Block, error: EscrowMQError) -> None:
        """No attempt is left. That may not be so while the broker is there, and was never asked."""
        now_ms = self.stage.clock.now_ms()
        started_ms = round(block.attempts.deadline * 1000) - _TIMEOUT_MS
        self.stage.note("half %s could not be sent: %s", block.sent.key, str(error))
        if now_ms > started_ms + _TIMEOUT_MS + _LATE_MS:
            raise Violation(f"half {block.sent.key} took {now_ms - started_ms} ms to fail: {error}")
        if self.is_connected and self._there_since_ms <= started_ms and not block.asked_count:
            raise Violation(f"half {block.sent.key} failed, and {BROKER} was never asked: {error}")
        self.stage.done["halves that the SDK gave up"] += 1
        block.course.mark_abandoned()
        self._never_ran(block)
        self._blocks.pop(block.sent.key, None)

    def _never_ran(self, block: Block) -> None:
        truth = block.sent.truth
        truth.verdict, truth.known_ms = ROLLBACK, 0

    def _stored(self, block: Block, sent: SendAnswer) -> None:
        result = parse_send_result(sent.reply, sent.queue, block.out, topic=block.sent.topic)
        half = block.half = parse_half(
            sent.reply, broker_name=BROKER, topic=block.sent.topic, group=GROUP,
            unique_key=block.sent.key,
        )  # fmt: skip
        ident = block.ident()
        self.stage.note("half %s of the SDK is stored", ident)
        if half.signed_id:
            given = Given(half.signed_id, ident, block.asked_ms, self.broker_ms())
            self._ledger.given.append(given)
        if not is_stored_safely(result):  # it may be lost still, or not be seen yet
            self._never_ran(block)
            self._end(block, Outcome.ROLLBACK)
            return
        self._ledger.halves[ident] = half.queue_offset
        local_ms = self._chance.choice(_LOCAL_MS)
        truth = block.sent.truth
        truth.known_ms = min(truth.known_ms, self.stage.clock.now_ms() + local_ms)
        if self.stage.happens(self._plan.crash_chance):
            self.stage.fault("producer crash", "%s after %s", self.name, ident)
            self.crash()
            self.stage.clock.after(self._chance.randrange(1_000, 240_000), self.start)
            return
        self.after(local_ms, partial(self._leave, block))

    # -- its end ---------------------------------------------------------------------------------

    def _leave(self, block: Block) -> None:
        """The local transaction is over: the block is left."""
        outcome = Outcome(self._ledger.truth(block.sent.key))
        if self.stage.happens(_LEFT_OPEN_SHARE):
            outcome = Outcome.UNKNOWN
        self._end(block, outcome)

    def _end(self, block: Block, outcome: Outcome) -> None:
        half = block.half
        assert half is not None
        block.course.set_outcome(outcome)
        if outcome is Outcome.UNKNOWN:
            self._say(block.ident(), outcome)
            self.cast(Request.END_TRANSACTION, end_fields(half, outcome))
            self._blocks.pop(block.sent.key, None)
            return
        telling = EndAttempts(half, outcome, count=0, timeout_ms=_TIMEOUT_MS, started=self.now())
        self._tell(block, telling, outcome)

    def _tell(self, block: Block, telling: EndAttempts, outcome: Outcome) -> None:
        def came(what: Command | EscrowMQError) -> None:
            try:
                pause_s = telling.report_attempt(what, now=self.now(), address=BROKER)
            except EscrowMQError as error:
                self.stage.note("END of %s is not confirmed: %s", block.ident(), str(error))
                self.stage.done["ends that the SDK did not hear confirmed"] += 1
                block.course.record_unconfirmed(error)
                pause_s = None
            if pause_s is None:
                self._blocks.pop(block.sent.key, None)
            else:
                again = partial(self._tell, block, telling, outcome)
                self.after(max(1, round(pause_s * 1000)), again)

        def done(reply: Command | None, error: TransportError | None) -> None:
            if reply is not None:
                self._answered(block.ident(), outcome, reply)
            what = reply or error
            assert what is not None
            came(what)

        self._say(block.ident(), outcome)
        timeout_s = telling.left_s(self.now())
        self.ask(Request.END_TRANSACTION, telling.fields, done, timeout_s=timeout_s)

    def _say(self, ident: Ident, outcome: Outcome) -> None:
        """A verdict leaves: one that contradicts the group's database is never said."""
        truth = self._ledger.truth(ident[0])
        if outcome is not Outcome.UNKNOWN and outcome.value != truth:
            raise Violation(f"{self.name} says {outcome.name} of {ident}, its database {truth}")
        self.stage.done[f"ends of the SDK: {outcome.name}"] += 1
        self._ledger.say(ident, outcome.value)

    def _answered(self, ident: Ident, outcome: Outcome, reply: Command) -> None:
        told_outcome = (reply.ext or {}).get("escrowOutcome", "")
        self._ledger.answered(ident, outcome.value, reply.code, told_outcome)

    # -- checks ----------------------------------------------------------------------------------

    def on_request(self, request: Command) -> None:
        """See SimClient: what is known here of a transaction, or what the database says."""
        if request.code != Request.CHECK_TRANSACTION_STATE:
            return
        ext = request.ext or {}
        shown = decode_record(request.body)
        key = ext["transactionId"]
        ident = (key, int(ext["commitLogOffset"]))
        if self._ledger.sent[key].truth.group != GROUP:
            raise Violation(f"{self.name} was asked about {ident}, which is not of its group")
        known = self._verdicts.outcome_of(shown.properties)
        outcome = Outcome(self._ledger.truth(key)) if known is None else known
        self.stage.done[f"checks of the SDK: {'asked' if known is None else 'known'}"] += 1
        fields = check_answer_fields(ext, outcome, group=GROUP, is_open=known is Outcome.UNKNOWN)
        self._say(ident, outcome)
        if outcome is Outcome.UNKNOWN:
            self.cast(Request.END_TRANSACTION, fields)
            return

        def heard(reply: Command | None) -> None:
            if reply is not None:
                self._answered(ident, outcome, reply)

        self.call(Request.END_TRANSACTION, fields, heard)


def sdk_producers(
    stage: Stage, network: SimNetwork, broker: Address, *, plan: Plan, ledger: Ledger
) -> list[SdkProducer]:
    """The members of the group; none in a world without the SDK."""
    return [
        SdkProducer(stage, network, broker, number=number, plan=plan, ledger=ledger)
        for number in (range(1, _MEMBERS + 1) if plan.has_sdk else ())
    ]
