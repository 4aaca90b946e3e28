"""What operators see of a group, and what they do to it: status, switch, rebuild."""

from __future__ import annotations

import json

import pytest

from escrowmq.base.codes import Request, Response
from tests.harness.caller import COMMIT
from tests.harness.group import KEY
from tests.harness.pair import log_of

from .test_failover import about_to_join, bodies, formed, prepared, report_of, sent, store_of


def test_a_sender_that_asks_is_told_how_many_members_have_its_message() -> None:
    world, master = formed()

    def told() -> tuple[str | None, str | None]:
        assert master.broker is not None
        fields = {"escrowWantsSafety": "true"}
        reply = master.broker.connect().begin_send("orders", b"one", fields=fields)
        world.until(lambda: reply)
        assert reply.now.code == Response.SUCCESS
        ext = reply.now.ext or {}
        return ext.get("escrowDurability"), ext.get("escrowCopies")

    assert told() == ("memory", "3")
    first, second = (host for host in world.hosts.values() if host is not master)
    first.kill()
    world.until(lambda: world.record is not None and len(world.record.in_sync) == 2)
    assert told() == ("memory", "2")
    second.kill()
    world.until(lambda: world.record is not None and len(world.record.in_sync) == 1)
    assert told() == ("disk", None)


def test_a_planned_switch_loses_nothing_and_is_short() -> None:
    world, master = formed()
    sent(world, master, b"one")
    heir = next(host for host in world.hosts.values() if host is not master)
    assert master.broker is not None
    caller = master.broker.connect()
    reply = caller.begin(Request.ESCROW_GROUP_SWITCH, {"member": heir.name})
    assert reply.now.code == Response.SUCCESS, reply.now.remark
    assert reply.now.ext == {"member": heir.name}
    refused = caller.begin_send("orders", b"between")
    assert refused.now.code == Response.SERVICE_NOT_AVAILABLE
    assert heir.name in str(refused.now.remark)
    began_ms = world.now_ms
    assert world.until(lambda: world.serving is not master and world.serving) is heir
    assert world.now_ms - began_ms < 300
    sent(world, heir, b"two")
    world.until(world.are_in_sync, within_ms=10_000)
    assert bodies(heir) == [b"one", b"two"]


def test_consumers_go_on_where_they_were_after_a_planned_switch() -> None:
    """Offsets are saved every five seconds, and right before the heir takes over."""
    world, master = formed()
    for nth in range(3):
        sent(world, master, b"%d" % nth)
    world.advance(7_000)
    heir = next(host for host in world.hosts.values() if host is not master)
    assert master.broker is not None
    caller = master.broker.connect()
    read = {"consumerGroup": "CG", "topic": "orders", "queueId": "0", "commitOffset": "2"}
    caller.tell(Request.UPDATE_CONSUMER_OFFSET, read)
    world.advance(100)
    reply = caller.begin(Request.ESCROW_GROUP_SWITCH, {"member": heir.name})
    assert reply.now.code == Response.SUCCESS, reply.now.remark
    world.until(lambda: world.serving is heir)
    assert heir.broker is not None
    assert heir.broker.core.broker.offsets.get("CG", "orders", 0) == 2


def test_a_member_that_is_about_to_join_counts_at_once_when_the_heir_is_asked() -> None:
    """Else a sync that ends right then could acknowledge what that member does not have."""
    world, master = formed()
    sent(world, master, b"one")
    late = about_to_join(world, master)
    leader = master.leader
    assert leader is not None
    assert late.name not in master.member.needed_members
    heir = next(name for name in master.member.needed_members)
    leader.switch_master(heir)
    leader._hand_over()
    assert leader._heir is not None
    assert leader._heir.was_asked
    assert late.name in master.member.needed_members
    assert leader._needed == master.member.needed_members


