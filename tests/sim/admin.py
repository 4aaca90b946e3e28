"""An operator who settles, checks and resumes transactions while their producers do the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.codec import fastjson
from tests.sim.client import SimClient
from tests.sim.ledger import COMMIT, ROLLBACK, UNKNOWN, Ident, Ledger
from tests.sim.network import Address, SimNetwork
from tests.sim.plan import Plan
from tests.sim.stage import Stage, Violation

_WORDS = {COMMIT: "commit", ROLLBACK: "rollback"}
_LATELY = 5


class SimAdmin(SimClient):
    """The console of one broker, on its own machine."""

    def __init__(
        self, stage: Stage, network: SimNetwork, broker: Address, *, plan: Plan, ledger: Ledger
    ) -> None:
        super().__init__(stage, network, broker, name="admin@sim", host=("127.0.0.1", 60_000))
        self._plan = plan
        self._ledger = ledger
        self.on_settled: Callable[[], None] = lambda: None
        """Told when an administrator was answered."""
        self._acts = (
            self._settle_by_id,
            self._settle_by_message,
            self._check,
            self._resume_some,
            self._resume_one,
            self._look,
            self._rotate,
        )

    def groups(self) -> dict[str, object]:
        """See SimClient."""
        return {"producerDataSet": [], "consumerDataSet": []}

    def act(self) -> None:
        """Do one of the things that operators do."""
        if self.is_connected:
            self.stage.chance.choice(self._acts)()

    def _ask(
        self, code: int, body: dict[str, object], heard: Callable[[Command], None] | None = None
    ) -> None:
        def on_reply(reply: Command | None) -> None:
            if reply is not None:
                self.stage.note("admin: %d %s: %d %s", code, body, reply.code, reply.remark)
                if heard is not None:
                    heard(reply)

        self.call(code, {}, on_reply, body=fastjson.encode(body))

    # -- settling --------------------------------------------------------------------------------

    def _verdict(self, key: str) -> int:
        """Usually what is true; now and then an operator knows better."""
        verdict = self._ledger.truth(key)
        if verdict == UNKNOWN or self.stage.chance.random() < 0.2:
            verdict = self.stage.chance.choice((COMMIT, ROLLBACK))
        return verdict

    def _settle_by_id(self) -> None:
        ledger = self._ledger
        lately = [given for given in ledger.given if given.ident not in ledger.told][-_LATELY:]
        if not lately:
            return
        given = self.stage.chance.choice(lately)
        verdict = self._verdict(given.ident[0])
        ledger.say(given.ident, verdict)
        self.stage.done["settled by an administrator, by signed id"] += 1
        body: dict[str, object] = {"id": given.text, "verdict": _WORDS[verdict], "reason": "drill"}
        self._ask(Request.ESCROW_SETTLE, body, partial(self._settled, given.ident, verdict))

    def _settled(self, ident: Ident, verdict: int, reply: Command) -> None:
        outcome = (reply.ext or {}).get("escrowOutcome", "")
        self._ledger.answered(ident, verdict, reply.code, outcome)
        self.on_settled()

    def _settle_by_message(self) -> None:
        ledger = self._ledger
        if not ledger.halves:
            return
        key = self.stage.chance.choice(list(ledger.halves)[-_LATELY:])[0]
        verdict = self._verdict(key)
        ledger.say_of_key(key, verdict)
        self.stage.done["settled by an administrator, by message"] += 1
        body: dict[str, object] = {"messageId": key, "verdict": _WORDS[verdict]}
        self._ask(Request.ESCROW_SETTLE, body)

    # -- asking ----------------------------------------------------------------------------------

    def _check(self) -> None:
        self.stage.done["checks asked for by an administrator"] += 1
        group = self.stage.chance.choice(self._plan.producers)[0]
        self._ask(Request.ESCROW_CHECK, {"group": group, "limit": 10})

    def _look(self) -> None:
        chance = self.stage.chance
        kind: dict[str, object] = {"state": chance.choice(("waiting", "asked", "parked"))}
        self._ask(Request.ESCROW_PENDING_LIST, kind, self._seen)
        self._ask(Request.ESCROW_PENDING_COUNT, {}, self._seen)

    def _seen(self, reply: Command) -> None:
        if reply.code == Response.SYSTEM_ERROR and self.stage.faults["no descriptors"]:
            return
        if reply.code != Response.SUCCESS:
            raise Violation(f"an operator was answered {reply.code}: {reply.remark}")
        self.stage.done["looks of an administrator"] += 1

    def _rotate(self) -> None:
        self.stage.done["keys rotated"] += 1
        self._ask(Request.ESCROW_KEY_ROTATE, {"reason": "drill"})

    # -- resuming --------------------------------------------------------------------------------

    def _with_discards(self, then: Callable[[list[dict[str, Any]]], None]) -> None:
        """Look what was given up; it may be resumed from now on."""

        def heard(reply: Command) -> None:
            if reply.code == Response.SUCCESS:
                items = fastjson.decode_fastjson(reply.body)["items"]
                if items:
                    self._ledger.resumed.update(item["messageId"] for item in items)
                    then(items)

        self._ask(Request.ESCROW_DISCARDED_LIST, {"limit": 1000}, heard)

    def _resume_some(self) -> None:
        limit = self.stage.chance.choice((1, 2, 100))

        def resumed(reply: Command) -> None:
            if reply.code == Response.SUCCESS:
                count = fastjson.decode_fastjson(reply.body).get("count", 0)
                self.stage.done["halves resumed"] += count

        def resume(items: list[dict[str, Any]]) -> None:
            after = items[0]["halfOffset"] - 1 if self.stage.chance.random() < 0.1 else -1
            self._ask(Request.ESCROW_DISCARDED_RESUME, {"limit": limit, "after": after}, resumed)

        self._with_discards(resume)

    def _resume_one(self) -> None:
        def resume(items: list[dict[str, Any]]) -> None:
            item = self.stage.chance.choice(items)
            self.stage.done["resumed as at RocketMQ"] += 1
            ext = {"msgId": item["offsetId"]}
            self.call(Request.RESUME_CHECK_HALF_MESSAGE, ext, lambda _: None)

        self._with_discards(resume)

    # -- topics ----------------------------------------------------------------------------------

    def grow(self, topic: str, queues_count: int) -> None:
        """Give a topic more queues."""
        self.stage.done["topics grown"] += 1
        self._resize(topic, queues_count)

    def narrow(self, topic: str, queues_count: int) -> None:
        """Leave a topic fewer queues."""
        self.stage.done["topics narrowed"] += 1
        self._resize(topic, queues_count)

    def _resize(self, topic: str, queues_count: int) -> None:
        before = [0, self._plan.queues_count]  # nobody may have used it yet
        sizes = self._ledger.sizes.setdefault(topic, before)
        sizes.append(queues_count)

        def on_reply(reply: Command | None) -> None:
            is_kept = reply is not None and reply.code == Response.SUCCESS
            if is_kept and queues_count in sizes:
                del sizes[: sizes.index(queues_count)]

        ext = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues_count),
            "writeQueueNums": str(queues_count),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "order": "false",
        }
        self.call(Request.UPDATE_AND_CREATE_TOPIC, ext, on_reply)
