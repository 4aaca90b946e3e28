"""Bugs of the broker that the simulator found, each cut down to its shortest case."""

import random

from tests.sim.checker import engine_of

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.command import Command
from escrowmq.base.effects import Replace, Send, Sync
from escrowmq.base.message import Message, Property, Topic
from escrowmq.base.store_settings import StoreSettings
from escrowmq.broker.core import BrokerCore
from escrowmq.broker.upkeep.offset_saver import HalfProgressSaver
from escrowmq.broker.upkeep.start_checks import OFFSETS_FILE
from escrowmq.codec.command import encode_command
from escrowmq.codec.frame import FrameReader
from escrowmq.store.store import PutStatus, Store
from escrowmq.testing.disk import CrashLoss, SimDisk
from escrowmq.txn.end_claim import Claim, EndResult
from escrowmq.txn.pending import PendingHalves, PendingRow
from escrowmq.txn.state import Verdict

COMMIT, ROLLBACK = 8, 12


def store_settings(*, is_sync: bool) -> StoreSettings:
    return StoreSettings(
        is_sync_flush=is_sync,
        log_segment_size=32_768,
        queue_segment_size=400,
        index_slots_count=16,
        index_entries_max=40,
        reserve_size=16_384,
    )


class Exchange:
    """One broker and one peer; the disk does nothing that is not asked for."""

    def __init__(self, disk: SimDisk, *, is_sync: bool) -> None:
        self.core = BrokerCore(
            disk,
            BrokerSettings(revive_queues_count=1),
            store_settings(is_sync=is_sync),
            address=("10.0.0.1", 10911),
            ha_address="10.0.0.1:10912",
            chance=random.Random(1),
        )
        self.now_ms = 1_000_000
        self.core.open(self.now_ms)
        self.core.connected(1, "10.0.1.1", 40_000, self.now_ms)
        self.replies: list[Command] = []
        self.syncs: list[Sync] = []
        self.replaces: list[Replace] = []
        self._opaque = 0

    def perform(self) -> None:
        for effect in self.core.take_effects():
            match effect:
                case Send(_, chunks):
                    self.replies += FrameReader().read_commands(b"".join(chunks))
                case Sync():
                    self.syncs.append(effect)
                case Replace():
                    self.replaces.append(effect)
                case _:
                    pass

    def sync(self) -> None:
        while self.syncs:
            effect = self.syncs.pop()
            for file in effect.files:
                file.sync()
            self.core.sync_finished(effect.log_offset, self.now_ms)
            self.perform()

    def wake(self, after_ms: int) -> None:
        self.now_ms += after_ms
        self.core.wake(self.now_ms)
        self.perform()

    def half(self, key: str) -> int:
        """Store a half; its log offset."""
        message = Message(
            topic="orders",
            body=key.encode(),
            properties={Property.UNIQ_KEY: key, Property.PGROUP: "g", Property.TRAN_MSG: "true"},
        )
        put = engine_of(self.core).prepare(message, self.now_ms, origin="")
        assert put.status is PutStatus.OK
        self.core.wake(self.now_ms)
        self.perform()
        return put.log_offset

    def end(self, key: str, log_offset: int, queue_offset: int, *verdicts: int) -> None:
        frames = []
        for verdict in verdicts:
            self._opaque += 1
            ext = {
                "producerGroup": "g",
                "tranStateTableOffset": str(queue_offset),
                "commitLogOffset": str(log_offset),
                "commitOrRollback": str(verdict),
                "msgId": key,
                "transactionId": key,
            }
            frames.append(encode_command(Command(code=37, opaque=self._opaque, ext=ext)))
        self.core.receive(1, b"".join(frames), self.now_ms)
        self.perform()


