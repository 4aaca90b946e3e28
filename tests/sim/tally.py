"""Checks that were sent, against those that a broker has counted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container

from escrowmq.testing.disk import CrashLoss
from escrowmq.txn.engine import TransactionEngine
from tests.sim.ledger import Ident, Ledger
from tests.sim.reading import Reading, Seen, checks_before
from tests.sim.stage import Stage, Violation

_CLOSING = {"no descriptors", "clock set forward", "clock days ahead", "end undone"}


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
        self._open: dict[Ident, int] = {}
        """Who said last that the transaction is under way there."""
        self._spared: Counter[Ident] = Counter()
        """Checks of those who had said so: these do not count (docs/extensions.md, escrowOpen)."""

    def check_sent(self, ident: Ident, peer: int, now_ms: int) -> None:
        """A check was handed to a connection."""
        self._ledger.checks[ident] += 1
        if self._open.pop(ident, None) == peer:
            self._spared[ident] += 1
            self._stage.done["checks that do not count: held open"] += 1
        else:
            self._of_peer[peer].append((ident, now_ms))
        counted = self._sent_since(ident) - self._in_vain[ident] - self._spared[ident]
        if counted > self._checks_max:
            raise Violation(
                f"{ident} was asked about {counted} times, {self._checks_max} are allowed"
            )

    def held_open(self, ident: Ident, peer: int) -> None:
        """A connection has answered a check: its transaction is under way there."""
        self._open[ident] = peer

    def lost(self, peer: int, heard_ms: int) -> None:
        """A broker has learnt of the end of a connection, of which it heard last at a time."""
        for ident, at_ms in self._of_peer.pop(peer, ()):
            self._in_vain[ident] += 1
            if at_ms > heard_ms:
                self._unheard[ident] += 1
                self._stage.done["checks that reached nobody"] += 1

    def counted(self, ident: Ident) -> int:
        """Checks that were sent and count, and those that a broker counted before it died."""
        sent = self._ledger.checks[ident] - self._surely_spared(ident)
        return sent + max(-self._uncounted.get(ident, 0), 0)

    def check_running(self, engine: TransactionEngine, reading: Reading) -> None:
        """As many checks are counted as were handed to a connection that did not end without a
        word, and no half inherits those of another that stood at its place."""
        for number in engine.halves.pending:
            half = reading.half(number)
            if half is None:
                continue
            ident, known = half.ident, _counted(engine, number, half)
            sent = self._sent_since(ident)
            unheard, in_vain = self._unheard[ident], self._in_vain[ident]
            least = sent - in_vain - self._spared[ident]
            if not least <= known <= sent - unheard - self._surely_spared(ident):
                raise Violation(
                    f"{known} checks of {ident} are counted, {sent} were sent, {unheard} of them "
                    f"in vain, or at most {in_vain}, and {self._spared[ident]} that do not count"
                )

    def check_opened(self, engine: TransactionEngine, found: Reading, loss: CrashLoss) -> None:
        """Checks that were delivered are known after a start, but for those that power took. A
        broker that dies between the count and the check has counted one that nobody saw."""
        is_full = {"disk full", "no descriptors"} & {*self._stage.faults}
        for number in engine.halves.pending:
            half = found.half(number)
            if half is None:
                continue
            ident, known = half.ident, _counted(engine, number, half)
            sent = self._sent_since(ident)
            least = sent - self._in_vain[ident] - self._spared[ident]
            is_kept = loss is not CrashLoss.NOTHING or is_full or known >= least
            if not is_kept or known > sent - self._surely_spared(ident) + 1:
                raise Violation(f"{known} checks of {ident} are counted, {sent} were sent")

    def take_over(self, engine: TransactionEngine, found: Reading) -> None:
        """What power took from the counts may be asked again, and no connection is left."""
        self._of_peer.clear()
        self._open.clear()
        for number in engine.halves.pending:
            half = found.half(number)
            if half is not None:
                known = _counted(engine, number, half)
                self._uncounted[half.ident] = self._ledger.checks[half.ident] - known
                self._begin_anew(half.ident)

    def forget_all_but(self, halves: Container[Ident]) -> None:
        """Lost power took halves: nothing is known of them any more."""
        for ident in [i for i in self._ledger.checks if i not in halves]:
            del self._ledger.checks[ident]
            self._uncounted.pop(ident, None)
            self._begin_anew(ident)

    def _begin_anew(self, ident: Ident) -> None:
        for counts in (self._unheard, self._in_vain, self._spared):
            counts.pop(ident, None)

    def _surely_spared(self, ident: Ident) -> int:
        """Without a descriptor an answer that holds open may be refused, after the clock was set
        forward its client is not there for a while, and one that has said how it ended holds it
        open no more, kept or not: the check after it counts then."""
        is_sure = not _CLOSING & {*self._stage.faults}
        return self._spared[ident] if is_sure else 0

    def _sent_since(self, ident: Ident) -> int:
        return self._ledger.checks[ident] - self._uncounted.get(ident, 0)


def _counted(engine: TransactionEngine, number: int, half: Seen) -> int:
    """The checks that a broker counts for a half since it was stored: those of the copies before it
    were of other halves, as clients see them."""
    return engine.halves.pending.checks_count(number) - checks_before(half.message)
