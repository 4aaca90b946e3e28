from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from escrowmq.delivery import pop_carrier
from escrowmq.delivery.pop_carrier import CARRIED_AT_ONCE, CARRY_MIN, CheckPointCarrier
from escrowmq.delivery.pop_check_points import CheckPoint, CheckPoints
from escrowmq.delivery.revive_reader import GRACE_MS, ReviveReader
from escrowmq.store.results import PutResult, PutStatus
from escrowmq.store.store import Store
from tests.unit.broker import test_pop_crash
from tests.unit.broker.consumer import PopConsumer
from tests.unit.broker.world import World
from tests.unit.delivery.test_pop_check_points import handle


class Carried:
    """Check points, and which of them were stored again."""

    def __init__(self) -> None:
        self.popped = CheckPoints()
        self.carrier = CheckPointCarrier(self.popped, self._store)
        self.end = 0
        self.is_full = False
        self.stored: list[int] = []

    def _store(self, point: CheckPoint, now_ms: int) -> int | None:
        del now_ms
        if self.is_full:
            return None
        self.stored.append(point.start_offset)
        self.end += 1
        return self.end - 1

    def pop(self, *, revive: int = 0, span_ms: int = 10_000) -> CheckPoint:
        at, self.end = self.end, self.end + 1
        key = handle(at, at, revive=revive)
        return self.popped.add(key, [at], invisible_ms=span_ms, revive_offset=at, grace_ms=0)

    def round(self) -> int:
        self.carrier.begin_round({0: self.end, 1: self.end})
        return self.carrier.carry(0)


@pytest.fixture(name="carried")
def make_carried() -> Carried:
    return Carried()


def test_a_check_point_is_stored_again_when_many_records_follow_it(carried: Carried) -> None:
    held, other = carried.pop(), carried.pop(span_ms=20_000)
    carried.end = CARRY_MIN - 1
    assert carried.round() == 0
    carried.end = CARRY_MIN
    assert carried.round() == 2
    assert carried.popped.oldest_records() == {0: CARRY_MIN}
    assert carried.round() == 0
    carried.end = 2 * CARRY_MIN
    assert carried.round() == 2, "and again"
    assert carried.popped.next_due(9_999) is None
    assert carried.popped.next_due(10_000) is held
    carried.popped.acknowledge_all(held)
    assert carried.popped.next_due(20_000) is None
    assert carried.popped.next_due(21_000) is other


def test_the_record_of_one_that_is_acknowledged_is_not_needed_any_more(carried: Carried) -> None:
    """It was, for as long as another one that is due in the same second was open."""
    carried.end = 1
    held, other = carried.pop(), carried.pop()
    for _ in range(2):
        carried.end += CARRY_MIN
        assert carried.round() >= 1
        carried.popped.acknowledge_all(other)
    assert carried.popped.oldest_records() == {0: held.revive_offset}
    assert held.revive_offset == carried.end - 1


def test_check_points_that_are_not_older_than_the_others_stay(carried: Carried) -> None:
    """Each round stores few again, compared with the records since the last one."""
    points = [carried.pop() for _ in range(CARRY_MIN)]
    assert carried.round() == 0
    for point in points[10:-100]:
        carried.popped.acknowledge_all(point)
    assert carried.round() == 10
    assert carried.popped.oldest_records() == {0: CARRY_MIN - 100}


def test_queues_with_few_records_are_left_alone(carried: Carried) -> None:
    carried.pop(revive=1)
    carried.end = CARRY_MIN
    carried.pop()
    assert carried.round() == 1
    assert carried.stored == [0]


def test_a_turn_stores_a_bounded_number_and_none_that_was_acknowledged(carried: Carried) -> None:
    points = [carried.pop() for _ in range(2 * CARRIED_AT_ONCE)]
    carried.end = CARRY_MIN
    assert carried.round() == CARRIED_AT_ONCE
    assert carried.carrier.is_under_way
    for point in points[CARRIED_AT_ONCE + 1 :]:
        carried.popped.acknowledge_all(point)
    assert carried.carrier.carry(0) == 1
    assert not carried.carrier.is_under_way


