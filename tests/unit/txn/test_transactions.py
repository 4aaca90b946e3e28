"""What a start takes over from a copy, and what is kept for the next start."""

from __future__ import annotations

import logging
import random

import msgspec
import pytest

from escrowmq.base.message import Message, Topic
from escrowmq.errors import StorageError
from escrowmq.txn import keyring, pending_snapshot
from escrowmq.txn.open_half import OpenHalf
from escrowmq.txn.state import Verdict
from escrowmq.txn.transactions import HOUR_MS, ProgressToSave, Transactions
from tests.harness.exchange import SMALL
from tests.unit.store.stores import sync

from .ground import HOST, Ground


@pytest.fixture(name="ground")
def make_ground() -> Ground:
    return Ground()


def transactions_of(ground: Ground, before: Transactions | None = None) -> Transactions:
    made = Transactions(
        ground.store,
        ground.settings,
        ground.store_settings,
        host=HOST,
        chance=random.Random(0),
        as_delivered=lambda final, now_ms: final,
        members=lambda group: [],
        before=before,
    )
    made.snapshot_ms, made.snapshot_min = 1_000, 4
    return made


def load(transactions: Transactions, now_ms: int, *, half_offset: int = 0) -> list[int]:
    """The halves that are pending after a start."""
    transactions.load(now_ms, half_offset=half_offset, op_offset=0, is_sound=True)
    return list(transactions.engine.halves.pending)


# -- a copy that becomes the master --------------------------------------------------------------


def test_the_next_master_takes_over_what_its_copy_has_read_and_reads_the_rest(
    ground: Ground,
) -> None:
    copy = transactions_of(ground)
    ground.prepare(b"0")
    copy.load_copy(ground.now_ms, half_offset=0, op_offset=0, is_sound=True)
    ground.prepare(b"1")
    copy.read_appended(ground.now_ms)
    ground.prepare(b"2")
    master = transactions_of(ground, copy)
    assert load(master, ground.now_ms, half_offset=3) == [0, 1, 2]
    assert master.engine.halves is copy.engine.halves


def test_a_copy_that_has_read_nothing_yet_leaves_nothing_to_take_over(ground: Ground) -> None:
    copy = transactions_of(ground)
    for number in range(3):
        ground.prepare(b"%d" % number)
    assert load(transactions_of(ground, copy), ground.now_ms, half_offset=2) == [2]


@pytest.mark.parametrize(
    ("pending", "derived", "line"),
    [
        (0, 0, ""),
        (1, 0, "1 transactions are pending; 0 more were ended without an op record"),
        (0, 1, "0 transactions are pending; 1 more were ended without an op record"),
    ],
)
def test_a_start_logs_what_it_found_if_it_found_any(
    ground: Ground, caplog: pytest.LogCaptureFixture, pending: int, derived: int, line: str
) -> None:
    caplog.set_level(logging.INFO, "escrowmq.txn.transactions")
    for number in range(pending):
        ground.prepare(b"%d" % number)
    for number in range(derived):
        ground.end(ground.prepare(b"ended %d" % number), Verdict.COMMIT, seals=False)
    load(transactions_of(ground), ground.now_ms)
    assert "\n".join(caplog.messages) == line


# -- what is kept --------------------------------------------------------------------------------


class Kept:
    """Transactions, and what they keep."""

    def __init__(self) -> None:
        settings = msgspec.structs.replace(SMALL, is_sync_flush=True)
        self.ground = ground = Ground(store_settings=settings)
        self.transactions = transactions_of(ground)
        load(self.transactions, ground.now_ms)

    def prepare(self, count: int) -> None:
        for number in range(count):
            properties = {"UNIQ_KEY": f"U{number}", "PGROUP": "PG"}
            message = Message(topic="T", body=b"x", queue_id=1, properties=properties)
            self.transactions.engine.prepare(message, self.ground.now_ms, origin="")

    def commit(self, *numbers: int, seals: bool = True) -> None:
        for number in numbers:
            half = self.transactions.engine.halves.read_half(number)
            assert half is not None
            named = OpenHalf(number, half)
            self.transactions.engine.carry_out_verdict(
                named, Verdict.COMMIT, now_ms=self.ground.now_ms
            )
        if seals:
            self.transactions.engine.unsealed.seal(self.ground.now_ms)

    def keep(self, later_ms: int = 0) -> ProgressToSave:
        """What is kept a while later, when all is durable."""
        self.ground.now_ms += later_ms
        sync(self.ground.store, self.ground.now_ms)
        kept = self.transactions.progress_to_save(self.ground.now_ms)
        assert kept is not None
        return kept


def test_the_progress_that_is_kept_is_that_of_the_oldest_half_without_a_sealed_end() -> None:
    kept = Kept()
    kept.prepare(3)
    assert kept.keep().half_offset == 0
    kept.commit(0)
    assert kept.keep().half_offset == 1
    kept.commit(1, seals=False)
    assert kept.keep().half_offset == 1
    kept.commit(2)
    assert kept.keep().half_offset == 3


@pytest.mark.parametrize(
    ("count", "pending", "is_listed"),
    [(3, 1, False), (4, 1, True), (4, 2, True), (5, 2, True), (4, 3, False), (5, 3, False)],
)
def test_pending_halves_are_listed_where_many_after_the_oldest_have_ended(
    count: int, pending: int, is_listed: bool
) -> None:
    kept = Kept()
    kept.prepare(count)
    kept.commit(*range(pending, count))
    found = pending_snapshot.decode(kept.keep().snapshot)
    assert (found is not None) == is_listed
    if found is not None:
        assert found.half_end == count
        assert list(found.pending) == list(range(pending))


