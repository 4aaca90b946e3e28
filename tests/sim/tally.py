"""Checks that were sent, against those that a broker has counted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container

from escrowmq.base.message import Topic
from escrowmq.testing.disk import Loss
from escrowmq.txn.engine import Engine
from tests.sim.ledger import Ident, Ledger
from tests.sim.reading import Reading
from tests.sim.stage import Stage, Violation


class Tally:
    """Judges the counts of checks: none is asked about more often than the settings allow."""

    def __init__(self, stage: Stage, ledger: Ledger, checks_max: int) -> None:
        self._stage = stage
        self._ledger = ledger
        self._checks_max = checks_max
        self._uncounted: dict[Ident, int] = {}
        """Checks that were sent and are not counted any more; below 0, counted and not sent."""

        self._of_peer: dict[int, list[tuple[Ident, int]]] = defaultdict(list)
        self._unheard: Counter[Ident] = Counter()
        """Checks after which nothing came of their connection till it ended."""
        self._in_vain: Counter[Ident] = Counter()
        """All checks whose connection ended: what came of it may not have told that they came."""

    def check_sent(self, ident: Ident, peer: int, now_ms: int) -> None:
        """A check was handed to a connection."""
        self._ledger.checks[ident] += 1
        self._of_peer[peer].append((ident, now_ms))
        counted = self._sent_since(ident) - self._in_vain[ident]
        if counted > self._checks_max:
            raise Violation(
                f"{ident} was asked about {counted} times, {self._checks_max} are allowed"
            )

    def lost(self, peer: int, heard_ms: int) -> None:
        """A broker has learnt of the end of a connection, of which it heard last at a time."""
        for ident, at_ms in self._of_peer.pop(peer, ()):
            self._in_vain[ident] += 1
            if at_ms > heard_ms:
                self._unheard[ident] += 1
                self._stage.done["checks that reached nobody"] += 1

    def counted(self, ident: Ident) -> int:
        """Checks that were sent, and those that a broker counted before it died."""
        return self._ledger.checks[ident] + max(-self._uncounted.get(ident, 0), 0)

    def check_running(self, engine: Engine, reading: Reading) -> None:
        """As many checks are counted as were handed to a connection that did not end without a
        word, and no half inherits those of another that stood at its place."""
        for number in engine.halves.pending:
            ident = _ident(reading, number)
            if ident is None:
                continue
            known, sent = engine.halves.pending.checks(number), self._sent_since(ident)
            unheard, in_vain = self._unheard[ident], self._in_vain[ident]
            if not sent - in_vain <= known <= sent - unheard:
                raise Violation(
                    f"{known} checks of {ident} are counted, {sent} were sent, {unheard} of them "
                    f"in vain, or at most {in_vain}"
                )

    def check_opened(self, engine: Engine, found: Reading, loss: Loss) -> None:
        """Checks that were delivered are known after a start, but for those that power took. A
        broker that dies between the count and the check has counted one that nobody saw."""
        is_full = {"disk full", "no descriptors"} & {*self._stage.faults}
        for number in engine.halves.pending:
            ident = _ident(found, number)
            if ident is None:
                continue
            known, sent = engine.halves.pending.checks(number), self._sent_since(ident)
            is_kept = loss is not Loss.NOTHING or is_full or known >= sent - self._in_vain[ident]
            if not is_kept or known > sent + 1:
                raise Violation(f"{known} checks of {ident} are counted, {sent} were sent")

    def take_over(self, engine: Engine, found: Reading) -> None:
        """What power took from the counts may be asked again, and no connection is left."""
        self._of_peer.clear()
        for number in engine.halves.pending:
            ident = _ident(found, number)
            if ident is not None:
                known = engine.halves.pending.checks(number)
                self._uncounted[ident] = self._ledger.checks[ident] - known
                self._unheard.pop(ident, None)
                self._in_vain.pop(ident, None)

    def forget_all_but(self, halves: Container[Ident]) -> None:
        """Lost power took halves: nothing is known of them any more."""
        for ident in [i for i in self._ledger.checks if i not in halves]:
            del self._ledger.checks[ident]
            self._uncounted.pop(ident, None)
            self._unheard.pop(ident, None)
            self._in_vain.pop(ident, None)

    def _sent_since(self, ident: Ident) -> int:
        return self._ledger.checks[ident] - self._uncounted.get(ident, 0)


def _ident(reading: Reading, number: int) -> Ident | None:
    """The half at a place, also where its queue waits for room; None where retention was faster."""
    halves = reading.queues[Topic.HALF, 0]
    half = halves[number] if number < len(halves) else None
    return reading.waiting_halves.get(number) if half is None else (half.key, half.log_offset)
