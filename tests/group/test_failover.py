"""What a group does when its members stop, freeze, lose power or lose each other: real cores on
simulated disks, a fault at a time."""

from __future__ import annotations

import msgspec
import pytest

from escrowmq.base.codes import Request, Response
from escrowmq.base.group_report import GroupReport
from escrowmq.base.message import SysFlag, Topic
from escrowmq.codec.ids import parse_offset_id
from escrowmq.delivery.groups import TRANSACTION_GROUP
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.group import copy_stream
from escrowmq.store.store import Store
from escrowmq.testing.disk import CrashLoss
from escrowmq.txn.half_lifecycle import Halves
from tests.harness.caller import Caller, Half
from tests.harness.group import GroupWorld, MemberHost
from tests.harness.pair import log_of, queues_of

MADE = {
    "topic": "made", "readQueueNums": "3", "writeQueueNums": "3", "perm": "6",
    "topicFilterType": "SINGLE_TAG", "order": "false", "defaultTopic": "TBW102",
}  # fmt: skip


def formed(
    seed: int = 1, names: str = "abc", *, min_copies: int = 1, sync_delay_ms: int = 0
) -> tuple[GroupWorld, MemberHost]:
    world = GroupWorld(seed, names, min_copies=min_copies, sync_delay_ms=sync_delay_ms)
    world.start_all()
    world.until(world.are_in_sync)
    assert world.serving is not None
    return world, world.serving


def store_of(host: MemberHost) -> Store:
    assert host.broker is not None
    return host.broker.core.broker.store


def report_of(host: MemberHost) -> GroupReport:
    assert host.broker is not None
    reply = host.broker.connect().begin(Request.ESCROW_GROUP_STATUS, {})
    return msgspec.json.decode(reply.now.body, type=GroupReport)


def sent(world: GroupWorld, host: MemberHost, body: bytes) -> None:
    assert host.broker is not None
    caller = host.broker.connect()
    reply = caller.begin_send("orders", body)
    world.until(lambda: reply)
    assert reply.now.code == Response.SUCCESS, reply.now.remark
    caller.leave()


def about_to_join(world: GroupWorld, master: MemberHost) -> MemberHost:
    """A copy that has everything again, and is not in sync by the record yet."""
    late = next(host for host in world.hosts.values() if host is not master)
    late.kill()
    world.until(lambda: world.record is not None and late.name not in world.record.in_sync)
    late.start()
    assert world.record is not None
    two = world.record.in_sync
    world.until(lambda: [*master.member.copies.members_caught_up(two, world.now_ms)])
    return late


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
    began_ms = world.now_ms
    new = world.until(lambda: world.serving)
    # The other copy does not wait until it would take over itself, nor the new master for it.
    assert world.now_ms - began_ms < world.terms.takeover_ms + 1_500
    assert world.record is not None
    assert len(world.record.in_sync) == 2
    sent(world, new, b"two")
    master.thaw()
    world.until(world.are_in_sync, within_ms=10_000)
    assert master.broker is not None
    refused = master.broker.connect().begin_send("orders", b"slave")
    assert refused.now.code == Response.SERVICE_NOT_AVAILABLE
    assert f"the master is {new.name}, {new.address}:10911, as memory says" in str(
        refused.now.remark
    )
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
    master.kill(CrashLoss.ALL)
    for host in world.hosts.values():
        host.start()
    world.advance(30_000)
    assert world.serving is None
    assert any("rebuild --accept-loss" in line for line in master.log_lines)
    master.member.take_over_now(world.now_ms, is_forced=True)
    master.after()
    world.until(world.are_in_sync)
    assert world.serving is master


def switched(world: GroupWorld, heir: MemberHost) -> None:
    """The master hands over, and all are in sync again."""
    master = world.serving
    assert master is not None
    assert master.broker is not None
    caller = master.broker.connect()
    reply = caller.begin(Request.ESCROW_GROUP_SWITCH, {"member": heir.name})
    assert reply.now.code == Response.SUCCESS, reply.now.remark
    world.until(lambda: world.serving is heir)
    world.until(world.are_in_sync)