@pytest.mark.parametrize(
    ("half_end", "op_end", "is_used"), [(4, 2, True), (5, 2, False), (4, 3, False)]
)
def test_a_snapshot_of_a_log_that_lost_its_end_hides_nothing_later(
    ground: Ground, half_end: int, op_end: int, *, is_used: bool
) -> None:
    """It was used by the first start after the queues had grown again."""
    for number in range(4):
        half = ground.prepare(b"%d" % number)
        if number in (1, 3):
            ground.end(half, Verdict.ROLLBACK)
    ground.disk.replace(pending_snapshot.PATH, pending_snapshot.encode(half_end, op_end, [0, 2]))
    assert load(transactions_of(ground), ground.now_ms) == [0, 2]
    assert (ground.disk.read(pending_snapshot.PATH) is not None) is is_used
    ground.reopen()
    for number in (4, 5):
        ground.prepare(b"%d" % number)
    ground.end(ground.prepare(b"6"), Verdict.ROLLBACK)
    assert load(transactions_of(ground), ground.now_ms) == [0, 2, 4, 5]


def test_a_copy_whose_log_lost_its_end_removes_its_snapshot_before_it_takes_over(
    ground: Ground,
) -> None:
    """The master that it becomes reads none, and a later start would use it."""
    ground.prepare(b"0")
    ground.disk.replace(pending_snapshot.PATH, pending_snapshot.encode(3, 1, [0]))
    copy = transactions_of(ground)
    copy.load_copy(ground.now_ms, half_offset=0, op_offset=0, is_sound=True)
    assert load(transactions_of(ground, copy), ground.now_ms) == [0]
    for number in (1, 2):
        ground.prepare(b"%d" % number)
    ground.end(ground.prepare(b"3"), Verdict.ROLLBACK)
    ground.reopen()
    assert load(transactions_of(ground), ground.now_ms) == [0, 1, 2]


def test_pending_halves_are_listed_again_after_a_while() -> None:
    kept = Kept()
    kept.prepare(5)
    kept.commit(1, 2, 3)
    kept.commit(4, seals=False)
    assert not kept.keep().snapshot, "an end has no op record"
    kept.transactions.engine.unsealed.seal(kept.ground.now_ms)
    listed = [bool(kept.keep(later_ms).snapshot) for later_ms in (0, 0, 999, 1)]
    assert listed == [True, False, False, True]


def test_nothing_is_listed_while_halves_wait_for_room_in_their_queue() -> None:
    kept = Kept()
    kept.prepare(5)
    kept.commit(1, 2, 3, 4)
    disk, store = kept.ground.disk, kept.ground.store
    disk.room = disk.used
    while store.is_complete(Topic.HALF, 0):
        kept.prepare(1)
        (newest,) = [*kept.transactions.engine.halves.pending][-1:]
        kept.commit(newest)
    assert not kept.keep().snapshot
    disk.room = None
    store.wake(kept.ground.now_ms)
    assert store.is_complete(Topic.HALF, 0)
    assert kept.keep().snapshot


# -- ids -----------------------------------------------------------------------------------------


def test_an_id_finds_its_half_and_no_other(ground: Ground) -> None:
    transactions = transactions_of(ground)
    load(transactions, ground.now_ms)
    half, other = ground.prepare(b"1"), ground.prepare(b"2")
    signed_id = transactions.rotate_and_sign(half, half.properties["UNIQ_KEY"], ground.now_ms)
    assert transactions.find_signed_half(signed_id, ground.now_ms)[1] == half
    of_another = transactions.sign(other, half.properties["UNIQ_KEY"], ground.now_ms)
    assert transactions.find_signed_half(of_another, ground.now_ms)[1] is None
    ground.damage(half)
    assert transactions.find_signed_half(signed_id, ground.now_ms)[1] is None


def test_ids_are_signed_with_a_new_key_once_one_is_due(ground: Ground) -> None:
    transactions = transactions_of(ground)
    load(transactions, ground.now_ms)
    half, stored = ground.prepare(), list[bytes | None]()
    for later_ms in (0, 1, ground.settings.key_rotation_hours * HOUR_MS):
        ground.now_ms += later_ms
        signed_id = transactions.rotate_and_sign(half, half.properties["UNIQ_KEY"], ground.now_ms)
        assert transactions.find_signed_half(signed_id, ground.now_ms)[1] == half
        stored.append(ground.disk.read(keyring.PATH))
    assert stored[0] == stored[1] != stored[2]


def test_the_old_key_signs_while_no_new_one_can_be_saved(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions = transactions_of(ground)
    load(transactions, ground.now_ms)
    half = ground.prepare()
    key = half.properties["UNIQ_KEY"]
    tries = []

    def fails(path: str, data: bytes, *, is_private: bool = False) -> None:
        tries.append(path)
        raise StorageError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(ground.disk, "replace", fails)
        with pytest.raises(StorageError):
            transactions.rotate_and_sign(half, key, ground.now_ms)
    transactions.rotate_and_sign(half, key, ground.now_ms)
    ground.now_ms += ground.settings.key_rotation_hours * HOUR_MS
    tries.clear()
    with monkeypatch.context() as patched:
        patched.setattr(ground.disk, "replace", fails)
        for _ in range(5):
            signed_id = transactions.rotate_and_sign(half, key, ground.now_ms)
    assert len(tries) == 1, "the disk is left alone for a while"
    assert transactions.find_signed_half(signed_id, ground.now_ms)[1] == half
    assert transactions.keyring.is_rotation_due(ground.now_ms)
    transactions.rotate_and_sign(half, key, ground.now_ms + 60_000)
    assert not transactions.keyring.is_rotation_due(ground.now_ms + 60_000)
