"""A store stopped at every operation, and by every kind of loss: what was acknowledged is there."""

import random

import pytest
from tests.harness.stores import put_batch, split

from escrowmq.base.message import Message, SysFlag
from escrowmq.base.store_settings import StoreSettings
from escrowmq.codec.record import decode_record
from escrowmq.store.store import PutResult, PutStatus, Store
from escrowmq.testing.disk import CrashLoss, SimCrash, SimDisk

QUEUES = [("orders", 0), ("orders", 1), ("paid", 0)]


def settings(*, is_sync: bool) -> StoreSettings:
    return StoreSettings(
        is_sync_flush=is_sync,
        log_segment_size=4096,
        queue_segment_size=400,
        index_slots_count=16,
        index_entries_max=40,
        reserve_size=1024,
        flush_interval_ms=20,
        queue_flush_interval_ms=50,
    )


def message(number: int, chance: random.Random, *, sys_flag: int = 0) -> Message:
    topic, queue_id = QUEUES[number % len(QUEUES)]
    return Message(
        topic=topic,
        queue_id=queue_id,
        body=b"%06d" % number + chance.randbytes(chance.randint(0, 300)),
        properties={"UNIQ_KEY": f"U{number:06d}", "KEYS": f"k{number}", "TAGS": "a"},
        sys_flag=sys_flag,
    )


def chance_of_boot(seed: int) -> str:
    """Half of the machines cannot tell their boots apart."""
    return "first boot" if seed % 2 else ""


class Run:
    """A script of puts and syncs, and the ledger of what was promised."""

    def __init__(self, disk: SimDisk, *, is_sync: bool, seed: int, now_ms: int = 1_000) -> None:
        self.disk = disk
        self.is_sync = is_sync
        self.chance = random.Random(seed)
        self.now_ms = now_ms
        self.boot = chance_of_boot(seed)
        self.written: dict[int, tuple[Message, PutResult]] = {}
        self.durable: dict[int, tuple[Message, PutResult]] = {}
        self.visible: set[tuple[str, int, int]] = set()
        self.store = Store(disk, settings(is_sync=is_sync), boot=self.boot)

    def script(self, count: int) -> None:
        self.store.open(self.now_ms)
        number = 0
        while number < count:
            self.now_ms += self.chance.randint(0, 9)
            if self.chance.random() < 0.2:
                batch = [message(3 * (number + n), self.chance) for n in range(3)]
                puts = put_batch(self.store, batch, self.now_ms)
                found = list(zip(batch, puts, strict=True))
                number += 3
            else:
                flag = SysFlag.PREPARED if self.chance.random() < 0.1 else 0
                one = message(number, self.chance, sys_flag=flag)
                found = [(one, self.store.put(one, self.now_ms))]
                number += 1
            for item in found:
                assert item[1].status is PutStatus.OK
                self.written[item[1].log_offset] = item
            if self.chance.random() < 0.5:
                self.sync()
        self.sync()
        self.store.close(self.now_ms)
        self.durable = dict(self.written)

    def crash(self, chance: random.Random, loss: CrashLoss) -> None:
        if self.boot and loss is not CrashLoss.NOTHING:
            self.boot = "second boot"
        self.disk.crash(chance, loss)

    def sync(self) -> None:
        wanted = self.store.next_sync(self.now_ms)
        if wanted is not None:
            for file in wanted.files:
                file.sync()
            for log_offset, item in self.written.items():
                if item[1].log_end <= wanted.log_offset:
                    self.durable[log_offset] = item
            self.store.sync_finished(wanted.log_offset, self.now_ms)
        for arrival in self.store.take_arrivals():
            self.visible.add((arrival.topic, arrival.queue_id, arrival.queue_offset))
            if self.is_sync:
                assert arrival.log_offset in self.durable


def readable(store: Store) -> dict[int, bytes]:
    """Every record that consumers can read, by log offset; offsets are checked on the way."""
    found = {}
    for topic in store.topics():
        for queue_id in store.queues_of(topic):
            at, end = store.bounds(topic, queue_id)
            while at < end:
                got = store.get(topic, queue_id, at, count_max=7)
                records = list(split(b"".join(got.chunks)))
                assert len(records) == got.count == len(got.queue_offsets)
                for queue_offset, record in zip(got.queue_offsets, records, strict=True):
                    stored = decode_record(record, check_crc=True)
                    assert (stored.topic, stored.queue_id) == (topic, queue_id)
                    assert stored.queue_offset == queue_offset
                    found[stored.log_offset] = record
                assert got.next_offset > at
                at = got.next_offset
    return found


