from __future__ import annotations

import random
import struct
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.message import Topic
from escrowmq.delivery import timer_snapshot
from escrowmq.delivery.delay_progress import DelayedDeliverer
from escrowmq.delivery.timer_file import OFFSET_BITS, TimerProgress
from escrowmq.delivery.timer_snapshot import (
    SNAPSHOT_MAX,
    SNAPSHOT_MIN,
    SNAPSHOT_MS,
    ListedOffsets,
    SnapshotSaver,
    TimerSnapshot,
    decode,
    encode,
)
from escrowmq.errors import StorageError
from escrowmq.testing.disk import CrashLoss

from .later import START_MS, Later

OFFSET = st.integers(0, (1 << 40) - 1)
BORDER = st.integers(0, (1 << 44 + OFFSET_BITS) - 1)


@given(OFFSET, BORDER, st.lists(OFFSET, max_size=20))
def test_snapshot_is_the_same_after_its_file(taken: int, border: int, pending: list[int]) -> None:
    found = decode(encode(taken, border, pending))
    assert found == TimerSnapshot(taken, border, array("q", sorted(pending)))


@given(st.data())
def test_file_that_is_not_whole_is_none(data: st.DataObject) -> None:
    whole = encode(9, 3, [1, 2])
    assert decode(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None
    at = data.draw(st.integers(0, len(whole) - 1))
    assert decode(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]) is None
    assert decode(None) is None
    assert decode(data.draw(st.binary(max_size=50))) is None


@pytest.mark.parametrize(
    ("progress", "read_from", "end", "shortens"),
    [
        (TimerProgress(9, 5, 0), 0, 9, True),
        (TimerProgress(20, 7, 0), 8, 30, True),
        (TimerProgress(8, 5, 0), 0, 9, False),
        (TimerProgress(9, 4, 0), 0, 9, False),
        (TimerProgress(9, 5, 0), 9, 9, False),
        (TimerProgress(9, 5, 0), 0, 8, False),
    ],
)
def test_a_snapshot_that_is_newer_than_the_progress_or_of_no_use_is_not_used(
    progress: TimerProgress, read_from: int, end: int, *, shortens: bool
) -> None:
    assert decode(encode(9, 5, [1])).shortens(progress, read_from, end) is shortens  # type: ignore[union-attr]


def test_listed_offsets_are_read_in_runs() -> None:
    listed, snapshot = ListedOffsets(), decode(encode(100, 0, [9, 1, 5, 6, 7, 8, 20]))
    assert snapshot is not None
    assert not listed
    listed.start(snapshot, 2)
    assert listed.first == 5
    assert [listed.next_run(3), listed.next_run(2)] == [range(5, 8), range(5, 7)]
    listed.drop_before(8)
    assert listed.next_run(3) == range(8, 10)
    listed.drop_before(9)
    assert listed.next_run(3) == range(9, 10)
    listed.drop_before(20)
    assert listed.next_run(3) == range(20, 21)
    listed.drop_before(100)
    assert not listed


def test_a_snapshot_is_taken_seldom_and_only_if_it_saves_something() -> None:
    saver = SnapshotSaver()

    def is_due(now_ms: int, count: int, behind: int) -> bool:
        return saver.is_due(now_ms, pending_count=count, behind=behind)

    assert not is_due(0, 1, SNAPSHOT_MIN - 1)
    assert not is_due(0, SNAPSHOT_MIN // 2 + 1, SNAPSHOT_MIN)
    assert not is_due(0, SNAPSHOT_MAX + 1, 9 * SNAPSHOT_MAX)
    assert is_due(0, 20_000, 40_000)
    saver.add(b"1", 0, pending_count=20_000, log_end=70)
    assert saver.take(69) is None
    assert not is_due(1 << 40, 1, SNAPSHOT_MIN), "one waits"
    assert (saver.take(70), saver.take(70)) == (b"1", None)
    assert not is_due(SNAPSHOT_MS + 1_999, 1, SNAPSHOT_MIN)
    assert is_due(SNAPSHOT_MS + 2_000, 1, SNAPSHOT_MIN)


@pytest.fixture(name="early")
def take_snapshots_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer_snapshot, "SNAPSHOT_MIN", 4)
    monkeypatch.setattr(timer_snapshot, "SNAPSHOT_MS", 0)


