"""A master whose disk takes no messages: a member that has everything, and a disk, takes over."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from escrowmq.base.codes import Request, Response
from tests.harness.caller import COMMIT, Half
from tests.harness.group import GroupWorld, MemberHost
from tests.harness.pair import queues_of

from .test_damage import all_alike
from .test_failover import MADE, bodies, formed, sent, store_of


def fill(host: MemberHost) -> None:
    """Not a byte more goes on its disk."""
    host.disk.room = host.disk.used


def fill_until_it_refuses(world: GroupWorld, host: MemberHost) -> int:
    """How many messages there was room for."""
    fill(host)
    count = 0
    while not store_of(host).disk_fault:
        assert host.broker is not None
        host.broker.connect("filler").begin_send("orders", b"x" * 4_000)
        world.advance(10)
        count += 1
        assert count < 100
    return count


def test_the_master_of_a_full_disk_hands_over_and_comes_back_in_sync() -> None:
    world, master = formed()
    sent(world, master, b"0")
    before = fill_until_it_refuses(world, master)
    new = world.until(lambda: world.serving if world.serving is not master else None)
    assert len(bodies(new)) in (before, before + 1), "and the one that had no room"
    sent(world, new, b"1")
    world.until(lambda: world.record is not None and master.name not in world.record.in_sync)
    master.disk.room = None
    world.until(world.are_in_sync)
    assert all_alike(world)


def test_a_master_whose_syncs_fail_hands_over() -> None:
    world, master = formed(sync_delay_ms=60_000)
    sent(world, master, b"0")
    assert master.broker is not None
    world.until(lambda: master.broker is not None and master.broker.syncs)
    master.broker.fail_sync()
    assert "a sync failed" in store_of(master).disk_fault
    new = world.until(lambda: world.serving if world.serving is not master else None)
    assert bodies(new) == [b"0"]


def test_a_disk_that_takes_messages_again_at_once_is_kept() -> None:
    world, master = formed()
    fill_until_it_refuses(world, master)
    master.disk.room = None
    world.advance(20_000)
    assert world.serving is master
    assert store_of(master).disk_fault == ""


def test_a_member_whose_own_disk_is_full_does_not_take_over() -> None:
    world, master = formed(names="ab")
    copy = next(host for host in world.hosts.values() if host is not master)
    for host in (master, copy):
        host.disk.used_percent = 95
    world.advance(60_000)
    assert world.serving is master
    assert len(world.epochs) == 1
    assert "95 %" in store_of(copy).disk_fault
    for host in (master, copy):
        host.disk.used_percent = 10
    world.advance(1_100)
    assert store_of(copy).disk_fault == ""
    world.until(lambda: not store_of(master).disk_fault)
    sent(world, master, b"0")
    assert bodies(master) == [b"0"]


def test_of_two_members_the_one_with_room_takes_over() -> None:
    world, master = formed()
    other, able = (host for host in world.hosts.values() if host is not master)
    for host in (master, other):
        host.disk.used_percent = 95
    assert world.until(lambda: world.serving if world.serving is not master else None) is able


def test_alone_it_says_once_that_nobody_can_take_over(caplog: pytest.LogCaptureFixture) -> None:
    world, master = formed(names="a")
    master.disk.used_percent = 95
    world.advance(120_000)
    said = [line for line in caplog.messages if "no other member can take over" in line]
    assert len(said) == 1
    assert "95 %" in said[0]


def fail_syncs(host: MemberHost) -> None:
    host.fails_syncs = True


def exceed_the_bound(host: MemberHost) -> None:
    host.disk.used_percent = 95


FAILURES = pytest.mark.parametrize("fail", [fail_syncs, exceed_the_bound])
Fail = Callable[[MemberHost], None]


def failing(fail: Fail) -> tuple[GroupWorld, MemberHost]:
    """A master whose disk has just failed, and that the others and the authority do not reach."""
    world, master = formed()
    fail(master)
    assert master.broker is not None
    master.broker.connect().begin_send("orders", b"for the disk")
    world.until(lambda: store_of(master).disk_fault)
    world.isolate(master.name)
    world.without_authority.add(master.name)
    return world, master


@FAILURES
def test_a_replaced_master_whose_disk_fails_denies_nothing_for_good(fail: Fail) -> None:
    """Its log takes no mark that copies could confirm, so it cannot know that it is a master."""
    world, master = failing(fail)
    assert master.broker is not None
    stale = master.broker.connect()
    world.until(lambda: world.serving is not master and world.serving)
    reply = stale.begin_end(Half("orders", "PG", 0, 1_000_000, "key"), COMMIT)
    assert reply.now.code == Response.SERVICE_NOT_AVAILABLE
    assert "no copy can confirm it" in str(reply.now.remark)


@FAILURES
def test_a_topic_that_no_copy_gets_is_not_said_to_be_made(fail: Fail) -> None:
    world, master = failing(fail)
    assert master.broker is not None
    reply = master.broker.connect().begin(Request.UPDATE_AND_CREATE_TOPIC, MADE)
    world.until(lambda: reply)
    assert reply.now.code in (Response.SERVICE_NOT_AVAILABLE, Response.FLUSH_SLAVE_TIMEOUT)
    new = world.until(lambda: world.serving is not master and world.serving)
    assert new.broker.core.broker.topics.get("made") is None


def test_tables_are_changed_and_copied_on_a_full_disk() -> None:
    """Administrators may have to do so to free it."""
    world, master = formed()
    for host in world.hosts.values():
        exceed_the_bound(host)
    world.until(lambda: store_of(master).disk_fault)
    assert master.broker is not None
    reply = master.broker.connect().begin(Request.UPDATE_AND_CREATE_TOPIC, MADE)
    assert not reply, "the copies do not have it yet"
    world.until(lambda: reply)
    assert reply.now.code == Response.SUCCESS, reply.now.remark


def test_a_copy_that_cannot_write_a_queue_keeps_when_delayed_messages_are_due() -> None:
    """It gets several at once, and adds them to their queue when that can be written."""
    world, master = formed(names="ab")
    copy = next(host for host in world.hosts.values() if host is not master)
    sent(world, master, b"0")
    copy.kill()
    assert master.broker is not None
    caller = master.broker.connect()
    for nth in range(3):
        reply = caller.begin_send("orders", b"later %d" % nth, DELAY="3")
        world.advance(2_000)
        assert reply
    queue = "consumequeue/SCHEDULE_TOPIC_XXXX/2/00000000000000000000"
    copy.disk.unreadable.add(queue)
    copy.start()
    world.advance(3_000)
    assert store_of(copy).dispatcher.held_back.units
    copy.disk.unreadable.clear()
    world.until(world.are_in_sync)
    world.advance(3_000)
    units = [queues_of(store_of(host))["SCHEDULE_TOPIC_XXXX", 2] for host in (master, copy)]
    assert units[0] == units[1]


def test_an_operator_may_clean_up_while_the_disk_is_full() -> None:
    """The record that the answer waits for may use the reserve."""
    world, master = formed(names="ab")
    sent(world, master, b"0")
    for host in world.hosts.values():
        host.disk.used_percent = 95
    world.advance(60_000)
    assert store_of(master).disk_fault
    assert master.broker is not None
    cleaned = master.broker.connect().begin(Request.CLEAN_UNUSED_TOPIC)
    world.until(lambda: cleaned)
    assert cleaned.now.code == Response.SUCCESS, cleaned.now
