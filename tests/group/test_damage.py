"""A member whose disk has damaged its log: damage is not absence, and nothing is lost by it."""

from __future__ import annotations

import pytest

from tests.harness.group import GroupWorld, MemberHost
from tests.harness.pair import log_of, queues_of

from .test_failover import bodies, formed, sent, store_of


def with_messages(names: str = "abc") -> tuple[GroupWorld, MemberHost, MemberHost]:
    """A group, its master and a copy, with three messages."""
    world, master = formed(names=names)
    for nth in range(3):
        sent(world, master, b"%d" % nth)
    world.advance(1_000)
    copy = next(host for host in world.hosts.values() if host is not master)
    return world, master, copy


def _is_counted(world: GroupWorld, host: MemberHost) -> bool:
    """Whether a member is in sync as what it is now."""
    return world.record is not None and world.record.is_in_sync(
        host.name, host.member.state.incarnation
    )


def all_alike(world: GroupWorld) -> bool:
    return len({bytes(log_of(store_of(host))) for host in world.hosts.values()}) == 1


def test_a_damaged_copy_gets_the_rest_of_its_log_from_the_master() -> None:
    world, master, copy = with_messages()
    before = copy.member.state.incarnation
    copy.kill_and_rot()
    copy.start()
    assert copy.member.state.incarnation != before
    assert 0 <= copy.member.state.sound_end < store_of(copy).end_offset
    world.until(lambda: copy.member.state.sound_end == -1)
    world.until(lambda: _is_counted(world, copy))
    assert bytes(log_of(store_of(copy))) == bytes(log_of(store_of(master)))
    assert queues_of(store_of(copy)) == queues_of(store_of(master))
    master.kill()
    new = world.until(lambda: world.serving)
    assert bodies(new) == [b"0", b"1", b"2"]


def test_a_damaged_copy_does_not_take_over() -> None:
    world, master, copy = with_messages("ab")
    copy.kill_and_rot()
    master.kill()  # at once: the record still says that the copy has everything
    copy.start()
    world.advance(20_000)
    assert world.serving is None
    assert any("does not take over" in line for line in copy.log_lines)
    master.start()
    world.until(world.are_in_sync)
    assert world.serving is master
    assert bodies(master) == [b"0", b"1", b"2"]
    assert all_alike(world)


@pytest.mark.parametrize("kills", [1, 3])
def test_damage_is_remembered_until_the_log_was_copied_again(kills: int) -> None:
    world, master, copy = with_messages("ab")
    copy.kill_and_rot()
    master.kill()
    for _ in range(kills):
        copy.start()
        world.advance(1_000)
        sound_end = copy.member.state.sound_end
        assert sound_end >= 0
        copy.kill()
    copy.start()
    assert copy.member.state.sound_end == sound_end
    master.start()
    world.until(world.are_in_sync)
    assert all_alike(world)


def test_a_damaged_master_leaves_the_group_to_the_others_and_copies_it() -> None:
    world, master, _ = with_messages()
    master.kill_and_rot()
    master.start()
    world.until(world.are_in_sync)
    new = world.until(lambda: world.serving)
    assert new is not master
    assert bodies(new) == [b"0", b"1", b"2"]
    assert all_alike(world)


def test_a_damaged_master_that_was_alone_says_what_is_lost_and_waits_for_a_word() -> None:
    world, master, copy = with_messages("ab")
    copy.kill()
    sent(world, master, b"alone")
    master.kill_and_rot()
    master.start()
    copy.start()
    world.advance(30_000)
    assert world.serving is None
    sound_end = master.member.state.sound_end
    assert any(
        f"lacks something from offset {sound_end} on" in line and "rebuild --accept-loss" in line
        for line in master.log_lines
    )
    master.member.take_over_now(world.now_ms, is_forced=True)
    master.after()
    world.until(lambda: world.serving is master)
    assert master.member.state.sound_end == -1
    assert bodies(master) == [b"0", b"1", b"2"]