def test_a_repeated_end_is_told_the_outcome_no_earlier_than_the_first() -> None:
    """SYNC_FLUSH: the second asker heard "committed" while the sync was under way."""
    exchange = Exchange(SimDisk(), is_sync=True)
    log_offset = exchange.half("a")
    exchange.sync()
    exchange.end("a", log_offset, 0, COMMIT)
    exchange.end("a", log_offset, 0, COMMIT)
    exchange.end("a", log_offset, 0, ROLLBACK)
    assert exchange.replies == []
    exchange.sync()
    assert [reply.code for reply in exchange.replies] == [0, 0, 200]


def test_an_end_that_is_undone_is_told_to_nobody() -> None:
    """Two ends in one read: the second was told an outcome that the full disk then undid."""
    disk = SimDisk()
    exchange = Exchange(disk, is_sync=False)
    log_offset = exchange.half("a")
    engine = engine_of(exchange.core)
    store = exchange.core.broker.store
    disk.room = disk.used
    while store.put(filler(), exchange.now_ms, is_settling=True).status is PutStatus.OK:
        pass
    exchange.end("a", log_offset, 0, ROLLBACK, ROLLBACK)
    assert 0 in engine.halves.pending
    assert [reply.code for reply in exchange.replies] == [14, 14]


def filler() -> Message:
    return Message(topic="filler", body=bytes(9))


def test_the_oldest_pending_half_is_found_after_an_end_was_undone() -> None:
    """A rollback that could not be stored was pending again, behind younger ones: progress passed
    it, and a restart forgot it."""
    pending = PendingHalves()
    row = PendingRow(log_offset=0, stored_ms=0, due_ms=0, group="g", topic="t", origin="")
    for queue_offset in (3, 4, 5):
        pending.add(queue_offset, row)
    pending.remove(3)
    pending.add(3, row)
    assert pending.oldest_offset() == 3
    assert list(pending) == [3, 4, 5]


def test_progress_is_saved_no_earlier_than_the_ends_that_it_rests_on() -> None:
    """SYNC_FLUSH: consumerOffset.json was on disk before the op record. After a loss of power the
    half was neither ended nor pending: nobody was ever asked about it again."""
    disk = SimDisk()
    exchange = Exchange(disk, is_sync=True)
    log_offset = exchange.half("a")
    exchange.sync()
    exchange.end("a", log_offset, 0, ROLLBACK)
    exchange.wake(6_000)
    for effect in exchange.replaces:
        disk.replace(effect.path, effect.data)
    disk.crash(random.Random(1), CrashLoss.ALL)
    again = Exchange(disk, is_sync=True)
    assert list(engine_of(again.core).halves.pending) == [0]


def test_progress_does_not_fall_back_while_units_are_held_back() -> None:
    """With nothing pending, progress was the end of the queue, whose units waited for room. It fell
    back, that of the op queue did not, and a start took what was rolled back for pending."""
    exchange = Exchange(SimDisk(), is_sync=True)
    log_offset = exchange.half("a")
    exchange.end("a", log_offset, 0, ROLLBACK)
    store = exchange.core.broker.store
    assert store.bounds(Topic.HALF, 0) == (0, 0)
    store.ends.set_durable(store.end_offset)  # durable, and its unit is not written yet
    core = exchange.core
    HalfProgressSaver(core.broker.offsets, core.transactions).files_to_save(exchange.now_ms)
    offsets = exchange.core.broker.offsets
    assert offsets.get("CID_RMQ_SYS_TRANS", Topic.HALF, 0) == 1
    assert offsets.get("CID_RMQ_SYS_TRANS", Topic.OP, 0) == 1


def test_an_end_does_not_hit_the_half_that_took_the_place_of_a_lost_one() -> None:
    """ASYNC_FLUSH: after a loss of power another half stands at the same offsets."""
    exchange = Exchange(SimDisk(), is_sync=False)
    log_offset = exchange.half("b")
    exchange.end("a", log_offset, 0, COMMIT)
    assert [reply.code for reply in exchange.replies] == [1]
    assert 0 in engine_of(exchange.core).halves.pending


