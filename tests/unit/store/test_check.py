"""`escrowmq store check`'s inside: what is sound, what is a note, what is damage."""

import random

import pytest

from escrowmq.errors import StorageError
from escrowmq.store.check import CheckResult, StoreCheck
from escrowmq.testing.disk import SimDisk

from .stores import SMALL, filled, message, opened

LOG = "commitlog/00000000000000000000"
QUEUE = "consumequeue/orders/0/00000000000000000000"


TOPICS = "config/topics.json"


def checked(disk: SimDisk) -> CheckResult:
    disk.small.setdefault(TOPICS, b'{"topicConfigTable":{"orders":{}}}')
    before = {path: bytes(file.live) for path, file in disk.files.items()}
    small = dict(disk.small)
    found = StoreCheck(disk, SMALL).run(10_000)
    assert before == {path: bytes(file.live) for path, file in disk.files.items()}
    assert small == disk.small
    return found


def test_closed_store_is_sound() -> None:
    disk = SimDisk()
    puts = filled(disk, 100)
    found = checked(disk)
    assert found.is_sound
    assert not found.findings
    assert (found.records_count, found.units_count) == (100, 100)
    assert found.index_entries_count == 300
    assert found.log_end == puts[-1].log_end


def test_it_tells_how_far_it_is() -> None:
    disk = SimDisk()
    filled(disk, 100)
    heard: list[tuple[int, int]] = []
    found = StoreCheck(disk, SMALL, tell=lambda done, total: heard.append((done, total))).run(
        10_000
    )
    assert heard == sorted(heard)
    assert 0 <= heard[-1][0] < found.log_end - found.log_begin <= heard[-1][1]


def test_running_store_is_sound_with_a_note() -> None:
    disk = SimDisk()
    store, _ = opened(disk)
    for number in range(5):
        store.put(message(number), 1_000)
    found = checked(disk)
    assert found.is_sound
    assert not found.was_closed
    assert found.findings


@pytest.mark.parametrize(
    ("path", "position", "says"),
    [
        (LOG, 765, "cannot be read"),
        (LOG, 700, "cannot be"),
        (QUEUE, 7, "1 units lead to other places, from 0 on"),
        (QUEUE, 390, "lead to other places"),
        ("index/19700101000001000", 142, "does not continue its chain"),
        ("checkpoint", 0, "is impossible"),
    ],
)
def test_each_kind_of_damage_is_told_where_it_is(path: str, position: int, says: str) -> None:
    disk = SimDisk()
    filled(disk, 100)
    disk.flip_bit(next(p for p in disk.files if p.startswith(path)), position, bit=5)
    found = checked(disk)
    assert not found.is_sound
    assert any(says in finding.text for finding in found.findings), found.findings
    assert any(finding.where.startswith((path[:5], "log")) for finding in found.findings)


def test_missing_and_surplus_units_and_offsets_are_told() -> None:
    disk = SimDisk()
    filled(disk, 30)
    disk.small["config/consumerOffset.json"] = b'{"offsetTable":{"orders@g":{0:30,1:2}}}'
    disk.overwrite("consumequeue/orders/0/00000000000000000400", 180, bytes(20))
    texts = [finding.text for finding in checked(disk).findings]
    assert "it ends at 29, the log has records up to 30" in texts
    assert "orders@g queue 1 is at 2, the queue ends at 0" in texts
    disk.small["config/consumerOffset.json"] = b"{{{"
    assert not checked(disk).is_sound


def test_garbage_behind_the_end_is_told() -> None:
    disk = SimDisk()
    end = filled(disk, 3)[-1].log_end
    disk.overwrite(LOG, end, random.Random(1).randbytes(50))
    assert not checked(disk).is_sound


def test_what_is_no_store_cannot_be_checked() -> None:
    with pytest.raises(StorageError):
        StoreCheck(SimDisk(), SMALL)


def test_a_deleted_topic_is_no_damage_and_a_queue_that_began_again_is_told() -> None:
    disk = SimDisk()
    store, _ = opened(disk)
    disk.small["config/topics.json"] = b'{"topicConfigTable":{"orders":{},"paid":{}}}'
    for number in range(5):
        store.put(message(number), 1_000)
        store.put(message(number, topic="paid"), 1_000)
    store.delete_topic("orders")
    store.close(2_000)
    disk.restart()
    found = checked(disk)
    assert found.is_sound
    assert not [finding for finding in found.findings if "consumequeue" in finding.where]
    disk.small.pop("queues.json")  # as at RocketMQ, nothing notes the deletion
    store, _ = opened(disk)
    store.queues.by_key.pop(("paid", 0)).remove()  # and here a queue is lost while the broker runs
    store.put(message(9, topic="paid"), 3_000)
    store.close(4_000)
    disk.restart()
    (finding,) = [f for f in checked(disk).findings if f.where == "consumequeue/paid/0"]
    assert not finding.is_damage
    assert finding.text.startswith("5 messages of the log cannot be read: the queue began again")