def far_one(count: int = 100) -> Later:
    """One message that is due in a day, and many that were delivered since."""
    world = Later()
    world.send(b"far", UNIQ_KEY="far", TIMER_DELAY_SEC="86400")
    for number in range(count):
        world.send(b"%d" % number, UNIQ_KEY=f"u{number}", TIMER_DELAY_SEC="1")
    world.run(5_000)
    return world


@pytest.mark.usefixtures("early")
@pytest.mark.parametrize("is_clean", [True, False])
def test_one_message_that_is_due_late_does_not_make_a_start_read_all(
    monkeypatch: pytest.MonkeyPatch, *, is_clean: bool
) -> None:
    world = far_one()
    world.sync()
    world.save()
    for body in (b"next", b"last"):
        world.send(body, TIMER_DELAY_SEC="60")
    (world.restart if is_clean else world.crash)()
    read: list[int] = []
    real = DelayedDeliverer.read_record

    def counted(self: DelayedDeliverer, log_offset: int, size: int) -> object:
        read.append(log_offset)
        return real(self, log_offset, size)

    monkeypatch.setattr(DelayedDeliverer, "read_record", counted)
    assert world.timer.may_hold("T")
    world.wake()
    assert len(read) == 3, "of 103"
    assert world.timer.pending_count == 3
    assert world.timer.oldest_needed_offset() == world.store.read_units(Topic.TIMER, 0, 0, 1)[0][0]
    world.run(86_400_000)
    assert world.bodies()[-3:] == [b"next", b"last", b"far"]
    assert len(world.bodies()) == 103
    assert world.timer.pending_count == 0


@pytest.mark.usefixtures("early")
def test_records_that_are_listed_and_not_read_yet_keep_their_segment() -> None:
    world = far_one()
    for _ in range(2_000):
        world.send(b"x", TIMER_DELAY_SEC="90000")
    world.run(10_000)
    world.send(b"end", TIMER_DELAY_SEC="1")
    world.run(5_000)
    world.restart()
    first = world.store.read_units(Topic.TIMER, 0, 0, 1)[0][0]
    assert world.timer.oldest_needed_offset() == first
    world.wake()
    assert world.timer.oldest_needed_offset() == first
    assert world.timer.may_hold("T")
    assert world.timer.wake_at_ms() == 0
    world.run(20_000)
    assert world.timer.pending_count == 2_001


@pytest.mark.usefixtures("early")
def test_a_slave_is_told_to_look_at_slots_of_listed_records() -> None:
    world = far_one()
    world.restart()
    assert world.timer.next_read_offset == 101, "it is listed"
    world.now_ms += 90_000_000
    (read_ms,) = struct.unpack_from(">q", world.timer.progress_for_slave(world.now_ms))
    assert START_MS < read_ms < START_MS + 86_400_000


@pytest.mark.usefixtures("early")
def test_a_turn_reads_as_many_listed_records_if_they_are_not_consecutive() -> None:
    """It read eight runs of them, however short: a start took thirty times as many turns."""
    world = Later()
    for number in range(2_000):
        world.send(b"x", UNIQ_KEY=f"u{number}", TIMER_DELAY_SEC="1" if number % 2 else "1000")
    world.run(5_000)
    world.restart()
    counts = []
    while not world.timer.is_rebuilt:
        world.wake()
        counts.append(world.timer.pending_count)
    assert counts == [512, 1_000]


@pytest.mark.usefixtures("early")
def test_listed_records_are_read_later_if_the_queue_cannot_be_read_at_first() -> None:
    """They were dropped from the list before they were read, so they were lost."""
    world = far_one()
    world.restart()
    world.disk.unreadable |= {path for path in world.disk.files if Topic.TIMER in path}
    for _ in range(2):
        with pytest.raises(StorageError):
            world.wake()
    world.disk.unreadable.clear()
    world.run(86_400_000)
    assert world.bodies()[-1] == b"far"
    assert len(world.bodies()) == 101


