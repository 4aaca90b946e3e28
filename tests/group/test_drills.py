"""What a member does to itself in a drill, and what it refuses."""

from __future__ import annotations

import logging

import pytest

from escrowmq.base.codes import Request, Response
from escrowmq.group.drills import DRILL_MS, FAULTS_REMEMBERED_MAX, SPAN_MAX_MS
from tests.harness.caller import Pending
from tests.harness.group import GroupWorld, MemberHost

from .test_failover import bodies, report_of, sent


def formed(*, has_drills: bool = True) -> tuple[GroupWorld, MemberHost]:
    world = GroupWorld(1, has_drills=has_drills)
    world.start_all()
    world.until(world.are_in_sync)
    assert world.serving is not None
    return world, world.serving


def ask(host: MemberHost, fault: str = "", ms: int | str = 0, **fields: str) -> Pending:
    """What a member answers to an order."""
    assert host.broker is not None
    asked = {"drill": "d1", "fault": fault, "ms": str(ms), "member": host.name, **fields}
    return host.broker.connect().begin(Request.ESCROW_GROUP_DRILL, asked)


def done(host: MemberHost, fault: str = "", ms: int = 0, **fields: str) -> None:
    reply = ask(host, fault, ms, **fields)
    assert reply.now.code == Response.SUCCESS, reply.now.remark


def refused(host: MemberHost, fault: str = "", ms: int | str = 0, **fields: str) -> str:
    reply = ask(host, fault, ms, **fields)
    assert reply.now.code == Response.SYSTEM_ERROR
    return str(reply.now.remark)


def copy_of(world: GroupWorld, master: MemberHost) -> MemberHost:
    return next(host for host in world.hosts.values() if host is not master)


def end_well(world: GroupWorld, *expected: bytes) -> MemberHost:
    """All in sync again, with these messages."""
    world.until(world.are_in_sync, within_ms=60_000)
    serving = world.serving
    assert serving is not None
    assert bodies(serving) == [*expected]
    return serving


def test_a_member_fails_only_where_its_start_allows_it() -> None:
    world, master = formed(has_drills=False)
    assert "escrowDrills=true" in refused(master)
    for fault in ("kill", "freeze", "cut", "isolate", "authority", "switch"):
        assert "escrowDrills=true" in refused(master, fault, 1_000)
    change = master.broker and master.broker.connect().begin(
        Request.UPDATE_BROKER_CONFIG, body=b"escrowDrills=true\n"
    )
    assert change is not None
    world.advance(100)
    assert "escrowDrills=true" in refused(master, "kill")
    world.advance(10_000)
    assert world.serving is master
    assert report_of(master).faults == []


def test_a_broker_that_is_alone_has_no_drills() -> None:
    from tests.harness.exchange import Exchange

    reply = Exchange().connect().begin(Request.ESCROW_GROUP_DRILL, {"drill": "d1"})
    assert "--authority" in str(reply.now.remark)


@pytest.mark.parametrize(
    ("fault", "ms", "fields", "said"),
    [
        ("burn", 1_000, {}, "fault=burn: one of authority, cut, freeze, isolate, kill, switch"),
        ("freeze", 0, {}, "ms=0: 100 to 60000 is allowed"),
        ("cut", SPAN_MAX_MS + 1, {}, "ms=60001"),
        ("cut", "-5", {}, "ms=-5"),
        ("cut", "soon", {}, "ms=soon"),
        ("cut", "9" * 5_000, {}, "100 to 60000"),
        ("kill", 0, {"member": "z"}, "the order is for z"),
        ("kill", 0, {"drill": ""}, "a drill has a name"),
        ("kill", 0, {"drill": "d" * 65}, "a drill has a name"),
    ],
)
def test_an_order_that_is_wrong_does_nothing(
    fault: str, ms: int | str, fields: dict[str, str], said: str
) -> None:
    world, master = formed()
    assert said in refused(master, fault, ms, **fields)
    world.advance(10_000)
    assert world.serving is master
    assert report_of(master).faults == []


def test_a_dry_run_says_the_timeouts_and_does_nothing() -> None:
    world, master = formed()
    reply = ask(master, "kill", isDryRun="true")
    assert reply.now.ext == {"member": master.name, "takeoverMs": "3500", "silenceMs": "3000"}
    done(master, "switch", isDryRun="true")
    world.advance(5_000)
    assert world.serving is master
    assert report_of(master).faults == []
    done(master, drill="another")  # nobody has begun one


def test_one_drill_at_a_time() -> None:
    world, master = formed()
    done(master)
    world.advance(2_000)
    said = refused(master, drill="d2")
    assert "drill d1 of " in said
    assert "2 s ago" in said
    assert "one drill is allowed at a time" in refused(master, drill="d2", isDryRun="true")
    assert "one drill is allowed at a time" in refused(master, "end", drill="d2")
    done(master, "end")
    done(master, drill="d2")
    world.advance(DRILL_MS - 20)
    assert "one drill is allowed at a time" in refused(master, drill="d3")
    world.advance(20)
    done(master, drill="d3")


def test_one_fault_at_a_time_and_each_ends_by_itself() -> None:
    world, master = formed()
    done(master, "authority", 3_000)
    assert "authority of member" in refused(master, "kill")
    world.advance(1_000)
    assert "lasts for another 2.0 s" in refused(master, "cut", 1_000)
    done(master)  # which is no fault
    world.advance(1_990)
    assert "one fault is allowed at a time" in refused(master, "authority", 100)
    world.advance(10)
    done(master, "authority", 100)


def test_the_end_of_a_drill_ends_its_fault() -> None:
    world, master = formed()
    done(master, "cut", 60_000)
    world.advance(1_000)
    assert not world.are_in_sync()
    done(master, "end")
    end_well(world)
    done(master, "cut", 100, drill="d2")


