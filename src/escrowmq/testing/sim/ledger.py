"""What the clients of a simulated world know, said and were promised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from escrowmq.base.codes import Response
from escrowmq.testing.sim.stage import Stage, Violation

Ident = tuple[str, int]
"""Unique key and log offset of a half: a request that was doubled makes two of one key."""

UNKNOWN: Final = 0
COMMIT: Final = 8
ROLLBACK: Final = 12
OUTCOME_OF: Final = {COMMIT: "committed", ROLLBACK: "rolled_back"}
_TOLD: Final = {
    Response.TRANSACTION_SHOULD_COMMIT: "committed",
    Response.TRANSACTION_SHOULD_ROLLBACK: "rolled_back",
}


class Truth(msgspec.Struct):
    """A local transaction, as the database of the producers' group knows it."""

    group: str
    topic: str
    queue_id: int
    body: bytes
    verdict: int
    known_ms: int = 1 << 62
    """Before this the database does not know how it ends."""


class Ledger:
    """The record of one world, kept by its clients; the checker holds the broker to it."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.truths: dict[str, Truth] = {}
        self.halves: dict[Ident, int] = {}
        """Halves whose storage was acknowledged, with their queue offsets."""
        self.said: dict[Ident, set[int]] = {}
        """Verdicts that some client sent."""
        self.told: dict[Ident, str] = {}
        """Outcomes that the broker acknowledged."""
        self.checks: Counter[Ident] = Counter()
        """Checks that were handed to a connection."""
        self.settled: list[tuple[Ident, int]] = []
        """Ends that were answered OK with the outcome "settled": the broker forgot which."""
        self.on_answer: Callable[[], None] = lambda: None
        """Told of every outcome that was acknowledged."""

    def truth(self, key: str) -> int:
        """What the group's database says now."""
        truth = self.truths[key]
        return truth.verdict if truth.known_ms <= self._stage.clock.now_ms() else UNKNOWN

    def say(self, ident: Ident, verdict: int) -> None:
        """A client sends a verdict."""
        self.said.setdefault(ident, set()).add(verdict)

    def answered(self, ident: Ident, verdict: int, code: int, outcome: str) -> None:
        """The broker answered an end: what it says holds from now on."""
        if code == Response.SUCCESS:
            if outcome == "settled":
                self._stage.done["ends answered: settled, not known how"] += 1
                self.settled.append((ident, verdict))
                return
            if verdict != UNKNOWN and OUTCOME_OF[verdict] != outcome:
                raise Violation(f"END {verdict} of {ident} was answered OK, but it is {outcome}")
        elif code in _TOLD and _TOLD[code] != outcome:
            raise Violation(f"END of {ident} was answered {code}, but it is {outcome}")
        elif code not in _TOLD:
            return
        before = self.told.setdefault(ident, outcome)
        if before != outcome:
            raise Violation(f"outcome of {ident} was {before}, and is {outcome} now")
        self._stage.done[f"ends answered: {outcome}"] += 1
        self.on_answer()

    def forget(self, ident: Ident) -> None:
        """The disk lost what was promised in memory only."""
        self.told.pop(ident, None)
