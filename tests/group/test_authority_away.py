"""What a group does while its authority does not answer."""

from __future__ import annotations

import pytest

from escrowmq.base.codes import Request, Response
from escrowmq.group.record import decode_group_record
from tests.harness.group import KEY, GroupWorld

from .test_failover import formed, sent


@pytest.mark.parametrize("away_ms", [100, 60_000])
def test_a_master_that_pauses_while_the_authority_is_away_goes_on(away_ms: int) -> None:
    world, master = formed()
    world.advance(15_000)
    world.authority.is_reachable = False
    world.advance(away_ms)
    master.freeze()
    world.advance(5_000)
    master.thaw()
    world.advance(5_000)
    sent(world, master, b"one")
    heir = next(host for host in world.hosts.values() if host is not master)
    world.authority.is_reachable = True
    world.advance(15_000)
    world.authority.is_reachable = False
    assert master.broker is not None
    asked = master.broker.connect().begin(Request.ESCROW_GROUP_SWITCH, {"member": heir.name})
    assert asked.now.code == Response.SUCCESS  # nobody has noticed yet
    world.advance(15_000)
    sent(world, master, b"two")
    assert world.record is not None
    assert world.record.epoch == 1


def test_a_copy_that_fails_while_the_authority_is_away_stops_sends_until_it_is_back() -> None:
    """The set cannot shrink; groups.md says so."""
    world, master = formed()
    world.advance(15_000)
    world.authority.is_reachable = False
    copy = next(host for host in world.hosts.values() if host is not master)
    copy.kill()
    world.advance(60_000)
    assert master.broker is not None
    reply = master.broker.connect().begin_send("orders", b"one")
    world.until(lambda: reply)
    assert reply.now.code == Response.FLUSH_SLAVE_TIMEOUT
    copy.start()  # it cannot know whether this is still its master
    world.advance(60_000)
    again = master.broker.connect().begin_send("orders", b"two")
    world.until(lambda: again)
    assert again.now.code == Response.FLUSH_SLAVE_TIMEOUT
    world.authority.is_reachable = True
    world.until(world.are_in_sync)
    assert world.serving is master
    sent(world, master, b"three")


@pytest.mark.parametrize("after_ms", range(5_000, 10_000, 500))
def test_an_empty_member_that_starts_without_a_record_makes_no_other_group(after_ms: int) -> None:
    """Somebody has deleted it, and the master that serves has not written its own yet."""
    world = GroupWorld(1)
    for name in "ab":
        world.hosts[name].start()
    world.until(lambda: world.record is not None and len(world.record.in_sync) == 2)
    record = world.record
    assert record is not None
    world.advance(after_ms)
    world.authority.delete(KEY)
    world.hosts["c"].start()
    world.until(world.are_in_sync)
    written = [decode_group_record(one.value) for _, one in world.authority.history if one.value]
    assert {(one.group, one.epoch) for one in written} == {(record.group, record.epoch)}