def test_a_killed_master_is_replaced() -> None:
    world, master = formed()
    sent(world, master, b"one")
    done(master, "kill")
    new = world.until(lambda: world.serving is not master and world.serving)
    assert not master.is_up
    sent(world, new, b"two")
    master.start()
    assert end_well(world, b"one", b"two") is new


def test_a_frozen_master_is_replaced_and_wakes_up_by_itself() -> None:
    world, master = formed()
    sent(world, master, b"one")
    done(master, "freeze", 8_000)
    world.advance(10)
    assert master.is_frozen
    new = world.until(lambda: world.serving is not master and world.serving)
    assert master.is_frozen
    sent(world, new, b"two")
    assert end_well(world, b"one", b"two") is new


def test_a_master_that_is_cut_off_goes_on_alone() -> None:
    world, master = formed()
    sent(world, master, b"one")
    done(master, "cut", 5_000)
    begun_ms = world.now_ms
    world.advance(2_000)
    assert world.serving is master
    assert world.record is not None
    assert [*world.record.in_sync] == [master.name]
    sent(world, master, b"two")
    world.until(lambda: world.record is not None and len(world.record.in_sync) > 1)
    assert world.now_ms - begun_ms >= 5_000
    end_well(world, b"one", b"two")


def test_a_copy_that_is_cut_off_leaves_the_set_and_comes_back() -> None:
    world, master = formed()
    copy = copy_of(world, master)
    done(copy, "cut", 5_000)
    begun_ms = world.now_ms
    world.until(lambda: world.record is not None and copy.name not in world.record.in_sync)
    sent(world, master, b"one")
    world.until(world.are_in_sync)
    assert world.now_ms - begun_ms >= 5_000
    assert end_well(world, b"one") is master


def test_a_cut_begins_at_once_however_short_it_is() -> None:
    world, master = formed()
    copy = copy_of(world, master)
    done(copy, "cut", 500)
    world.advance(100)
    assert copy.name not in {one.member for one in report_of(master).copies}
    assert copy.copy is not None
    copy.copy.wake(world.wall_ms)
    assert copy.copy.wake_at_ms() > world.wall_ms, "it would wake up without end"
    done(copy)  # still there for its operators
    world.until(lambda: copy.name in {one.member for one in report_of(master).copies})


def test_copies_that_are_cut_off_do_not_hear_that_their_master_has_ended() -> None:
    world, master = formed()
    for host in world.hosts.values():
        if host is not master:
            done(host, "cut", 2_000)
    master.kill()
    world.advance(1_500)
    assert world.record is not None
    assert world.record.master == master.name
    world.until(lambda: world.serving is not master and world.serving)
    master.start()
    end_well(world)


def test_an_isolated_master_acknowledges_nothing_and_is_replaced() -> None:
    world, master = formed()
    sent(world, master, b"one")
    assert master.broker is not None
    done(master, "isolate", 10_000)
    lonely = master.broker.connect().begin_send("orders", b"lonely")
    new = world.until(lambda: world.serving is not master and world.serving)
    assert not lonely or lonely.now.code != Response.SUCCESS
    sent(world, new, b"two")
    assert end_well(world, b"one", b"two") is new


def test_a_fault_goes_on_when_the_member_changes_its_role() -> None:
    world, master = formed()
    done(master, "isolate", 20_000)
    begun_ms = world.now_ms
    world.until(lambda: world.serving is not master and world.serving)
    world.advance(19_000 - (world.now_ms - begun_ms))
    assert world.record is not None
    assert master.name not in world.record.in_sync
    end_well(world)


def test_a_master_without_the_authority_goes_on() -> None:
    world, master = formed()
    done(master, "authority", 8_000)
    world.advance(6_000)
    assert report_of(master).authority_fault
    sent(world, master, b"one")
    world.advance(10_000)
    assert report_of(master).authority_fault == ""
    assert end_well(world, b"one") is master


def test_a_switch_of_a_drill_is_the_masters() -> None:
    world, master = formed()
    assert "not the master" in refused(copy_of(world, master), "switch")
    done(master, "switch")
    assert [one.fault for one in report_of(master).faults] == ["switch"]
    world.until(lambda: world.serving is not None and world.serving is not master)
    end_well(world)


def test_a_switch_that_cannot_be_is_not_noted() -> None:
    world, master = formed()
    world.authority.is_reachable = False
    world.advance(10_000)
    assert "authority does not answer" in refused(master, "switch")
    assert report_of(master).faults == []


def test_who_asked_for_what_is_remembered() -> None:
    world, master = formed()
    for _ in range(FAULTS_REMEMBERED_MAX + 1):
        done(master, "authority", 100)
        world.advance(110)
    done(master, "cut", 200)
    notes = report_of(master).faults
    assert len(notes) == FAULTS_REMEMBERED_MAX
    assert (notes[-1].fault, notes[-1].span_ms, notes[-1].drill) == ("cut", 200, "d1")
    assert notes[-1].at_ms == world.wall_ms
    assert notes[-1].who


def test_orders_are_in_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "escrowmq.audit")
    world, master = formed()
    done(master, "cut", 200)
    refused(master, "kill")
    world.advance(10)
    lines = [r.getMessage() for r in caplog.records if "ESCROW_GROUP_DRILL" in r.getMessage()]
    assert [line.count("result=0") for line in lines] == [1, 0]
    assert all(f"member={master.name}" in line and "drill=d1" in line for line in lines)
    assert "fault=cut" in lines[0]
    assert "ms=200" in lines[0]
    assert "one fault is allowed at a time" in lines[1]