def test_nobody_is_sent_what_the_heir_will_not_have() -> None:
    """A third member that had more would first have to cut it off, and the heir waits for it."""
    world, master = formed()
    assert master.broker is not None
    caller = master.broker.connect()
    half = prepared(world, caller)
    heir, third = (host for host in world.hosts.values() if host is not master)
    world.until(lambda: store_of(third).end_offset == store_of(master).end_offset)
    asked = caller.begin(Request.ESCROW_GROUP_SWITCH, {"member": heir.name})
    assert asked.now.code == Response.SUCCESS
    leader = master.leader
    assert leader is not None
    world.until(lambda: leader._heir is not None and leader._heir.was_asked)
    handed = store_of(master).end_offset
    caller.begin_end(half, COMMIT)
    assert store_of(master).end_offset > handed
    lives = third.life
    world.until(lambda: world.serving is heir)
    assert world.epochs[2] == (heir.name, handed)
    assert third.life == lives, "it has not been opened again"
    world.until(world.are_in_sync)
    assert log_of(store_of(third)) == log_of(store_of(heir))


def test_a_switch_that_nobody_carries_out_ends_and_messages_are_accepted_again() -> None:
    world, master = formed()
    heir = next(host for host in world.hosts.values() if host is not master)
    assert master.broker is not None
    world.isolate(heir.name)
    reply = master.broker.connect().begin(Request.ESCROW_GROUP_SWITCH, {"member": heir.name})
    sent_before = store_of(master).end_offset
    assert reply.now.code == Response.SUCCESS, reply.now.remark
    world.advance(8_000)
    assert store_of(master).end_offset == sent_before
    sent(world, master, b"one")


@pytest.mark.parametrize("member", ["", "x"])
def test_a_switch_without_anybody_able_is_refused(member: str) -> None:
    world, master = formed(names="ab" if member else "a")
    assert master.broker is not None
    asked = {"member": member} if member else {}
    reply = master.broker.connect().begin(Request.ESCROW_GROUP_SWITCH, asked)
    assert reply.now.code == Response.SYSTEM_ERROR
    assert "not in sync" in str(reply.now.remark)
    sent(world, master, b"one")


def test_what_members_report_of_the_group() -> None:
    world, master = formed()
    sent(world, master, b"one")
    copy = next(host for host in world.hosts.values() if host is not master)
    of_master, of_copy = report_of(master), report_of(copy)
    assert of_master.is_master
    assert of_master.in_sync == ["a", "b", "c"]
    assert of_master.master == of_copy.master == master.name
    assert of_copy.master_address == f"{master.address}:10911"
    assert of_master.confirmed == of_master.end == of_copy.end
    assert {one.member for one in of_master.copies} == world.hosts.keys() - {master.name}
    assert not of_copy.is_master
    assert of_copy.why == ""
    assert copy.broker is not None
    refused = copy.broker.connect().begin(Request.ESCROW_GROUP_SWITCH, {})
    assert f"ask {master.name}" in str(refused.now.remark)
    again = copy.broker.connect().begin(Request.ESCROW_GROUP_REBUILD, {"acceptLoss": "true"})
    assert "there is nothing to rebuild" in str(again.now.remark)


