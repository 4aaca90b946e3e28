"""Members of a group whose log does not begin at 0, because its first files were deleted."""

from __future__ import annotations

from functools import partial

from escrowmq.base.codes import Request, Response
from escrowmq.base.message import SysFlag
from escrowmq.codec.ids import parse_offset_id
from escrowmq.testing.disk import SimDisk
from tests.harness.caller import Half
from tests.harness.group import GroupWorld, MemberHost
from tests.harness.pair import queues_of

from .test_failover import formed, store_of


def prepared(world: GroupWorld, master: MemberHost) -> Half:
    assert master.broker is not None
    begun = master.broker.connect().begin_send(
        "orders", b"paid", TRAN_MSG="true", PGROUP="PG", UNIQ_KEY="K"
    )
    world.until(partial(bool, begun))
    ext = begun.now.ext or {}
    place = parse_offset_id(ext["msgId"])[1]
    return Half("orders", "PG", int(ext["queueOffset"]), place, ext["transactionId"])


def sent(world: GroupWorld, host: MemberHost, topic: str, body: bytes) -> int:
    """The queue offset of a message."""
    assert host.broker is not None
    reply = host.broker.connect().begin_send(topic, body)
    world.until(partial(bool, reply))
    assert reply.now.code == Response.SUCCESS, reply.now.remark
    return int((reply.now.ext or {})["queueOffset"])


def without_first_files() -> tuple[GroupWorld, MemberHost, MemberHost]:
    """A group of two whose master has deleted files, the master, and a member that is new."""
    world, master = formed()
    late = next(host for host in world.hosts.values() if host is not master)
    late.kill()
    late.disk = SimDisk()
    assert master.broker is not None
    caller = master.broker.connect()
    for number in range(3):
        sent(world, master, "seldom", b"%d" % number)
    for number in range(6):
        half = prepared(world, master)
        end = caller.begin_end(half, SysFlag.ROLLBACK)
        world.until(partial(bool, end))
        sent(world, master, "orders", b"%d" % number * 20_000)
    master.age_log()
    world.until(lambda: store_of(master).min_log_offset)
    return world, master, late


def make_master(world: GroupWorld, master: MemberHost, late: MemberHost) -> None:
    late.start()
    world.until(world.are_in_sync)
    assert store_of(late).min_log_offset > 0
    assert master.broker is not None
    master.broker.connect().begin(Request.ESCROW_GROUP_SWITCH, {"member": late.name})
    world.until(lambda: world.serving is late)


def test_a_member_that_joins_then_knows_what_is_pending_when_it_takes_over() -> None:
    world, master, late = without_first_files()
    half = prepared(world, master)
    make_master(world, master, late)
    assert late.broker is not None
    end = late.broker.connect().begin_end(half, SysFlag.COMMIT)
    world.until(partial(bool, end))
    assert end.now.code == Response.SUCCESS, end.now.remark


def test_a_queue_whose_messages_are_all_deleted_goes_on_where_it_was_at_a_new_member() -> None:
    world, master, late = without_first_files()
    assert store_of(master).bounds("seldom", 0) == (3, 3)
    make_master(world, master, late)
    assert store_of(late).bounds("seldom", 0) == (3, 3)
    late.kill()
    world.until(lambda: world.serving)
    late.start()
    world.until(world.are_in_sync)
    serving = world.serving
    assert serving is not None
    assert store_of(late).bounds("seldom", 0) == (3, 3)
    assert sent(world, serving, "seldom", b"3") == 3
    world.until(world.are_in_sync)
    assert len({repr(queues_of(store_of(host))["seldom", 0]) for host in (master, late)}) == 1
    assert store_of(late).bounds("seldom", 0) == (3, 4)
