"""Puts a broker together: which parts it has, what each of them needs, and in which order they have
their turns. The one place that knows them all."""

from __future__ import annotations

from escrowmq.base.ports import Disk
from escrowmq.base.rounds import Rounds
from escrowmq.broker.arrivals import Arrivals
from escrowmq.broker.auditing import Denials
from escrowmq.broker.door import Door, Table
from escrowmq.broker.half_counts import HalfCounts
from escrowmq.broker.half_rules import HalfRules, transactions_of
from escrowmq.broker.later import Later
from escrowmq.broker.measuring import Measuring
from escrowmq.broker.on_back import BackHandlers
from escrowmq.broker.on_clients import ClientHandlers
from escrowmq.broker.on_config import ConfigHandlers
from escrowmq.broker.on_end import EndHandlers
from escrowmq.broker.on_epoch import EpochHandlers
from escrowmq.broker.on_members import MemberHandlers
from escrowmq.broker.on_offsets import OffsetHandlers
from escrowmq.broker.on_pending import PendingHandlers
from escrowmq.broker.on_pull import PullHandlers
from escrowmq.broker.on_query import QueryHandlers
from escrowmq.broker.on_recall import RecallHandlers
from escrowmq.broker.on_relay import RelayHandlers
from escrowmq.broker.on_resets import ResetHandlers
from escrowmq.broker.on_route import RouteHandlers
from escrowmq.broker.on_send import SendHandlers
from escrowmq.broker.on_topics import TopicHandlers
from escrowmq.broker.on_views import ViewHandlers
from escrowmq.broker.part import Part
from escrowmq.broker.pops import Pops
from escrowmq.broker.putting import Putter
from escrowmq.broker.registration import Registration
from escrowmq.broker.remoting import RemotingFront
from escrowmq.broker.saving import ProgressOfHalves
from escrowmq.broker.serving import Serving
from escrowmq.broker.short_puts import ShortPuts
from escrowmq.broker.shortcut import Shortcut
from escrowmq.broker.state import Broker
from escrowmq.broker.tables import Tables
from escrowmq.codec.changes import Changes
from escrowmq.delivery import delay, timer


class Assembly:
    """The parts of one broker, and what it serves with them."""

    def __init__(
        self,
        broker: Broker,
        rounds: Rounds,
        disk: Disk,
        changes: Changes,
        *,
        ha_address: str,
        accounts: Disk,
        signs_as: tuple[str, str] | None,
    ) -> None:
        putter, rules, denials = Putter(broker), HalfRules(broker), Denials()
        self.registration = Registration(broker, ha_address=ha_address, signs_as=signs_as)
        self.transactions = transactions_of(broker, rules)
        self.ends = EndHandlers(broker, putter, self.transactions)
        self.epochs = EpochHandlers(broker, putter, self.transactions.engine)
        self.pulls = PullHandlers(broker)
        self.pops = Pops(broker, putter, self.registration)
        self.clients = ClientHandlers(broker)
        self.door = Door(
            broker, disk, self.transactions, accounts=accounts, denials=denials, polls=self._polls
        )
        handlers = (
            SendHandlers(broker, putter, self.transactions, rules),
            ConfigHandlers(broker, disk, changes),
            PendingHandlers(broker, self.transactions, self.ends, denials),
            BackHandlers(broker, putter),
            RelayHandlers(broker, putter),
            RecallHandlers(broker, putter),
            *(self.ends, self.epochs, self.pulls, self.clients),
            *(*self.pops.handlers, *self.door.handlers, *_plain(broker)),
        )
        self.serving = Serving(broker, self.door, rounds, handlers)
        self.arrivals = Arrivals(broker, rounds, self.pulls, self.pops)
        puts = ShortPuts(broker, self.ends, self.arrivals)
        self.remoting = RemotingFront(broker, self.serving, Shortcut(broker, self.serving, puts))
        self.tables = Tables(broker, disk, self.registration)
        self.measuring = Measuring(broker, self.transactions, self.door, rounds, self.pops.ledger)
        self.parts = self._in_order(broker, rounds)
        self._add_rounds(broker, rounds)

    def _polls(self) -> tuple[Table, ...]:
        return (self.pulls.holds, *self.pops.polls)

    def give_up(self, peer: int, opaque: int) -> None:
        """A peer waits no more for the answer to one question: what comes is for others."""
        for table in self._polls():
            for held in table.of(peer):
                if held.question.asked.command.opaque == opaque:
                    table.release(held)

    def _in_order(self, broker: Broker, rounds: Rounds) -> tuple[Part, ...]:
        """As they are loaded, settled, woken and saved: what is pending before what rests on it,
        acks before messages are handed to those who wait."""
        delays, times = broker.delays, broker.timer
        return (
            ProgressOfHalves(broker, self.transactions),
            self.ends,
            self.epochs,
            HalfCounts(broker, self.transactions.engine.halves.meter),
            Later("delay levels", delay.PATH, delays, delays.load),
            Later("the timer", timer.PATH, times, lambda data, _: times.load(data)),
            self.pulls,
            self.pops,
            self.arrivals,
            self.clients,
            self.registration,
            self.door,
            broker.waiting,
        )

    def _add_rounds(self, broker: Broker, rounds: Rounds) -> None:
        store, stats, calls = broker.store, broker.stats, broker.calls
        rounds.add("the store", store.wake, store.wake_at_ms)
        rounds.add("statistics", stats.wake, stats.wake_at_ms)
        rounds.add("requests to clients", calls.wake, calls.wake_at_ms)
        for part in self.parts:
            if type(part).wake is not Part.wake:
                rounds.add(part.name, part.wake, part.wake_at_ms)


def _plain(broker: Broker) -> tuple[object, ...]:
    """Those who serve requests and need nobody else for it."""
    return (
        OffsetHandlers(broker),
        RouteHandlers(broker),
        QueryHandlers(broker),
        TopicHandlers(broker),
        ResetHandlers(broker),
        ViewHandlers(broker),
        MemberHandlers(broker),
    )