def test_rocketmqs_operators_ask_a_member_as_they_ask_a_controller() -> None:
    world, master = formed()
    away, other = (host for host in world.hosts.values() if host is not master)
    sent(world, master, b"one")
    away.kill()
    world.until(lambda: world.record is not None and len(world.record.in_sync) == 2)
    world.advance(1_000)
    assert master.broker is not None
    assert other.broker is not None
    where = f"{master.address}:10911"
    for host in (master, other):
        assert host.broker is not None
        reply = host.broker.connect().begin(1005, {}).now
        told = reply.ext or {}
        assert (told["controllerLeaderAddress"], told["controllerLeaderId"]) == (where, master.name)
        assert told["isLeader"] == ("true" if host is master else "false")
    caller = master.broker.connect()
    found = json.loads(caller.begin(1006, {}, body=b'["b", "c"]').now.body)["replicasInfoTable"]
    assert [*found] == ["b"]
    assert world.record is not None
    numbers = world.record.numbers
    assert found["b"]["masterAddress"] == where
    assert found["b"]["masterBrokerId"] == numbers[master.name]
    assert (found["b"]["masterEpoch"], found["b"]["syncStateSetEpoch"]) == (1, 1)
    assert {one["brokerId"]: one["alive"] for one in found["b"]["inSyncReplicas"]} == {
        numbers[master.name]: True, numbers[other.name]: True,
    }  # fmt: skip
    assert found["b"]["notInSyncReplicas"] == [
        {"alive": False, "brokerAddress": "", "brokerId": numbers[away.name], "brokerName": "b"}
    ]
    assert caller.begin(1006, {}, body=b"{").now.code == Response.INVALID_PARAMETER
    epochs = json.loads(caller.begin(1007, {}).now.body)
    end = store_of(master).end_offset
    assert epochs["epochList"] == [{"epoch": 1, "startOffset": 0, "endOffset": end}]
    assert epochs["maxOffset"] == end


def test_a_rebuild_is_asked_for_with_the_loss_accepted() -> None:
    world, master = formed()
    others = [host for host in world.hosts.values() if host is not master]
    for host in others:
        host.kill()
    sent(world, master, b"lost")
    master.kill()
    others[0].start()
    world.advance(1_000)
    assert "not let this member in" in report_of(others[0]).why
    assert others[0].broker is not None
    caller = others[0].broker.connect()
    refused = caller.begin(Request.ESCROW_GROUP_REBUILD, {})
    assert "acceptLoss" in str(refused.now.remark)
    assert caller.begin(Request.ESCROW_GROUP_REBUILD, {"acceptLoss": "true"}).now.code == 0
    assert world.until(lambda: world.serving) is others[0]
    for host in (master, others[1]):
        host.start()
    world.until(world.are_in_sync)
    assert bodies(others[0]) == []


def test_a_rebuild_is_refused_while_the_authority_does_not_answer() -> None:
    world, master = formed()
    away = next(host for host in world.hosts.values() if host is not master)
    world.isolate(away.name)
    world.without_authority.add(away.name)
    world.advance(15_000)
    assert away.broker is not None
    caller = away.broker.connect()
    refused = caller.begin(Request.ESCROW_GROUP_REBUILD, {"acceptLoss": "true"})
    assert refused.now.code == Response.SYSTEM_ERROR
    assert "the authority does not answer (no answer)" in str(refused.now.remark)
    sent(world, master, b"one")
    world.mend()
    world.without_authority.clear()
    world.until(world.are_in_sync)
    assert world.serving is master
    assert bodies(master) == [b"one"]


def test_a_rebuild_without_the_record_gives_no_epoch_a_number_that_another_has() -> None:
    """The logs of both had the same epochs, and the former master's was taken for a copy."""
    world, first = formed()
    second, away = (host for host in world.hosts.values() if host is not first)
    sent(world, first, b"one")
    world.advance(1_000)
    away.kill()
    world.until(lambda: world.record is not None and away.name not in world.record.in_sync)
    assert first.broker is not None
    first.broker.connect().begin(Request.ESCROW_GROUP_SWITCH, {"member": second.name})
    world.until(lambda: world.serving is second)
    sent(world, second, b"two")  # in epoch 2, which the third has never heard of
    first.kill()
    second.kill()
    world.authority.delete(KEY)
    away.start()
    world.advance(1_000)
    away.member.take_over_now(world.now_ms, is_forced=True)
    away.after()
    world.until(lambda: world.serving is away)
    sent(world, away, b"TWO")
    first.start()
    second.start()
    world.until(world.are_in_sync)
    assert bodies(away) == [b"one", b"TWO"]
    assert {log_of(store_of(host)) for host in (first, second)} == {log_of(store_of(away))}
