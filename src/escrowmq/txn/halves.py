"""The life of pending halves: everything that is kept under a half's number, entered and left at
one place, so that no table holds what another has let go of."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

from escrowmq.base.extensions import EPOCH
from escrowmq.base.message import Message, Property
from escrowmq.base.settings import BrokerSettings
from escrowmq.txn.bundle import BundleId, Bundles, bundle_of
from escrowmq.txn.epoch import Attempt, Epochs, attempt_of, stored_attempt
from escrowmq.txn.half import checks_counted, immunity_ms
from escrowmq.txn.likeness import Likeness
from escrowmq.txn.meter import Counters, Meter
from escrowmq.txn.pending import Pending, Row, Run
from escrowmq.txn.plain import PlainHalf
from escrowmq.txn.recent import Recent
from escrowmq.txn.state import Ledger, State, Verdict
from escrowmq.txn.tally import Tally
from escrowmq.txn.trail import Trail

_log = logging.getLogger(__name__)


class Settled(msgspec.Struct):
    """A half that is pending no longer, with what it takes to undo that."""

    queue_offset: int
    state: State
    row: Row | None = None
    """Of a rollback, which alone may have to be undone."""

    bundle: BundleId | None = None
    attempt: Attempt | None = None
    who: str = ""
    """The administrator that ended it; empty for a producer."""


class Halves:
    """The pending halves of one broker, and what is remembered of those that have ended.

    A half comes by `enter`, and leaves by `settle`, `set_aside` or `supersede`; `restore` takes a
    settlement back. Whoever else holds this reads."""

    def __init__(self, settings: BrokerSettings, tally: Tally) -> None:
        self._settings = settings
        self.pending = Pending()
        self.bundles = Bundles()
        self.epochs = Epochs()
        self.ledger = Ledger()
        self.tally = tally
        self.trail = Trail()
        self.meter = Meter()
        self.counters = Counters()
        self.recent = Recent()
        self.decided: dict[int, Verdict] = {}
        """Halves of a transaction that could be ended in part only: the rest follows."""
        self.quarantine: dict[int, str] = {}
        """Halves that cannot be read: queue offset and why."""
        self.parked: dict[str, dict[int, None]] = {}
        """Halves of each group that nobody was there to be asked about."""
        self.carried: dict[int, int] = {}
        """Where halves stand by now that were carried forward, by their first queue offset."""
        self.aliases: dict[Likeness, int] = {}
        """Halves that RocketMQ has stored again: an end may name the first copy."""

    # -- coming ------------------------------------------------------------------------------

    def refusal(self, message: Message) -> str:
        """Why no half may be stored for a message; empty when one may."""
        if len(self.pending) >= self._settings.pending_max:
            return (
                f"{len(self.pending)} transactions are pending, escrowPendingMax allows no more; "
                "end some of them first"
            )
        attempt = attempt_of(message.properties)
        if attempt is not None:
            return self.epochs.refusal(attempt)
        bundle = bundle_of(message.properties)
        return "" if bundle is None else self.bundles.refusal(bundle, len(message.body))

    def enter(
        self,
        properties: dict[str, str],
        *,
        queue_offset: int,
        log_offset: int,
        stored_ms: int,
        origin: str = "",
        account: str = "",
    ) -> None:
        """A half is stored, and pending from now on."""
        settings, wait_ms = self._settings, immunity_ms(properties)
        attempt = stored_attempt(properties) if EPOCH in properties else None
        if wait_ms is None:
            wait_ms = settings.transaction_timeout_ms if attempt is None else settings.epoch_ms
        topic = properties.get(Property.REAL_TOPIC, "")
        group = properties.get(Property.PGROUP, "")
        row = Row(
            log_offset=log_offset,
            stored_ms=stored_ms,
            due_ms=stored_ms + wait_ms,
            group=group,
            topic=topic,
            origin=origin,
            account=account,
            checks=max(checks_counted(properties), self.tally.count(queue_offset)),
        )
        self._add(queue_offset, row, bundle_of(properties), attempt)

    def enter_plain(self, half: PlainHalf, *, origin: str, account: str) -> None:
        """The same for one with nothing special about it."""
        queue_offset, stored_ms = half.queue_offset, half.stored_ms
        row = Row(
            log_offset=half.log_offset,
            stored_ms=stored_ms,
            due_ms=stored_ms + self._settings.transaction_timeout_ms,
            group=half.group,
            topic=half.topic,
            origin=origin,
            account=account,
            checks=self.tally.count(queue_offset),
        )
        self.counters.prepared += 1
        self.recent.keep_plain(half)
        self._add(queue_offset, row, None, None)

    def _add(
        self, queue_offset: int, row: Row, bundle: BundleId | None, attempt: Attempt | None
    ) -> None:
        self.pending.add(queue_offset, row)
        self.meter.note_pending(row.topic, row.group, 1)
        if bundle is not None:
            self.bundles.add(bundle, queue_offset)
        if attempt is not None:
            self.epochs.add(attempt, queue_offset)

    def enter_run(self, run: Run) -> None:
        """Halves of one shape are pending."""
        if run.shape is None or not run.queue_offsets:
            return
        wait_ms = run.shape.wait_ms
        if wait_ms is None:
            wait_ms = self._settings.transaction_timeout_ms
        self.pending.add_run(run, wait_ms=wait_ms)
        self.meter.note_pending(run.shape.topic, run.shape.group, len(run.queue_offsets))

    # -- going -------------------------------------------------------------------------------

    def settle(self, queue_offset: int, state: State, now_ms: int, who: str = "") -> Settled:
        """A half has an outcome."""
        row = self.pending.row(queue_offset) if state == State.ROLLED_BACK else None
        bundle, attempt = self.bundles.of(queue_offset), self.epochs.of(queue_offset)
        topic, stored_ms = self._remove(queue_offset)
        if bundle is not None:
            self.bundles.remove(queue_offset, state)
        if self.decided:
            self.decided.pop(queue_offset, None)
        self.ledger.record(queue_offset, state)
        self._count(state, topic, now_ms - stored_ms)
        return Settled(queue_offset, state, row, bundle, attempt, who)

    def _remove(self, queue_offset: int) -> tuple[str, int]:
        """Out of every table that holds pending halves alone: its topic, and when it was stored."""
        topic, group, stored_ms = self.pending.remove(queue_offset)
        self.meter.note_pending(topic, group, -1)
        self.recent.drop(queue_offset)
        self.epochs.remove(queue_offset)
        if self.parked:
            self.unpark(queue_offset, group)
        return topic, stored_ms

    def _count(self, state: State, topic: str, latency_ms: int) -> None:
        counters, meter = self.counters, self.meter
        if state == State.COMMITTED:
            counters.committed += 1
            meter.committed[topic] += 1
            meter.note_latency(topic, latency_ms)
        elif state == State.ROLLED_BACK:
            counters.rolled_back += 1
            meter.rolled_back[topic] += 1
        else:
            counters.expired += 1
            meter.expired[topic] += 1

    def restore(self, settled: Settled, due_ms: int) -> None:
        """A rollback could not be kept: the half is pending again."""
        row = settled.row
        assert row is not None, settled
        row.due_ms = due_ms
        self.ledger.record(settled.queue_offset, State.PENDING)
        if settled.bundle is not None:
            self.bundles.reopen(settled.bundle)
        self._add(settled.queue_offset, row, settled.bundle, settled.attempt)
        self.meter.rolled_back[row.topic] -= 1
        self.counters.rolled_back -= 1
        self.counters.undone += 1

    def set_aside(self, queue_offset: int, reason: str) -> None:
        """Nothing can be done about a pending half; it is out of the way, and its transaction can
        only be rolled back."""
        _, stored_ms = self._remove(queue_offset)
        self.decided.pop(queue_offset, None)
        leader = self.bundles.remove(queue_offset, None)
        if leader is not None:
            self.pending.schedule(leader, stored_ms)
        self.put_in_quarantine(queue_offset, reason)

    def put_in_quarantine(self, queue_offset: int, reason: str) -> None:
        """A half that could not even be taken in."""
        self.quarantine[queue_offset] = reason
        _log.error("half message at queue offset %d is set aside: %s", queue_offset, reason)

    def supersede(self, old: int, new: int) -> Settled:
        """Another half, entered already, stands for a pending one from now on."""
        self._remove(old)
        self.bundles.leave(old)
        if old in self.decided:
            self.decided[new] = self.decided.pop(old)
        self.ledger.record(old, State.SETTLED)
        return Settled(old, State.SETTLED)

    # -- between -----------------------------------------------------------------------------

    def owe(self, queue_offsets: Iterable[int], verdict: Verdict, now_ms: int) -> None:
        """The disk failed in the middle of a transaction: what was decided is done as soon as it
        can be, and nobody is asked any more."""
        for queue_offset in queue_offsets:
            self.decided[queue_offset] = verdict
            self.pending.schedule(queue_offset, now_ms)

    def park(self, queue_offset: int, group: str) -> None:
        """Nobody is there to be asked about a half."""
        self.parked.setdefault(group, {})[queue_offset] = None

    def unpark(self, queue_offset: int, group: str) -> None:
        """A half does not wait for somebody to ask any more."""
        parked = self.parked.get(group)
        if parked is not None and parked.pop(queue_offset, self) is None and not parked:
            del self.parked[group]