def test_groups_do_not_keep_offsets_beyond_a_queue_that_lost_its_tail() -> None:
    """ASYNC_FLUSH: what was sent after a loss of power was skipped by those who had read more."""
    disk = SimDisk()
    exchange = Exchange(disk, is_sync=False)
    broker = exchange.core.broker
    broker.store.put(Message(topic="orders", body=b"x"), exchange.now_ms)
    broker.offsets.commit("readers", "orders", 0, 1, exchange.now_ms)
    disk.replace(OFFSETS_FILE, broker.offsets.content_to_save(log_end=0))
    disk.crash(random.Random(1), CrashLoss.ALL)
    again = Exchange(disk, is_sync=False).core.broker
    assert again.store.bounds("orders", 0)[1] == 0
    assert again.offsets.get("readers", "orders", 0) == 0


def test_the_op_records_of_one_sync_are_told_apart() -> None:
    """SYNC_FLUSH: each op record that waits for the sync was taken for the first of them."""
    exchange = Exchange(SimDisk(), is_sync=True)
    offsets = [exchange.half(key) for key in "abc"]
    exchange.sync()
    for number, key in enumerate("abc"):
        exchange.end(key, offsets[number], number, ROLLBACK)
    ops = exchange.core.transactions.engine.progress._ops
    assert [op_offset for op_offset, _ in ops] == [0, 1, 2]


def test_units_that_a_full_disk_holds_back_follow_when_there_is_room() -> None:
    """Index entries that could be written made the store forget that units were still waiting: what
    was sent stayed invisible till the next start."""
    disk = SimDisk()
    store = Store(disk, store_settings(is_sync=False))
    store.open(1_000)
    number = 0
    while not store.dispatcher.waiting:
        keyed = Message(topic="orders", body=b"x", properties={"KEYS": f"k{number}"})
        assert store.put(keyed, 1_000, is_settling=True).status is PutStatus.OK
        if number == 0:
            find(store, "k0")
            disk.room = disk.used
        number += 1
    find(store, "k1")
    disk.room = None
    store.wake(60_000)
    assert store.unseen_size == 0
    assert store.bounds("orders", 0)[1] == number


def find(store: Store, key: str) -> None:
    """A query writes the index entries that were collected, and finds the key among them."""
    found = store.query("orders", key, count_max=9, begin_ms=0, end_ms=1 << 60)
    assert len(found.records) == 1


def test_verdicts_for_an_end_that_names_another_message() -> None:
    exchange = Exchange(SimDisk(), is_sync=False)
    log_offset = exchange.half("b")
    engine = engine_of(exchange.core)

    def end(*ids: str) -> EndResult:
        transaction_id, message_id = ids
        claim = Claim(
            log_offset=log_offset,
            queue_offset=0,
            group="g",
            verdict=Verdict.UNKNOWN,
            is_from_check=True,
            ids=(transaction_id, message_id),
        )
        return exchange.core.transactions.ends.end(claim, exchange.now_ms).answer

    assert end("a", "a") is EndResult.NOT_FOUND
    assert {end("b", "x"), end("x", "b"), end("", "x")} == {EndResult.UNKNOWN}
    assert engine.halves.pending.topic(0) == "orders"
    assert exchange.core.broker.store.bounds(Topic.HALF, 0) == (0, 1)


def test_units_of_more_than_two_files_are_synced_before_the_checkpoint_says_so() -> None:
    """After a stall many units are written at once; the files in front of the last two were never
    synced, and after a loss of power their messages were gone from the queue."""
    disk = SimDisk()
    store = Store(disk, store_settings(is_sync=True))
    store.open(1_000)
    for _ in range(70):  # twenty a file
        store.put(Message(topic="orders", body=b"x"), 1_000)
    for now_ms in (1_000, 3_000, 5_000, 7_000):
        while (wanted := store.next_sync(now_ms)) is not None:
            for file in wanted.files:
                file.sync()
            store.sync_finished(wanted.log_offset, now_ms)
    assert not [path for path, file in disk.files.items() if "consumequeue" in path and file.writes]
