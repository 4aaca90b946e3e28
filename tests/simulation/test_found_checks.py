"""What the simulator's judge took for a broken promise, and was none: checks above all."""

from __future__ import annotations

import msgspec
import pytest
from tests.harness.exchange import COMMIT, SMALL, START_MS, UNKNOWN, Caller, Exchange, half_of_check
from tests.sim.ledger import Ledger
from tests.sim.overheard import Overheard
from tests.sim.reading import Reading
from tests.sim.stage import Stage, Violation
from tests.sim.tally import Tally
from tests.sim.world import World

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.effects import Effect, Send
from escrowmq.base.own_properties import OPEN
from escrowmq.base.store_settings import StoreSettings
from escrowmq.testing.disk import CrashLoss

CHECK = Request.CHECK_TRANSACTION_STATE
CHECKS_MAX = 2
INTERVAL_MS = 30_100


class Judged(Exchange):
    """A broker, and the judge of its checks, who hears what is said on its connections."""

    def __init__(self, store_settings: StoreSettings | None = None) -> None:
        stage = Stage(0, START_MS)
        self.tally = Tally(stage, Ledger(stage), CHECKS_MAX)
        self.overheard = Overheard(stage, self.tally, lambda: self.now_ms)
        super().__init__(BrokerSettings(transaction_checks_max=CHECKS_MAX), store_settings)

    def feed(self, caller: Caller, data: bytes) -> None:
        """In two pieces, as a network may have it."""
        for piece in (data[:9], data[9:]):
            super().feed(caller, piece)
            self.overheard.received(caller.id, piece)

    def _perform_one(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            for chunk in effect.chunks:
                self.overheard.sent(effect.peer, bytes(chunk))
        super()._perform_one(effect)

    def look(self) -> None:
        """Judge the counts of the broker as it runs."""
        reading = Reading(())
        reading.advance(self.core.broker.store)
        self.tally.check_running(self.core.transactions.engine, reading)


def producer_of(exchange: Exchange) -> Caller:
    producer = exchange.connect("origin")
    producer.heartbeat(producer="PG")
    return producer


def hold_open(producer: Caller) -> None:
    """Answer the check that came: the transaction is under way here."""
    (check,) = producer.take(CHECK)
    half, fields = half_of_check(check), {OPEN: "true"}
    producer.begin_end(half, UNKNOWN, is_from_check=True, is_one_way=True, fields=fields)
    producer.heartbeat(producer="PG")


def test_a_check_of_a_client_that_holds_its_transaction_open_does_not_count() -> None:
    """Worlds 4249, 4601, 4629 and 4877: the END of an SDK was not confirmed, and the check after
    the one in which it had said "under way" was counted by the judge alone."""
    exchange = Judged()
    producer = producer_of(exchange)
    half = producer.prepare("T", b"m")
    exchange.advance(6_100)
    for _ in range(3 * CHECKS_MAX):
        hold_open(producer)
        exchange.advance(INTERVAL_MS)
        exchange.look()
    assert producer.end(half, COMMIT).code == 0


def test_the_judge_counts_the_checks_of_a_client_that_is_silent_again() -> None:
    """It has to say so each time: one that does not is asked, and counted, as anybody is."""
    exchange = Judged()
    producer = producer_of(exchange)
    half = producer.prepare("T", b"m")
    exchange.advance(6_100)
    hold_open(producer)
    exchange.advance(INTERVAL_MS)
    exchange.look()
    producer.heartbeat(producer="PG")
    exchange.advance(INTERVAL_MS)
    exchange.look()
    exchange.core.transactions.engine.halves.pending.uncount_check(half.queue_offset)
    with pytest.raises(Violation, match="are counted, 3 were sent"):
        exchange.look()


def test_the_judge_counts_the_checks_of_a_half_from_where_it_was_carried_to() -> None:
    """World 4805: the checks of its first copy were counted, and none of its second was sent."""
    exchange = Judged(msgspec.structs.replace(SMALL, is_sync_flush=True))
    producer = producer_of(exchange)
    producer.prepare("T", b"m")
    exchange.advance(6_100)
    exchange.look()
    exchange.advance(20_000)  # the check is not under way any more
    exchange.core.transactions.carrier.carry(1 << 40, exchange.now_ms)
    assert exchange.core.transactions.carrier.carried_count == 1
    exchange.look()
    producer.heartbeat(producer="PG")
    exchange.advance(10_000)
    assert len(producer.take(CHECK)) == CHECKS_MAX
    exchange.look()
    reading = Reading(())
    reading.advance(exchange.core.broker.store)
    engine = exchange.core.transactions.engine
    exchange.tally.check_opened(engine, reading, CrashLoss.NOTHING)
    exchange.tally.take_over(engine, reading)
    exchange.look()


def test_a_final_whose_half_was_deleted_may_come_back_with_the_power() -> None:
    """World 21903: of a deletion, what removed the half's unit had reached the disk alone."""
    assert World(21_903).run().done["forks: PREFIX"]


def test_a_half_may_be_carried_forward_and_deleted_before_it_has_a_unit() -> None:
    """World 22138: there was no descriptor for its queue meanwhile."""
    assert World(22_138).run().done["audits"]


def test_a_delayed_message_may_be_delivered_without_a_unit_when_its_wait_is_deleted() -> None:
    """World 23543: the disk had no room for a queue's file meanwhile."""
    assert World(23_543).run().done["audits"]


def test_a_message_handled_after_the_power_was_lost_may_not_be_the_one_at_its_place_now() -> None:
    """A handler had it when the machine stopped, and returned when another message stood there."""
    assert World(21_113).run().done["messages handled by the SDK"]