def test_an_older_copy_of_the_masters_folder_does_not_lead() -> None:
    """Its group.json knows nothing of the epoch that the record says it leads."""
    world, first = formed()
    second = next(host for host in world.hosts.values() if host is not first)
    sent(world, first, b"one")
    world.advance(1_000)
    former = first.disk.fork()
    switched(world, second)
    sent(world, second, b"two")
    switched(world, first)
    sent(world, first, b"three")
    world.until(world.are_in_sync)
    for host in world.hosts.values():
        host.kill()
    first.disk = former
    first.start()
    world.advance(20_000)
    assert world.serving is None
    assert "an older copy" in report_of(first).why
    for host in world.hosts.values():
        if host is not first:
            host.start()
    world.until(world.are_in_sync)
    new = world.serving
    assert new is not None
    assert new is not first
    assert bodies(new) == [b"one", b"two", b"three"]
    assert log_of(store_of(first)) == log_of(store_of(new))


def test_a_stranger_at_the_port_of_a_copy_does_not_stop_it() -> None:
    world, master = formed()
    copy = next(host for host in world.hosts.values() if host is not master)
    assert copy.broker is not None
    copy.kill()
    copy.start()
    copy.broker.meet(77, "10.9.9.9")  # before it has reached its master
    world.until(world.are_in_sync)
    sent(world, master, b"one")
    world.until(lambda: log_of(store_of(copy)) == log_of(store_of(master)))


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


def test_a_copy_that_lacks_what_was_acknowledged_since_its_report_is_not_taken_in() -> None:
    """It had everything when it reported last; the set is changed some time later."""
    world, master = formed()
    late = about_to_join(world, master)
    world.isolate(late.name)
    sent(world, master, b"one")
    assert master.member.proposal is None
    world.advance(1_000)
    assert world.record is not None
    assert late.name not in world.record.in_sync


def test_a_member_that_is_being_taken_in_is_waited_for() -> None:
    """The record that names it may be written already: it could take over."""
    world, master = formed()
    late = about_to_join(world, master)
    world.authority.is_reachable = False
    world.until(lambda: master.member.proposal)
    world.isolate(late.name)
    assert master.broker is not None
    reply = master.broker.connect().begin_send("orders", b"one")
    world.advance(1_000)
    assert not reply
    world.authority.is_reachable = True
    world.until(lambda: reply)


def test_a_group_that_is_too_small_refuses_until_another_member_is_in_sync() -> None:
    world, master = formed(min_copies=2)
    others = [host for host in world.hosts.values() if host is not master]
    for host in others:
        host.kill()
    world.until(lambda: world.record is not None and len(world.record.in_sync) == 1)
    world.advance(60_000)
    assert master.broker is not None
    reply = master.broker.connect().begin_send("orders", b"alone")
    assert reply.now.code == Response.SERVICE_NOT_AVAILABLE
    assert "escrowMinCopies=2" in str(reply.now.remark)
    others[0].start()
    world.until(lambda: world.record is not None and len(world.record.in_sync) == 2)
    sent(world, master, b"one")


def test_a_topic_that_is_made_while_messages_are_refused_is_there_when_that_was_answered() -> None:
    world, master = formed(min_copies=3)
    next(host for host in world.hosts.values() if host is not master).kill()
    world.until(lambda: "escrowMinCopies=3" in (store_of(master).refusal or ""))
    assert master.broker is not None
    reply = master.broker.connect().begin(Request.UPDATE_AND_CREATE_TOPIC, MADE)
    assert not reply, "the copy does not have it yet"
    world.until(lambda: reply)
    assert reply.now.code == Response.SUCCESS, reply.now.remark


def test_a_change_that_is_repeated_is_not_answered_before_the_first_one() -> None:
    """The second one changes nothing, and would say so while the copies still have the topic."""
    world, master = formed()
    sent(world, master, b"one")
    assert master.broker is not None
    changes = [
        master.broker.connect(host="127.0.0.1").begin(
            Request.DELETE_TOPIC_IN_BROKER, {"topic": "orders"}
        )
        for _ in range(2)
    ]
    assert not any(changes)
    world.until(lambda: all(changes))
    assert [reply.now.code for reply in changes] == [Response.SUCCESS] * 2


def test_users_are_the_masters_and_made_there() -> None:
    world, master = formed()
    copy = next(host for host in world.hosts.values() if host is not master)
    user = b'{"username":"anna","password":"secret-1","userType":"Normal"}'
    assert copy.broker is not None
    refused = copy.broker.connect().begin(Request.AUTH_CREATE_USER, {"username": "anna"}, user)
    assert refused.now.code == Response.SERVICE_NOT_AVAILABLE
    assert master.broker is not None
    made = master.broker.connect(host="127.0.0.1").begin(
        Request.AUTH_CREATE_USER, {"username": "anna"}, user
    )
    world.until(lambda: made)
    assert made.now.code == Response.SUCCESS, made.now.remark
    assert "anna" in copy.broker.core.assembly.access.users.book.users