def verify(run: Run, promised: dict[int, tuple[Message, PutResult]], *, is_kill: bool) -> None:
    store = Store(run.disk, settings(is_sync=run.is_sync), boot=run.boot)
    report = store.open(run.now_ms)
    found = readable(store)
    for log_offset, (sent, put) in promised.items():
        stored = decode_record(store.read_record(log_offset, put.record_size))
        assert stored.body == sent.body, report
        assert stored.queue_offset == put.queue_offset
        if not sent.sys_flag & SysFlag.PREPARED:
            assert log_offset in found
            assert store.read(log_offset) == stored
        key = sent.properties["UNIQ_KEY"]
        hits = store.query(sent.topic, key, count_max=9, begin_ms=0, end_ms=1 << 60).records
        assert sent.body in [decode_record(hit).body for hit in hits]
    for log_offset, record in found.items():
        if log_offset in run.written:  # a record cut off in the middle of its put is not in there
            assert decode_record(record).body == run.written[log_offset][0].body
    for topic in store.topics():
        for queue_id in store.queues_of(topic):
            low, end = store.bounds(topic, queue_id)
            assert low == 0 or store.min_log_offset > 0
            offsets = sorted(
                decode_record(r).queue_offset
                for r in found.values()
                if (decode_record(r).topic, decode_record(r).queue_id) == (topic, queue_id)
            )
            assert offsets == list(range(low, end)), report
    if is_kill:
        assert len(found) >= len([m for m, _ in run.written.values() if not m.sys_flag & 4])
        assert not report.damaged
    # The store goes on: what is put now follows, and a second start finds both.
    put = store.put(message(0, run.chance), run.now_ms)
    assert put.queue_offset == store.bounds("orders", 0)[1] - (0 if run.is_sync else 1)
    store.close(run.now_ms)
    run.disk.restart()
    again = Store(run.disk, settings(is_sync=run.is_sync), boot=run.boot)
    second = again.open(run.now_ms)
    assert second.was_clean
    assert not second.damaged
    assert not second.queues_mended
    assert readable(again).keys() == found.keys() | {put.log_offset}
    assert again.end_offset == put.log_end
    again.close(run.now_ms)


def stopped_run(stop_at: int, *, is_sync: bool, seed: int, count: int = 30) -> Run | None:
    """The script stopped at an operation; None when it ends before."""
    disk = SimDisk()
    run = Run(disk, is_sync=is_sync, seed=seed)
    disk.stop_at = stop_at
    try:
        run.script(count)
    except SimCrash:
        return run
    return None


@pytest.mark.parametrize("is_sync", [True, False])
@pytest.mark.parametrize("loss", list(CrashLoss))
def test_stop_at_every_operation_loses_nothing_acknowledged(loss: CrashLoss, is_sync: bool) -> None:
    stop_at = 1
    while (run := stopped_run(stop_at, is_sync=is_sync, seed=7)) is not None:
        run.crash(random.Random(stop_at), loss)
        is_kill = loss is CrashLoss.NOTHING
        promised = run.written if is_kill else run.durable
        try:
            verify(run, promised, is_kill=is_kill)
        except BaseException as error:
            error.add_note(f"{loss} stop_at={stop_at} is_sync={is_sync}")
            raise
        stop_at += 1
    assert stop_at > 100


@pytest.mark.parametrize("seed", range(60))
def test_random_scripts_stopped_anywhere_lose_nothing_acknowledged(seed: int) -> None:
    chance = random.Random(seed)
    is_sync = chance.random() < 0.5
    loss = chance.choice(list(CrashLoss))
    run = stopped_run(chance.randint(60, 400), is_sync=is_sync, seed=seed, count=80)
    if run is None:
        return
    run.crash(chance, loss)
    verify(
        run,
        run.written if loss is CrashLoss.NOTHING else run.durable,
        is_kill=loss is CrashLoss.NOTHING,
    )
