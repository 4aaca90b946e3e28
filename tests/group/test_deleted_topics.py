"""Topics that are deleted, and made again, while members copy: what was acknowledged of the new
topic is at all of them, and nothing of the old one."""

from __future__ import annotations

from functools import partial
from typing import Final

import pytest
from msgspec.structs import replace

from escrowmq.base.codes import Request, Response
from escrowmq.errors import RemoteProtocolError
from escrowmq.group.frames import TopicDeletion
from escrowmq.store.queue_snapshot import PATH as SNAPSHOT
from escrowmq.store.queue_snapshot import read_snapshot
from escrowmq.testing.disk import SimDisk
from tests.harness.exchange import SMALL
from tests.harness.group import GroupWorld, MemberHost

from .test_failover import MADE, store_of

BUSY: Final = "busy"


def formed(*, is_sync_flush: bool = False) -> tuple[GroupWorld, MemberHost, MemberHost]:
    """A group of two: its master, and the copy."""
    store = replace(SMALL, log_segment_size=1 << 16, is_sync_flush=is_sync_flush)
    world = GroupWorld(1, "ab", store=store, sync_delay_ms=30 if is_sync_flush else 0)
    world.start_all()
    world.until(world.are_in_sync)
    master = world.serving
    assert master is not None
    copy = next(host for host in world.hosts.values() if host is not master)
    return world, master, copy


def ask(
    world: GroupWorld, host: MemberHost, code: int, ext: dict[str, str], body: bytes = b""
) -> None:
    assert host.broker is not None
    caller = host.broker.connect()
    reply = caller.begin(code, ext, body)
    world.until(lambda: reply)
    assert reply.now.code == Response.SUCCESS, reply.now
    caller.leave()


def make(world: GroupWorld, host: MemberHost, queues_count: int, topic: str = "t") -> None:
    count = str(queues_count)
    named = {"topic": topic, "readQueueNums": count, "writeQueueNums": count}
    ask(world, host, Request.UPDATE_AND_CREATE_TOPIC, MADE | named)


def delete(world: GroupWorld, host: MemberHost) -> None:
    ask(world, host, Request.DELETE_TOPIC_IN_BROKER, {"topic": "t"})


def send(world: GroupWorld, host: MemberHost, body: bytes, queue_id: int = 0) -> None:
    assert host.broker is not None
    caller = host.broker.connect()
    reply = caller.begin_send("t", body, queue_id=queue_id)
    world.until(lambda: reply)
    assert reply.now.code == Response.SUCCESS, reply.now
    caller.leave()


def bodies(world: GroupWorld, host: MemberHost, queues_count: int) -> list[list[bytes]]:
    assert host.broker is not None
    caller = host.broker.connect()
    found = []
    for queue_id in range(queues_count):
        world.until(partial(bool, caller.begin_pull("t", queue_id=queue_id)))
        found.append(caller.bodies("t", queue_id))
    caller.leave()
    return found


def leave(world: GroupWorld, copy: MemberHost) -> None:
    copy.kill()
    world.until(lambda: world.record is not None and copy.name not in world.record.in_sync)


def take_over(world: GroupWorld, master: MemberHost, copy: MemberHost) -> None:
    """The copy has caught up, and becomes the master."""
    world.until(world.are_in_sync)
    world.advance(2_000)
    assert store_of(copy).topics() == store_of(master).topics()
    master.kill()
    world.until(lambda: world.serving is copy)


def test_a_member_that_was_away_has_the_messages_of_the_new_topic() -> None:
    """A queue that was empty before gets the first message of the new topic."""
    world, master, copy = formed()
    make(world, master, 2)
    send(world, master, b"old", 0)
    world.advance(1_000)
    leave(world, copy)
    delete(world, master)
    make(world, master, 2)
    send(world, master, b"new 1", 1)
    send(world, master, b"new 0", 0)
    copy.start()
    take_over(world, master, copy)
    assert bodies(world, copy, 2) == [[b"new 0"], [b"new 1"]]


def test_an_empty_member_has_the_messages_of_the_new_topic() -> None:
    """As on a replaced machine, which reads both topics from the log."""
    world, master, copy = formed()
    make(world, master, 1)
    send(world, master, b"old")
    delete(world, master)
    make(world, master, 4)
    for queue_id in (3, 2, 1, 0):
        send(world, master, b"new %d" % queue_id, queue_id)
    leave(world, copy)
    copy.disk = SimDisk()
    copy.start()
    take_over(world, master, copy)
    assert bodies(world, copy, 4) == [[b"new %d" % queue_id] for queue_id in range(4)]


