"""What the clients of a simulated world know, said and were promised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from escrowmq.base.codes import Response
from tests.sim.stage import Stage, Violation

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
_SAID_OF_KEY: Final = -1


class Truth(msgspec.Struct):
    """A local transaction, as the database of the producers' group knows it."""

    group: str
    verdict: int
    name: str = ""
    """What joins its messages; empty when it has one only."""
    known_ms: int = 1 << 62
    """Before this the database does not know how it ends."""


class Sent(msgspec.Struct, kw_only=True):
    """A message as its producer meant it."""

    key: str
    topic: str
    queue_id: int
    body: bytes
    truth: Truth
    order_key: str = ""
    level: int = 0
    """Delay level; 0 for none."""
    deliver_ms: int = 0
    """Delivery time; 0 for none."""


class Given(msgspec.Struct):
    """A signed id, and the half that it was given for."""

    text: str
    ident: Ident
    asked_ms: int
    heard_ms: int
    """Both by the broker's clock; it was made in between, and the clock may have been set since."""


class Ledger:
    """The record of one world, kept by its clients; the checker holds the broker to it."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.sent: dict[str, Sent] = {}
        self.halves: dict[Ident, int] = {}
        """Halves whose storage was acknowledged, with their queue offsets."""
        self.said: dict[tuple[str, int], dict[int, int]] = {}
        """Verdicts that some client sent, each with the time of the first."""
        self.told: dict[Ident, str] = {}
        """Outcomes that the broker acknowledged."""
        self.committed_ms: dict[Ident, int] = {}
        """When the commit of a half was acknowledged."""
        self.checks: Counter[Ident] = Counter()
        """Checks that were handed to a connection."""
        self.resumed: set[str] = set()
        """Keys of halves that an administrator may have had asked about again."""
        self.carried: set[str] = set()
        """Keys of those carried forward: an end that names where one stood before ends it."""
        self.immune: set[str] = set()
        """Keys of halves that want no check for longer than the world lasts."""
        self.settled: list[tuple[Ident, int]] = []
        """Ends that were answered OK with the outcome "settled": the broker forgot which."""
        self.sizes: dict[str, list[int]] = {}
        """Of topics that were resized, how many queues they may have: what was acknowledged last,
        and what was asked for since."""
        self.given: list[Given] = []
        """Signed ids."""
        self.on_answer: Callable[[], None] = lambda: None
        """Told of every outcome that was acknowledged."""

    def truth(self, key: str) -> int:
        """What the group's database says now."""
        truth = self.sent[key].truth
        return truth.verdict if truth.known_ms <= self._stage.clock.now_ms() else UNKNOWN

    def scope(self, ident: Ident) -> tuple[str, int]:
        """What is ended together with a half: itself, or all of its transaction."""
        truth = self.sent[ident[0]].truth
        return (f"{truth.group} {truth.name}", _SAID_OF_KEY) if truth.name else ident

    # -- what is said ----------------------------------------------------------------------------

    def say(self, ident: Ident, verdict: int) -> None:
        """A client sends a verdict about a half."""
        said = self.said.setdefault(self.scope(ident), {})
        said.setdefault(verdict, self._stage.clock.now_ms())

    def say_of_key(self, key: str, verdict: int) -> None:
        """An administrator sends a verdict about whichever half has a key."""
        self.say((key, _SAID_OF_KEY), verdict)

    def said_ms(self, ident: Ident, verdict: int) -> int | None:
        """When a verdict about a half was sent first; None when nobody sent it."""
        key = ident[0]
        scopes = {self.scope(ident), self.scope((key, _SAID_OF_KEY))}
        if key in self.resumed or key in self.carried:
            scopes |= {scope for scope in self.said if scope[0] == key}
        found = [self.said[s][verdict] for s in scopes if verdict in self.said.get(s, ())]
        return min(found, default=None)

    # -- what is answered ------------------------------------------------------------------------

    def answered(self, ident: Ident, verdict: int, code: int, outcome: str) -> None:
        """The broker answered an end: what it says holds from now on."""
        if not outcome:
            self._stage.done[f"ends answered: code {code}"] += 1
            return
        if code == Response.FLUSH_DISK_TIMEOUT:
            self._stage.done["ends answered: not durable in time"] += 1
            return
        if outcome == "settled":
            self._stage.done["ends answered: settled, not known how"] += 1
            self.settled.append((ident, verdict))
            return
        if code == Response.SUCCESS and verdict != UNKNOWN and OUTCOME_OF[verdict] != outcome:
            raise Violation(f"END {verdict} of {ident} was answered OK, but it is {outcome}")
        if code in _TOLD and _TOLD[code] != outcome:
            raise Violation(f"END of {ident} was answered {code}, but it is {outcome}")
        before = self.told.get(ident, outcome)
        if before != outcome and not (before == "expired" and ident[0] in self.resumed):
            raise Violation(f"outcome of {ident} was {before}, and is {outcome} now")
        self.told[ident] = outcome
        if outcome == "committed":
            self.committed_ms.setdefault(ident, self._stage.clock.now_ms())
        self._stage.done[f"ends answered: {outcome}"] += 1
        self.on_answer()

    def forget(self, ident: Ident) -> None:
        """The disk lost what was promised in memory only."""
        self.told.pop(ident, None)
        self.committed_ms.pop(ident, None)
