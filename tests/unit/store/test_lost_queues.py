"""Queue files that somebody removed while the broker was down are built again from the log."""

import random

import pytest

from escrowmq.codec.record import decode_record
from escrowmq.store.store import PutStatus, Store
from escrowmq.testing.disk import CrashLoss, DescriptorShortage, SimDisk
from tests.unit.store.stores import message, small, sync

SETTINGS = small(queue_segment_size=20 * 4, log_segment_size=8192)


def opened(disk: SimDisk, *, boot: str = "boot", now_ms: int = 1_000) -> Store:
    store = Store(disk, SETTINGS, boot=boot)
    store.open(now_ms)
    return store


def put(store: Store, count: int, *, topics: tuple[str, ...] = ("orders", "paid")) -> list[bytes]:
    bodies = []
    for number in range(count):
        for topic in topics:
            for queue_id in range(2):
                one = message(number, topic=topic, queue_id=queue_id)
                one.body = b"%s %d %d %d" % (topic.encode(), queue_id, number, store.end_offset)
                assert store.put(one, 1_000 + number).status is PutStatus.OK
                bodies.append(one.body)
    return bodies


def make_durable(store: Store) -> None:
    """With a checkpoint that says so."""
    for now_ms in (20_000, 90_000, 200_000):
        while sync(store, now_ms):
            pass


def readable(store: Store) -> list[bytes]:
    found = []
    for topic in store.topics():
        for queue_id in store.queues_of(topic):
            at, end = store.bounds(topic, queue_id)
            while at < end:
                got = store.get(topic, queue_id, at, count_max=1)
                found += [decode_record(chunk).body for chunk in got.chunks]
                at = got.next_offset
    return found


def files_of(disk: SimDisk, folder: str) -> list[str]:
    return sorted(path for path in disk.files if path.startswith(f"{folder}/"))


def remove(disk: SimDisk, *paths: str) -> None:
    for path in paths:
        disk.files.pop(path, None)
        disk.small.pop(path, None)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(
    "folder", ["consumequeue/orders/1", "consumequeue/orders", "consumequeue", "index"]
)
def test_a_folder_that_is_missing_is_built_again(folder: str, is_clean: bool) -> None:
    disk = SimDisk()
    store = opened(disk)
    bodies = put(store, 10)
    if is_clean:
        store.close(5_000)
    disk.restart()
    remove(disk, *files_of(disk, folder))
    store = opened(disk)
    assert sorted(readable(store)) == sorted(bodies)
    bodies += put(store, 1)
    disk.restart()
    assert sorted(readable(opened(disk))) == sorted(bodies)


@pytest.mark.parametrize("is_clean", [True, False])
def test_any_one_file_of_a_queue_that_is_missing_is_built_again(is_clean: bool) -> None:
    paths = ["once"]
    at = 0
    while at < len(paths):
        disk = SimDisk()
        store = opened(disk)
        bodies = put(store, 3)
        store.close(2_000)
        disk.restart()
        store = opened(disk)
        bodies += put(store, 7)
        if is_clean:
            store.close(5_000)
        disk.restart()
        paths = files_of(disk, "consumequeue")
        remove(disk, paths[at])
        assert sorted(readable(opened(disk))) == sorted(bodies), paths[at]
        at += 1
    assert at == 4 * 3


def test_a_missing_queue_is_read_again_from_its_first_record_on() -> None:
    disk = SimDisk()
    store = opened(disk)
    put(store, 200, topics=("old",))
    make_durable(store)
    bodies = put(store, 3, topics=("young",))
    begin = decode_record(store.get("young", 0, 0).chunks[0]).log_offset
    disk.restart()
    remove(disk, *files_of(disk, "consumequeue/young/0"))
    store = Store(disk, SETTINGS, boot="boot")
    report = store.open(1_000)
    assert 0 < report.scanned_from <= begin
    assert set(bodies) <= set(readable(store))


def test_files_that_retention_removed_are_not_taken_for_lost() -> None:
    disk = SimDisk()
    store = opened(disk)
    put(store, 40)
    make_durable(store)
    store.retention.request_cleanup()
    assert store.retention.clean_up(400 * 3_600_000) > 0
    found = readable(store)
    end = store.end_offset
    disk.restart()
    store = Store(disk, SETTINGS, boot="boot")
    report = store.open(1_000)
    assert report.scanned_from > store.min_log_offset > 0
    assert store.end_offset == end
    assert readable(store) == found


@pytest.mark.parametrize("has_room", [True, False])
def test_a_full_journal_goes_on_in_the_snapshot(*, has_room: bool) -> None:
    disk = SimDisk()
    store = opened(disk)
    topics = tuple("t" * 120 + f"{number:05d}" for number in range(40))
    bodies = put(store, 1, topics=topics[:20])
    journal = store.queues.journal
    while not journal.is_full:  # as thousands of queues would fill it
        journal.note_file("t" * 120, 0, position=0, log_offset=store.end_offset)
    if not has_room:
        disk.exhaust_descriptors(DescriptorShortage.ALL_GONE)
        store.wake(1_500)
        disk.shortage = None
        journal.note_file("t" * 120, 0, position=0, log_offset=store.end_offset)
    store.wake(1_600)
    bodies += put(store, 1, topics=topics)
    store.wake(1_700)
    assert not journal.is_full
    bodies += put(store, 4, topics=topics[:3])
    assert [begun.topic for begun in journal.load()] != []
    for at_ms in range(2_000, 200_000, 2_000):
        sync(store, at_ms)
    disk.restart()
    remove(disk, *files_of(disk, f"consumequeue/{topics[-1]}"))
    remove(disk, *files_of(disk, f"consumequeue/{topics[1]}/0")[-1:])
    assert sorted(readable(opened(disk))) == sorted(bodies)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(60))
def test_random_files_removed_after_any_end_are_built_again(seed: int) -> None:
    chance = random.Random(seed)
    disk = SimDisk()
    bodies: list[bytes] = []
    boot = "boot 0"
    for turn in range(3):
        store = opened(disk, boot=boot, now_ms=10_000 * (turn + 1))
        assert sorted(readable(store)) == sorted(bodies)
        bodies += put(store, chance.randint(1, 12))
        if chance.random() < 0.3:
            doomed = chance.choice(["orders", "paid"])
            store.delete_topic(doomed)
            bodies = [body for body in bodies if not body.startswith(doomed.encode())]
            bodies += put(store, chance.randint(0, 3), topics=(doomed,))
        sync(store, 10_000 * (turn + 1) + 1_000)
        sync(store, 10_000 * (turn + 1) + 9_999)  # the log is durable: nothing may be lost
        how = chance.choice(["clean", *CrashLoss])
        if how == "clean":
            store.close(10_000 * (turn + 2))
        loss = how if isinstance(how, CrashLoss) else CrashLoss.NOTHING
        disk.crash(chance, loss)
        boot = boot if loss is CrashLoss.NOTHING else f"boot {turn + 1}"
        paths = files_of(disk, "consumequeue")
        remove(disk, *chance.sample(paths, min(len(paths), chance.randint(0, 3))))
        if chance.random() < 0.2 and not store.deleted.of_topic:
            remove(disk, "queues.json")
        if chance.random() < 0.2:
            remove(disk, *files_of(disk, "index"))
    assert sorted(readable(opened(disk, boot=boot, now_ms=90_000))) == sorted(bodies)