@pytest.mark.parametrize("lives", [2, 3])
def test_an_empty_member_has_only_the_last_of_several_topics(lives: int) -> None:
    """Each time other queues come first."""
    world, master, copy = formed()
    for life in range(lives + 1):
        make(world, master, 3)
        for nth in range(3):
            queue_id = (nth * (life + 1) + life) % 3
            if nth < 2 or life == lives:
                send(world, master, b"life %d" % life, queue_id)
        if life < lives:
            delete(world, master)
    before = bodies(world, master, 3)
    leave(world, copy)
    copy.disk = SimDisk()
    copy.start()
    take_over(world, master, copy)
    assert bodies(world, copy, 3) == before
    assert b"life %d" % lives in before[0] + before[1] + before[2]


def test_a_copy_deletes_what_its_disk_has_not_taken_yet() -> None:
    """With SYNC_FLUSH records are not in their queues before they are durable."""
    world, master, copy = formed(is_sync_flush=True)
    make(world, master, 1)
    make(world, master, 1, BUSY)
    send(world, master, b"old")
    world.advance(1_000)
    assert master.broker is not None
    busy = master.broker.connect().begin_send(BUSY, b"x")
    gone = master.broker.connect().begin(Request.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
    world.until(lambda: busy and gone)
    take_over(world, master, copy)
    make(world, copy, 1)
    send(world, copy, b"new")
    assert bodies(world, copy, 1) == [[b"new"]]


def test_a_copy_keeps_what_follows_a_deletion_that_its_disk_has_not_taken_yet() -> None:
    world, master, copy = formed(is_sync_flush=True)
    make(world, master, 2)
    make(world, master, 1, BUSY)
    send(world, master, b"old", 0)
    world.advance(1_000)
    assert master.broker is not None
    busy = master.broker.connect().begin_send(BUSY, b"x")
    gone = master.broker.connect().begin(Request.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
    world.until(lambda: busy and gone)
    make(world, master, 2)
    send(world, master, b"new 1", 1)
    send(world, master, b"new 0", 0)
    take_over(world, master, copy)
    assert bodies(world, copy, 2) == [[b"new 0"], [b"new 1"]]


def test_a_deletion_that_the_log_does_not_reach_is_not_taken() -> None:
    """Nothing is told twice on one connection, so it must not be lost."""
    world, _, copy = formed()
    world.advance(1_000)
    end = store_of(copy).end_offset
    assert copy.copy is not None
    with pytest.raises(
        RemoteProtocolError, match=f"log offset {end + 1}, and this log ends at {end}"
    ):
        copy.copy.apply_topic_deletion(TopicDeletion("t", end + 1, 0))


def test_a_group_reads_a_new_topic_from_its_start_at_the_next_master() -> None:
    """The offset in the old topic was saved, and the deletion comes right before the fault."""
    world, master, copy = formed()
    make(world, master, 1)
    for _ in range(10):
        send(world, master, b"old")
    assert master.broker is not None
    read = {"consumerGroup": "CG", "topic": "t", "queueId": "0", "commitOffset": "10"}
    master.broker.connect().tell(Request.UPDATE_CONSUMER_OFFSET, read)
    world.advance(20_000)
    delete(world, master)
    make(world, master, 1)
    for _ in range(3):
        send(world, master, b"new")
    master.kill()
    world.until(lambda: world.serving is copy)
    assert copy.broker is not None
    assert copy.broker.core.broker.offsets.get("CG", "t", 0) == -1


def test_a_copy_has_recorded_a_deletion_before_it_counts_as_copied() -> None:
    """Its disk is full until the queues' files are removed. Without the note its next start would
    bring the messages back."""
    world, master, copy = formed()
    make(world, master, 1)
    send(world, master, b"old")
    world.advance(1_000)
    copy.disk.room = copy.disk.used
    delete(world, master)
    noted = read_snapshot(copy.disk)
    assert noted is not None
    assert "t" in noted.deleted


def test_a_copy_that_cannot_record_a_deletion_leaves_the_set() -> None:
    world, master, copy = formed()
    make(world, master, 1)
    send(world, master, b"old")
    world.advance(1_000)
    copy.disk.unreadable.add(SNAPSHOT)
    delete(world, master)
    assert world.record is not None
    assert copy.name not in world.record.in_sync
    copy.disk.unreadable.clear()
    take_over(world, master, copy)
    make(world, copy, 1)
    assert bodies(world, copy, 1) == [[]]