def test_a_check_point_that_is_not_the_first_of_its_track_stays(
    carried: Carried, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried.pop()
    carried.end = CARRY_MIN
    monkeypatch.setattr(CheckPoints, "may_move_record", lambda *_: False)
    assert carried.round() == 0
    assert carried.stored == []


def test_a_round_ends_when_nothing_can_be_stored(carried: Carried) -> None:
    carried.pop()
    carried.end, carried.is_full = CARRY_MIN, True
    assert carried.round() == 0
    assert not carried.carrier.is_under_way
    carried.is_full = False
    assert carried.round() == 1


def test_postponed_check_points_are_stored_again_in_their_place(carried: Carried) -> None:
    first, second = (carried.pop(span_ms=1_000) for _ in range(2))
    for point in (first, second):
        assert carried.popped.next_due(1_000 + point.pop_ms) is point
        carried.popped.postpone(point, 1_000)
    carried.end = CARRY_MIN
    assert carried.round() == 2
    assert carried.popped.oldest_records() == {0: CARRY_MIN}
    assert carried.popped.next_due(1_999) is None
    assert carried.popped.next_due(2_000) is first


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("is_acknowledged", [True, False])
def test_a_message_that_is_held_for_long_does_not_make_a_start_read_all_pops(
    monkeypatch: pytest.MonkeyPatch, *, is_clean: bool, is_acknowledged: bool
) -> None:
    monkeypatch.setattr(pop_carrier, "CARRY_MIN", 40)
    world = World()
    world.topic()
    for body in ("early", "held"):
        world.send(body)
    holder, consumer = PopConsumer(world, peer=2, invisible_ms=60_000), PopConsumer(world)
    early, held = holder.pop()
    holder.ack(early)
    consumer.invisible_ms = 60_000
    for _ in range(20):
        for _ in range(10):
            world.send("m")
            consumer.ack(*consumer.pop())
        world.run(2_000)
    read: list[int] = []
    real = ReviveReader.read_record

    def counted(reader: ReviveReader, log_offset: int, size: int) -> object:
        read.append(log_offset)
        return real(reader, log_offset, size)

    monkeypatch.setattr(ReviveReader, "read_record", counted)
    (world.restart if is_clean else world.crash)()
    monkeypatch.undo()
    assert len(read) < 120, "of 400"
    if is_acknowledged:
        holder.ack(held)
    world.run(19_000)
    assert holder.pop() == []
    world.run(2_000 + GRACE_MS)
    assert [got.body for got in holder.pop()] == ([] if is_acknowledged else ["held"])


def test_a_start_that_finds_both_records_of_a_check_point_knows_it_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was killed before it saved that the first one is not needed any more."""
    monkeypatch.setattr(pop_carrier, "CARRY_MIN", 2)
    monkeypatch.setattr(pop_carrier, "_RECORDS_PER_POINT", 1)
    world = World()
    world.topic()
    for body in "abc":
        world.send(body)
    consumer = PopConsumer(world, invisible_ms=30_000)
    gots = consumer.pop()
    world.now_ms += 10_000
    world.send("d")
    later = consumer.pop()
    consumer.ack(gots[1])
    ledger = world.core.assembly.pops.ledger
    ledger.begin_carrying()
    ledger.wake(world.now_ms)
    consumer.ack(gots[0])
    world.crash()
    popped = world.core.assembly.pops.ledger.popped
    assert popped.count == 2
    consumer.ack(*later)
    world.run(19_000 + GRACE_MS)
    assert consumer.pop() == [], "not before its time"
    world.run(2_000)
    assert [got.body for got in consumer.pop()] == ["c"]


def test_a_full_disk_postpones_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pop_carrier, "CARRY_MIN", 1)
    world = World()
    world.topic()
    world.send("a")
    consumer = PopConsumer(world)
    consumer.pop()
    monkeypatch.setattr(pop_carrier, "_RECORDS_PER_POINT", 0)
    ledger = world.core.assembly.pops.ledger
    with monkeypatch.context() as full:
        full.setattr(Store, "put", lambda *_, **__: PutResult(PutStatus.SERVICE_NOT_AVAILABLE))
        ledger.begin_carrying()
        ledger.wake(world.now_ms)
        assert ledger.wake_at_ms() > world.now_ms
    ledger.begin_carrying()
    assert ledger.wake_at_ms() == 0
    ledger.wake(world.now_ms)
    assert ledger.popped.oldest_records() == {0: 1}


@pytest.mark.thorough
@given(steps=test_pop_crash.STEPS, seed=st.integers(0, 1000))
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_message_is_delivered_until_it_is_acknowledged_if_all_are_stored_again(
    monkeypatch: pytest.MonkeyPatch, steps: test_pop_crash.Steps, seed: int
) -> None:
    monkeypatch.setattr(pop_carrier, "CARRY_MIN", 2)
    monkeypatch.setattr(pop_carrier, "_RECORDS_PER_POINT", 1)
    test_pop_crash.carry_out(steps, seed, slack_ms=1_000)