def prepared(world: GroupWorld, caller: Caller, *, immunity: str = "") -> Half:
    """A half that was acknowledged."""
    reply = caller.begin_send(
        "orders", TRAN_MSG="true", PGROUP="PG", CHECK_IMMUNITY_TIME_IN_SECONDS=immunity
    )
    world.until(lambda: reply)
    ext = reply.now.ext or {}
    _, log_offset = parse_offset_id(ext["msgId"])
    return Half("orders", "PG", int(ext["queueOffset"]), log_offset, ext["transactionId"])


def halves_of(host: MemberHost) -> Halves:
    assert host.broker is not None
    return host.broker.core.assembly.transactions.engine.halves


def test_a_copy_that_takes_over_knows_already_what_is_pending() -> None:
    world, master = formed()
    assert master.broker is not None
    caller = master.broker.connect()
    first, second = prepared(world, caller), prepared(world, caller)
    end = caller.begin_end(first, SysFlag.COMMIT)
    world.until(lambda: end)
    world.advance(1_000)
    known = {name: halves_of(host) for name, host in world.hosts.items()}
    assert all(list(halves.pending) == [second.queue_offset] for halves in known.values())
    third = prepared(world, caller)  # which no copy has had time to read into its index
    master.kill()
    new = world.until(lambda: world.serving)
    assert halves_of(new) is known[new.name]
    assert list(halves_of(new).pending) == [second.queue_offset, third.queue_offset]
    assert new.broker is not None
    caller = new.broker.connect()
    ends = [caller.begin_end(half, SysFlag.COMMIT) for half in (first, second, third)]
    world.until(lambda: all(ends))
    assert [end.now.code for end in ends] == [Response.SUCCESS] * 3
    assert len(bodies(new)) == 3


def test_a_master_saves_no_progress_that_another_master_may_cut_off() -> None:
    world, master = formed()
    assert master.broker is not None
    caller = master.broker.connect()
    half = prepared(world, caller)
    world.authority.is_reachable = False
    world.isolate(master.name)
    end = caller.begin_end(half, SysFlag.COMMIT)
    world.advance(30_000)
    assert not end or end.now.code != Response.SUCCESS
    table = OffsetTable()
    table.load(master.disk.read("config/consumerOffset.json"))
    assert table.get(TRANSACTION_GROUP, Topic.OP, 0) <= 0
    assert table.get(TRANSACTION_GROUP, Topic.HALF, 0) <= 0


def test_a_message_that_is_larger_than_what_may_be_in_flight_is_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A copy reports whole records alone: of one that was half in flight it could report nothing,
    and would never have got the rest."""
    monkeypatch.setattr(copy_stream, "BATCH_SIZE", 4 * 1024)
    monkeypatch.setattr(copy_stream, "AHEAD_MAX", 16 * 1024)
    world, master = formed(names="ab")
    sent(world, master, b"small")
    for size in (15, 16, 17, 40):
        sent(world, master, bytes(size * 1024))
        world.advance(2_000)
        assert world.are_in_sync()
    sent(world, master, b"small")


def left_behind(world: GroupWorld, master: MemberHost) -> MemberHost:
    """A copy that is down, and lacks 100 KB."""
    late = next(host for host in world.hosts.values() if host is not master)
    late.kill()
    world.until(lambda: world.record is not None and late.name not in world.record.in_sync)
    for _ in range(20):
        sent(world, master, bytes(5_000))
    return late


def test_a_copy_that_is_behind_is_sent_the_log_at_a_rate() -> None:
    """Nobody waits for it, and others want the disks."""
    world, master = formed(names="ab")
    late = left_behind(world, master)
    world.advance(25_000)  # what was written long ago is no rate
    world.catch_up_rate = 20_000
    assert master.leader is not None
    master.leader._membership.catch_up_rate = world.catch_up_rate
    began_ms = world.now_ms
    late.start()
    world.until(world.are_in_sync)
    assert 4_500 < world.now_ms - began_ms < 7_000  # 100 KB
    sent(world, master, b"in sync, it is waited for, and sent all at once")


def test_a_copy_catches_up_although_more_is_written_than_it_may_be_sent() -> None:
    world, master = formed(names="ab")
    late = left_behind(world, master)
    assert master.leader is not None
    master.leader._membership.catch_up_rate = 1_000
    late.start()

    began_ms = world.now_ms
    while not world.are_in_sync():
        assert world.now_ms - began_ms < 20_000
        sent(world, master, bytes(2_000))
        world.advance(100)
