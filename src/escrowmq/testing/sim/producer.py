"""A transactional producer with every habit that a broker has to bear."""

from __future__ import annotations

from functools import partial

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.message import Property
from escrowmq.codec.ids import parse_offset_id
from escrowmq.codec.properties import encode_properties
from escrowmq.codec.record import decode_record
from escrowmq.testing.sim.client import SimClient
from escrowmq.testing.sim.ledger import COMMIT, ROLLBACK, UNKNOWN, Ident, Ledger, Truth
from escrowmq.testing.sim.network import Address, SimNetwork
from escrowmq.testing.sim.plan import Plan
from escrowmq.testing.sim.stage import Stage, Violation

_LATE_MS = 120_000
_TRIES_MAX = 3


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
        self._plan = plan
        self._ledger = ledger
        self._skew_ms = stage.chance.choice((-1, 0, 1)) * plan.skew_ms

    def groups(self) -> dict[str, object]:
        """See SimClient."""
        return {"producerDataSet": [{"groupName": self.group}], "consumerDataSet": []}

    # -- a transaction ---------------------------------------------------------------------------

    def begin(self, key: str, truth: Truth) -> None:
        """Send a half; the local transaction runs when it is acknowledged."""
        plan, stage = self._plan, self.stage
        properties = {
            Property.UNIQ_KEY: key,
            Property.TRAN_MSG: "true",
            Property.PGROUP: self.group,
            Property.TAGS: "paid",
            Property.KEYS: f"k{key}",
        }
        if stage.happens(plan.immunity_chance):
            properties[Property.CHECK_IMMUNITY_TIME] = str(stage.chance.randrange(1, 90))
        born_ms = stage.clock.now_ms() + self._skew_ms
        ext = {
            "a": self.group,
            "b": truth.topic,
            "c": "TBW102",
            "d": str(max(count for _, count in plan.topics)),
            "e": str(truth.queue_id),
            "f": "4",
            "g": str(born_ms),
            "h": str(stage.chance.randrange(9)),
            "i": encode_properties(properties).decode(),
            "j": "0",
        }
        self._send_half(key, truth, ext, tries=1)

    def _send_half(self, key: str, truth: Truth, ext: dict[str, str], *, tries: int) -> None:
        times = 1
        if self.stage.happens(self._plan.request_doubled_chance):
            self.stage.fault("request doubled", "half %s", key)
            times = 2
        self.stage.done["halves sent"] += 1

        def heard(reply: Command | None) -> None:
            if reply is not None and reply.code == Response.SUCCESS:
                self._prepared(key, truth, reply)
            elif tries < _TRIES_MAX and self.stage.chance.random() < 0.5:
                self.after(500, partial(self._send_half, key, truth, ext, tries=tries + 1))
            else:
                # Nobody ran the local transaction: whoever asks is told to roll back.
                truth.verdict, truth.known_ms = ROLLBACK, 0

        self.call(Request.SEND_MESSAGE_V2, ext, heard, body=truth.body, times=times)

    def _prepared(self, key: str, truth: Truth, reply: Command) -> None:
        ext = reply.ext or {}
        ident = (key, parse_offset_id(ext["msgId"])[1])
        queue_offset = int(ext["queueOffset"])
        self.stage.note("half %s acknowledged at queue offset %d", ident, queue_offset)
        self.stage.done["halves acknowledged"] += 1
        self._ledger.halves[ident] = queue_offset
        local_ms = self.stage.chance.choice((0, 5, 50, 500, 5_000))
        if truth.known_ms > self.stage.clock.now_ms() + local_ms:
            truth.known_ms = self.stage.clock.now_ms() + local_ms
            if self.stage.happens(0.1):
                truth.known_ms += 60_000  # the database itself is slow
        if self.stage.happens(self._plan.crash_chance):
            self.stage.fault("producer crash", "%s after half %s", self.name, key)
            self.crash()
            self.stage.clock.after(self.stage.chance.randrange(1_000, 240_000), self.start)
            return
        self.after(local_ms, partial(self._end, ident, queue_offset))

    def _end(self, ident: Ident, queue_offset: int) -> None:
        stage, plan = self.stage, self._plan
        verdict = self._ledger.truth(ident[0])
        if stage.happens(plan.end_lost_chance):
            stage.fault("END lost", "%s", ident)
            return
        delay_ms = 0
        if stage.happens(plan.end_late_chance):
            stage.fault("END late", "%s", ident)
            delay_ms = stage.chance.randrange(1_000, _LATE_MS)
        send = partial(self._send_end, ident, queue_offset)
        self.after(delay_ms, partial(send, verdict))
        if stage.happens(plan.end_doubled_chance):
            stage.fault("END doubled", "%s", ident)
            self.after(
                delay_ms + stage.chance.choice((0, 1, 50, 5_000, 60_000)), partial(send, verdict)
            )
        if verdict != UNKNOWN and stage.happens(plan.end_contradicted_chance):
            stage.fault("END contradicted", "%s", ident)
            other = COMMIT + ROLLBACK - verdict
            self.after(
                delay_ms + stage.chance.choice((0, 1, 50, 5_000, 90_000)), partial(send, other)
            )

    def _send_end(
        self,
        ident: Ident,
        queue_offset: int,
        verdict: int,
        *,
        tries: int = 1,
        is_check: bool = False,
    ) -> None:
        key, log_offset = ident
        ext = {
            "topic": self._ledger.truths[key].topic,
            "producerGroup": self.group,
            "tranStateTableOffset": str(queue_offset),
            "commitLogOffset": str(log_offset),
            "commitOrRollback": str(verdict),
            "fromTransactionCheck": "true" if is_check else "false",
            "msgId": key,
            "transactionId": key,
        }
        self.stage.note("%s: END %d of %s at %d%s", self.name, verdict, ident, queue_offset,
                        ", asked" if is_check else "")  # fmt: skip
        self._ledger.say(ident, verdict)
        self.stage.done["ends sent"] += 1
        if verdict == UNKNOWN or self.stage.chance.random() >= self._plan.two_way_chance:
            self.cast(Request.END_TRANSACTION, ext)
            return

        def heard(reply: Command | None) -> None:
            if reply is not None:
                outcome = (reply.ext or {}).get("escrowOutcome", "")
                self.stage.note("END %d of %s: %d %s", verdict, ident, reply.code, outcome)
                self._ledger.answered(ident, verdict, reply.code, outcome)
            elif tries < _TRIES_MAX:
                again = partial(self._send_end, ident, queue_offset, verdict, tries=tries + 1,
                                is_check=is_check)  # fmt: skip
                self.after(1_000, again)

        times = 1
        if self.stage.happens(self._plan.request_doubled_chance):
            self.stage.fault("request doubled", "END %s", ident)
            times = 2
        self.call(Request.END_TRANSACTION, ext, heard, times=times)

    # -- checks ----------------------------------------------------------------------------------

    def on_request(self, request: Command) -> None:
        """See SimClient: a check is answered from the group's database."""
        if request.code != Request.CHECK_TRANSACTION_STATE:
            return
        ext = request.ext or {}
        key = ext["transactionId"]
        ident = (key, int(ext["commitLogOffset"]))
        queue_offset = int(ext["tranStateTableOffset"])
        truth = self._ledger.truths[key]
        shown = decode_record(request.body)
        if truth.group != self.group:
            raise Violation(f"{self.name} of {self.group} was asked about {ident} of {truth.group}")
        if (shown.topic, shown.queue_id, shown.body) != (truth.topic, truth.queue_id, truth.body):
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
        self.after(delay_ms, partial(self._send_end, ident, queue_offset, verdict, is_check=True))
