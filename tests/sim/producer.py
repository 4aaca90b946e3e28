"""A transactional producer with every habit that a broker has to bear."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.codec.ids import parse_offset_id
from escrowmq.codec.record import decode_record
from tests.sim.client import SimClient
from tests.sim.halves import SEND, end_fields, send_fields
from tests.sim.ledger import COMMIT, ROLLBACK, UNKNOWN, Given, Ident, Ledger, Sent
from tests.sim.network import Address, SimNetwork
from tests.sim.plan import Plan
from tests.sim.stage import Stage, Violation

_LATE_MS = 120_000
_TRIES_MAX = 3
_REMEMBERED_MAX = 64


class Stored(msgspec.Struct):
    """A half as its producer knows it."""

    sent: Sent
    ident: Ident
    queue_offset: int
    given: Given | None = None


class SimProducer(SimClient):
    """One member of a producer group. The group's database is the ledger's truths."""

    def __init__(
        self,
        stage: Stage,
        network: SimNetwork,
        broker: Address,
        *,
        group: str,
        number: int,
        plan: Plan,
        ledger: Ledger,
    ) -> None:
        host = (f"10.0.1.{number}", 40_000)
        super().__init__(stage, network, broker, name=f"{group}-{number}@sim", host=host)
        self.group = group
        self.colleagues: list[SimProducer] = []
        """All producers, this one among them."""
        self.broker_ms: Callable[[], int] = stage.clock.now_ms
        """What the broker's clock says."""
        self._plan = plan
        self._ledger = ledger
        self._skew_ms = stage.chance.choice((-1, 0, 1)) * plan.skew_ms
        self._old: list[Stored] = []

    def groups(self) -> dict[str, object]:
        """See SimClient."""
        return {"producerDataSet": [{"groupName": self.group}], "consumerDataSet": []}

    def on_connected(self) -> None:
        """See SimClient: a new life may end what an earlier one began."""
        if self._old and self.stage.happens(self._plan.habits.stale_chance):
            old = self.stage.chance.choice(self._old)
            self.stage.fault("END of an earlier life", "%s", old.ident)
            self._send_end(old, self._ledger.truth(old.sent.key))

    # -- a transaction ---------------------------------------------------------------------------

    def begin(self, sents: list[Sent]) -> None:
        """Send the halves, one after another; the local transaction runs when all are there."""
        for sent in sents:
            self._ledger.sent[sent.key] = sent
        self._send_next(sents, [])

    def _send_next(self, sents: list[Sent], stored: list[Stored]) -> None:
        plan, stage = self._plan, self.stage
        immunity = ""
        if stage.happens(plan.immunity_chance):
            immunity = str(stage.chance.randrange(1, 90))
        born_ms = stage.clock.now_ms() + self._skew_ms
        flag = stage.chance.randrange(9)
        sent = sents[len(stored)]
        ext = send_fields(sent, plan, born_ms=born_ms, immunity=immunity, flag=flag)
        if stage.chance.random() < plan.habits.id_share:
            ext["escrowWantsId"] = "true"
        self._send_half(sents, stored, ext, tries=1)

    def _send_half(
        self, sents: list[Sent], stored: list[Stored], ext: dict[str, str], *, tries: int
    ) -> None:
        sent = sents[len(stored)]
        stage = self.stage
        times = 1
        if stage.happens(self._plan.request_doubled_chance):
            stage.fault("request doubled", "half %s", sent.key)
            times = 2
        stage.done["halves sent"] += 1
        asked_ms = self.broker_ms()

        def heard(reply: Command | None) -> None:
            if reply is not None and reply.code == Response.SUCCESS:
                self._half_is_stored(sents, [*stored, self._note(sent, reply, asked_ms)])
                return
            if reply is not None:
                stage.done[f"halves refused: code {reply.code}"] += 1
            if tries < _TRIES_MAX and stage.chance.random() < 0.5:
                self.after(500, partial(self._send_half, sents, stored, ext, tries=tries + 1))
            else:
                # Nobody runs the local transaction: whoever asks is told to roll back.
                sent.truth.verdict, sent.truth.known_ms = ROLLBACK, 0
                if stored and stage.chance.random() < 0.5:
                    self._end(stored)

        self.call(SEND, ext, heard, body=sent.body, times=times)

    def _note(self, sent: Sent, reply: Command, asked_ms: int) -> Stored:
        ext = reply.ext or {}
        ident = (sent.key, parse_offset_id(ext["msgId"])[1])
        queue_offset = int(ext["queueOffset"])
        self.stage.note("half %s acknowledged at queue offset %d", ident, queue_offset)
        self.stage.done["halves acknowledged"] += 1
        self._ledger.halves[ident] = queue_offset
        stored = Stored(sent, ident, queue_offset)
        if "escrowId" in ext:
            stored.given = Given(ext["escrowId"], ident, asked_ms, self.broker_ms())
            self._ledger.given.append(stored.given)
            self.stage.done["signed ids given"] += 1
        return stored

    def _half_is_stored(self, sents: list[Sent], stored: list[Stored]) -> None:
        stage = self.stage
        self._old = [*self._old, stored[-1]][-_REMEMBERED_MAX:]
        is_last = len(stored) == len(sents)
        if stage.happens(self._plan.crash_chance):
            where = "" if is_last else " between halves"
            stage.fault(f"producer crash{where}", "%s after %s", self.name, stored[-1].ident)
            if is_last:
                self._local_transaction(sents[0])
            else:
                sents[0].truth.verdict, sents[0].truth.known_ms = ROLLBACK, 0
            self.crash()
            stage.clock.after(stage.chance.randrange(1_000, 240_000), self.start)
        elif is_last:
            self.after(self._local_transaction(sents[0]), partial(self._end, stored))
        else:
            self._send_next(sents, stored)

    def _local_transaction(self, sent: Sent) -> int:
        """Begin it; how long its producer waits for it."""
        stage, truth = self.stage, sent.truth
        local_ms = stage.chance.choice((0, 5, 50, 500, 5_000))
        if truth.known_ms > stage.clock.now_ms() + local_ms:
            truth.known_ms = stage.clock.now_ms() + local_ms
            if stage.happens(0.1):
                truth.known_ms += 60_000  # the database itself is slow
        return local_ms

    # -- its end ---------------------------------------------------------------------------------

    def _end(self, halves: list[Stored]) -> None:
        stage, plan = self.stage, self._plan
        stored = stage.chance.choice(halves)
        ident = stored.ident
        verdict = self._ledger.truth(stored.sent.key)
        if stage.happens(plan.end_lost_chance):
            stage.fault("END lost", "%s", ident)
            return
        delay_ms = 0
        if stage.happens(plan.end_late_chance):
            stage.fault("END late", "%s", ident)
            delay_ms = stage.chance.randrange(1_000, _LATE_MS)
        count = -1
        if len(halves) > 1 and stage.chance.random() < plan.habits.count_share:
            count = len(halves)
        self.after(delay_ms, partial(self._send_end, stored, verdict, count=count))
        if stage.happens(plan.end_doubled_chance):
            stage.fault("END doubled", "%s", ident)
            again_ms = delay_ms + stage.chance.choice((0, 1, 50, 5_000, 60_000))
            self.after(again_ms, partial(self._send_end, stored, verdict))
        if verdict == UNKNOWN:
            return
        other = COMMIT + ROLLBACK - verdict
        if stage.happens(plan.end_contradicted_chance):
            stage.fault("END contradicted", "%s", ident)
            other_ms = delay_ms + stage.chance.choice((0, 1, 50, 5_000, 90_000))
            self.after(other_ms, partial(self._send_end, stored, other))
        if stage.happens(plan.habits.rival_chance):
            rival = stage.chance.choice(self.colleagues)
            if rival.group == self.group and rival is not self:
                stage.fault("END of a rival process", "%s", ident)
                rival.after(delay_ms, partial(rival.take_over, stage.chance.choice(halves), other))

    def take_over(self, stored: Stored, verdict: int) -> None:
        """End what another process of the group began."""
        self._send_end(stored, verdict)

    def _send_end(
        self,
        stored: Stored,
        verdict: int,
        *,
        tries: int = 1,
        is_check: bool = False,
        count: int = -1,
    ) -> None:
        stage, ledger, ident = self.stage, self._ledger, stored.ident
        through, ext = self._address_end(stored, verdict, is_check=is_check)
        if count >= 0:
            ext["escrowCount"] = str(count)
        stage.note("%s: END %d of %s at %d%s", through.name, verdict, ident, stored.queue_offset,
                   ", asked" if is_check else "")  # fmt: skip
        ledger.say(ident, verdict)
        stage.done["ends sent"] += 1
        if verdict == UNKNOWN or stage.chance.random() >= self._plan.two_way_chance:
            through.cast(Request.END_TRANSACTION, ext)
            return
        given = stored.given if "escrowId" in ext else None
        sent_ms = self.broker_ms()

        def heard(reply: Command | None) -> None:
            if reply is not None:
                outcome = (reply.ext or {}).get("escrowOutcome", "")
                stage.note("END %d of %s: %d %s", verdict, ident, reply.code, outcome)
                if given is not None:
                    self._judge_id(given, sent_ms, reply.code)
                if reply.code == Response.SYSTEM_ERROR and "escrowCount" in (reply.remark or ""):
                    stage.done["ends refused: wrong count"] += 1
                ledger.answered(ident, verdict, reply.code, outcome)
            elif tries < _TRIES_MAX:
                again = partial(self._send_end, stored, verdict, tries=tries + 1,
                                is_check=is_check, count=count)  # fmt: skip
                self.after(1_000, again)

        times = 1
        if stage.happens(self._plan.request_doubled_chance):
            stage.fault("request doubled", "END %s", ident)
            times = 2
        through.call(Request.END_TRANSACTION, ext, heard, times=times)

    def _address_end(
        self, stored: Stored, verdict: int, *, is_check: bool
    ) -> tuple[SimClient, dict[str, str]]:
        """Through whose connection an end goes, and how it says which half it means."""
        stage, habits = self.stage, self._plan.habits
        if not is_check and stored.given and stage.chance.random() < habits.by_id_chance:
            stage.done["ends by signed id"] += 1
            ext = {"escrowId": stored.given.text, "commitOrRollback": str(verdict)}
            return stage.chance.choice(self.colleagues), ext
        ext = end_fields(
            stored.sent,
            stored.ident,
            stored.queue_offset,
            verdict,
            group=self.group,
            is_check=is_check,
        )
        return self, ext

    def _judge_id(self, given: Given, sent_ms: int, code: int) -> None:
        """A signed id is good for as long as the log keeps the half, and not longer. A clock that
        was days ahead has made older ones run out, and their keys go, for good."""
        lasting_ms = self._plan.habits.reserved_hours * 3_600_000
        is_over = sent_ms > max(given.asked_ms, given.heard_ms) + lasting_ms + 1_000
        if code == Response.NO_PERMISSION:
            self.stage.done["signed ids that ran out"] += 1
            was_ahead = self._plan.habits.ahead_at_ms > 0
            made_ms = min(given.asked_ms, given.heard_ms)
            if not was_ahead and self.broker_ms() < made_ms + lasting_ms - 90_000:
                raise Violation(f"the id of {given.ident} was refused, and has not run out")
        elif is_over:
            raise Violation(f"the id of {given.ident} ran out, and was answered {code}")

    # -- checks ----------------------------------------------------------------------------------

    def on_request(self, request: Command) -> None:
        """See SimClient: a check is answered from the group's database."""
        if request.code != Request.CHECK_TRANSACTION_STATE:
            return
        ext = request.ext or {}
        key = ext["transactionId"]
        ident = (key, int(ext["commitLogOffset"]))
        queue_offset = int(ext["tranStateTableOffset"])
        sent = self._ledger.sent[key]
        shown = decode_record(request.body)
        if sent.truth.group != self.group:
            raise Violation(f"{self.name} was asked about {ident} of {sent.truth.group}")
        if (shown.topic, shown.queue_id, shown.body) != (sent.topic, sent.queue_id, sent.body):
            raise Violation(f"the check of {ident} shows another message than was sent")
        self.stage.done["checks received"] += 1
        plan, stage = self._plan, self.stage
        if stage.happens(plan.answer_lost_chance):
            stage.fault("answer lost", "%s", ident)
            return
        verdict = self._ledger.truth(key)
        if stage.happens(plan.answer_unknown_chance):
            stage.fault("answer unknown", "%s", ident)
            verdict = UNKNOWN
        elif verdict != UNKNOWN and stage.happens(plan.answer_wrong_chance):
            stage.fault("answer wrong", "%s", ident)
            verdict = COMMIT + ROLLBACK - verdict
        delay_ms = stage.chance.randrange(50)
        if stage.happens(plan.answer_late_chance):
            stage.fault("answer late", "%s", ident)
            delay_ms = stage.chance.randrange(1_000, _LATE_MS)
        stored = Stored(sent, ident, queue_offset)
        self.after(delay_ms, partial(self._send_end, stored, verdict, is_check=True))