@pytest.mark.usefixtures("early")
def test_a_snapshot_of_a_log_that_lost_its_end_is_not_used() -> None:
    """The queue offsets belong to other records then."""
    world = far_one()
    world.save()  # nothing is durable
    assert world.disk.read(timer_snapshot.PATH) is None
    world.sync()
    world.save()
    assert world.disk.read(timer_snapshot.PATH) is not None


def test_a_snapshot_of_a_log_that_lost_its_durable_end_hides_nothing_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A disk that loses what it has synced, or a log from a back-up. The snapshot was used by the
    first start after the queue had grown beyond it again."""
    world = Later()
    world.send(b"far", TIMER_DELAY_SEC="86400")
    world.sync()
    world.save()
    with monkeypatch.context() as early:
        early.setattr(timer_snapshot, "SNAPSHOT_MIN", 4)
        for number in range(100):
            world.send(b"%d" % number, UNIQ_KEY=f"u{number}", TIMER_DELAY_SEC="1")
        world.run(5_000)
        wanted = world.store.next_sync(world.now_ms + 20_000)
        assert wanted is not None
        world.store.sync_finished(wanted.log_offset, world.now_ms)  # but nothing was synced
        world.save()
    assert world.disk.read(timer_snapshot.PATH) is not None
    world.crash(CrashLoss.ALL)
    assert world.store.bounds(Topic.TIMER, 0) == (0, 1)
    assert world.disk.read(timer_snapshot.PATH) is None
    for number in range(110):
        world.send(b"new", UNIQ_KEY=f"n{number}", TIMER_DELAY_SEC="1" if number % 2 else "100")
    world.run(10_000)
    world.restart()
    world.run(86_400_000)
    assert world.bodies().count(b"new") == 110


@pytest.mark.usefixtures("early")
def test_an_unreadable_snapshot_costs_time_alone() -> None:
    world = far_one()
    world.sync()
    world.save()
    world.disk.replace(timer_snapshot.PATH, b"ESCD of another kind")
    world.restart()
    world.run(86_400_000)
    assert len(world.bodies()) == 101


@pytest.mark.thorough
@pytest.mark.usefixtures("early")
@pytest.mark.parametrize("loss", [CrashLoss.NOTHING, CrashLoss.PREFIX, CrashLoss.ALL])
@pytest.mark.parametrize("seed", range(12))
def test_every_durable_message_is_delivered_once_with_snapshots(seed: int, loss: CrashLoss) -> None:
    chance = random.Random(seed)
    world = Later(is_sync_flush=chance.random() < 0.5)
    durable: set[bytes] = set()
    sent: dict[bytes, int] = {}
    for number in range(200):
        body = b"%d" % number
        span_ms = chance.choice([1, 200, 2_000, 20_000, 200_000])
        put = world.send(body, {"UNIQ_KEY": f"u{number // 2}", "TIMER_DELAY_MS": str(span_ms)})
        sent[body] = put.log_end
        world.puts_fail = chance.random() < 0.1
        world.run(chance.randrange(600))
        world.puts_fail = False
        if chance.random() < 0.3:
            world.sync()
            durable = {each for each, end in sent.items() if end <= world.store.durable_offset}
        if chance.random() < 0.4:
            world.save()
        if chance.random() < 0.1:
            world.crash(loss, chance)
            sent = {each: end for each, end in sent.items() if end <= world.store.end_offset}
        if chance.random() < 0.05:
            world.restart()
    for _ in range(8):
        world.sync()
        world.run(30_000)
    found = world.bodies()
    assert len(found) == len(set(found))
    assert set(found) >= durable
    if loss is CrashLoss.NOTHING:
        assert set(found) == {b"%d" % number for number in range(200)}
