"""What is decided about a batch of Spark stays decided at the next master, also when the log does
not keep the decision any more."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from escrowmq.base.codes import Request, Response
from escrowmq.testing.disk import SimDisk
from escrowmq.txn.epoch_decision import PATH
from tests.harness.caller import Pending
from tests.harness.group import GroupWorld, MemberHost

from .test_deleted_topics import formed
from .test_failover import sent, store_of

HOURS_MS = 3_600_000


def asked(world: GroupWorld, host: MemberHost, code: int, **more: object) -> dict[str, Any]:
    assert host.broker is not None
    wish = msgspec.json.encode({"group": "PG", "epoch": "q/5", **more})
    reply = host.broker.connect().begin(code, body=wish)
    world.until(lambda: reply)
    assert reply.now.code == Response.SUCCESS, reply.now
    found: dict[str, Any] = msgspec.json.decode(reply.now.body)
    return found


def half(world: GroupWorld, host: MemberHost, token: str) -> Pending:
    """A message of an attempt at the batch."""
    assert host.broker is not None
    reply = host.broker.connect().begin_send(
        "orders", b"row", TRAN_MSG="true", PGROUP="PG", UNIQ_KEY=f"K{token}",
        escrowEpoch="q/5", escrowToken=token,
    )  # fmt: skip
    world.until(lambda: reply)
    return reply


def forget_old_files(world: GroupWorld, host: MemberHost) -> None:
    """The log's first files are as old as retention allows."""
    store = store_of(host)
    assert host.broker is not None
    host.disk.now_ms = 0
    store.retention.request_cleanup()
    while store.retention.clean_up(host.broker.now_ms + 1_000 * HOURS_MS):
        pass
    assert store.min_log_offset > 0
    low, end = store.bounds("rmq_sys_ESCROW_DECISIONS", 0)
    assert low == end > 0
    world.advance(2_000)


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_batch_is_not_decided_again_by_the_next_master(is_empty: bool) -> None:
    """The copy was there all the time, or is a replaced machine."""
    world, master, copy = formed()
    sent(world, master, b"one")
    assert half(world, master, "a").now.code == Response.SUCCESS
    assert asked(world, master, Request.ESCROW_DECIDE, tokens={"a": 1})["decided"] == "now"
    for _ in range(200):
        sent(world, master, bytes(2_000))
    world.advance(40_000)
    for host in (master, copy):
        forget_old_files(world, host)
    if is_empty:
        copy.kill()
        world.until(lambda: world.record is not None and copy.name not in world.record.in_sync)
        copy.disk = SimDisk()
        copy.start()
        world.until(world.are_in_sync)
    assert asked(world, master, Request.ESCROW_DECISION)["decided"] == "before"
    assert copy.disk.read(PATH) == master.disk.read(PATH)
    master.kill()
    world.until(lambda: world.serving is copy)
    assert asked(world, copy, Request.ESCROW_DECISION)["decided"] == "before"
    assert half(world, copy, "b").now.code != Response.SUCCESS
