"""What a group does when its members stop, freeze, lose power or lose each other: real cores on
simulated disks, a fault at a time."""

from __future__ import annotations

import pytest

from escrowmq.base.codes import Request, Response
from escrowmq.store.store import Store
from escrowmq.testing.disk import Loss
from tests.harness.group import GroupWorld, MemberHost
from tests.harness.pair import log_of, queues_of

MADE = {
    "topic": "made", "readQueueNums": "3", "writeQueueNums": "3", "perm": "6",
    "topicFilterType": "SINGLE_TAG", "order": "false", "defaultTopic": "TBW102",
}  # fmt: skip


def formed(seed: int = 1, names: str = "abc") -> tuple[GroupWorld, MemberHost]:
    world = GroupWorld(seed, names)
    world.start_all()
    world.until(world.are_in_sync)
    assert world.serving is not None
    return world, world.serving


def store_of(host: MemberHost) -> Store:
    assert host.broker is not None
    return host.broker.core.broker.store


def sent(world: GroupWorld, host: MemberHost, body: bytes) -> None:
    assert host.broker is not None
    caller = host.broker.connect()
    reply = caller.begin_send("orders", body)
    world.until(lambda: reply)
    assert reply.now.code == Response.SUCCESS, reply.now.remark
    caller.leave()


def bodies(host: MemberHost) -> list[bytes]:
    assert host.broker is not None
    caller = host.broker.connect()
    first = caller.begin_pull("orders")  # a group that is made is answered when copies have it
    host.world.until(lambda: first)
    return caller.bodies("orders")


def test_a_group_forms_in_any_order() -> None:
    world, master = formed()
    assert world.record is not None
    assert world.record.epoch == 1
    assert sorted(world.record.numbers.values()) == [1, 2, 3]
    sent(world, master, b"one")
    world.advance(1_000)
    for host in world.hosts.values():
        assert log_of(store_of(host)) == log_of(store_of(master))
        assert queues_of(store_of(host)) == queues_of(store_of(master))


def test_a_killed_master_is_replaced_at_once_and_comes_back_as_a_copy() -> None:
    world, master = formed()
    sent(world, master, b"one")
    master.kill()
    began_ms = world.now_ms
    new = world.until(lambda: world.serving)
    assert new is not master
    assert world.now_ms - began_ms < 1_000
    assert bodies(new) == [b"one"]
    sent(world, new, b"two")
    master.start()
    world.until(world.are_in_sync, within_ms=10_000)
    assert bodies(new) == [b"one", b"two"]
    assert log_of(store_of(master)) == log_of(store_of(new))


def test_a_frozen_master_is_replaced_and_acknowledges_nothing_when_it_wakes() -> None:
    world, master = formed()
    sent(world, master, b"one")
    assert master.broker is not None
    caller = master.broker.connect()
    master.freeze()
    reply = None

    def late() -> None:
        nonlocal reply
        reply = caller.begin_send("orders", b"late")

    master.arrive(late)
    new = world.until(lambda: world.serving)
    assert world.now_ms < 20_000
    sent(world, new, b"two")
    master.thaw()
    world.until(world.are_in_sync, within_ms=10_000)
    assert reply is None or not reply or reply.now.code != Response.SUCCESS
    assert bodies(new) == [b"one", b"two"]
    assert log_of(store_of(master)) == log_of(store_of(new))


@pytest.mark.parametrize("seed", range(3))
def test_an_isolated_master_confirms_nothing_that_the_others_lack(seed: int) -> None:
    world, master = formed(seed)
    sent(world, master, b"one")
    world.isolate(master.name)
    assert master.broker is not None
    caller = master.broker.connect()
    reply = caller.begin_send("orders", b"lonely")
    world.advance(20_000)
    serving = world.serving
    assert serving is not None
    if serving is master:  # it was the first to change the record: the others are out
        assert reply
        assert reply.now.code in (Response.SUCCESS, Response.FLUSH_SLAVE_TIMEOUT)
    else:
        assert not reply or reply.now.code != Response.SUCCESS
    world.mend()
    world.until(world.are_in_sync)
    new = world.serving
    assert new is not None
    assert bodies(new)[0] == b"one"
    logs = {log_of(store_of(host)) for host in world.hosts.values()}
    world.advance(1_000)
    assert len(logs) == 1


def test_a_master_left_alone_goes_on_from_its_disk() -> None:
    world, master = formed()
    for host in world.hosts.values():
        if host is not master:
            host.kill()
    sent(world, master, b"alone")
    assert world.record is not None
    assert list(world.record.in_sync) == [master.name]
    assert store_of(master).ends.durable == store_of(master).end_offset


def test_who_was_left_out_never_serves_alone_and_says_why() -> None:
    world, master = formed()
    others = [host for host in world.hosts.values() if host is not master]
    for host in others:
        host.kill()
    sent(world, master, b"alone")
    master.kill()
    for host in others:
        host.start()
    world.advance(30_000)
    assert world.serving is None
    assert all(any("not in sync" in line for line in host.log_lines) for host in others)
    master.start()
    world.until(world.are_in_sync)
    assert world.serving is master
    assert bodies(master) == [b"alone"]


def test_the_last_one_that_lost_power_stays_down_until_somebody_says_so() -> None:
    world, master = formed()
    for host in world.hosts.values():
        if host is not master:
            host.kill()
    sent(world, master, b"alone")
    master.kill(Loss.ALL)
    for host in world.hosts.values():
        host.start()
    world.advance(30_000)
    assert world.serving is None
    assert any("rebuild --accept-loss" in line for line in master.log_lines)
    master.member.take_over_now(world.now_ms, is_forced=True)
    master.after()
    world.until(world.are_in_sync)
    assert world.serving is master


def test_the_authority_is_away_for_an_hour_and_no_client_notices() -> None:
    world, master = formed()
    world.authority.is_reachable = False
    for nth in range(6):
        world.advance(600_000 // 100)
        sent(world, master, b"%d" % nth)
    assert world.serving is master


def test_a_topic_is_there_when_its_making_was_answered() -> None:
    world, master = formed()
    assert master.broker is not None
    caller = master.broker.connect()
    reply = caller.begin(Request.UPDATE_AND_CREATE_TOPIC, MADE)
    assert not reply, "the copies do not have it yet"
    world.until(lambda: reply)
    master.kill()
    new = world.until(lambda: world.serving)
    assert new.broker is not None
    made = new.broker.core.broker.topics.get("made")
    assert made is not None
    assert made.write_queue_nums == 3
