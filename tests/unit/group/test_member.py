"""When a member looks at the record; what it does is tried by worlds in tests/group."""

from __future__ import annotations

from escrowmq.base.authority import Versioned
from escrowmq.group.member import Member
from escrowmq.group.orders import Read, Terms
from escrowmq.group.record import Record
from escrowmq.group.state import MemberState


def test_a_copy_looks_often_for_another_master_while_its_own_is_silent() -> None:
    record = Record(
        group="g",
        epoch=1,
        master="a",
        address="a:1",
        in_sync={"a": "i"},
        numbers={"a": 1, "b": 2},
        mark="m",
    ).encode()
    member = Member(
        MemberState(member="b", incarnation="j", group="g", seen=1),
        Terms(),
        mark=lambda: "m",
        address="b:1",
        client_address="b:2",
        has_log=False,
        log=lambda _: None,
        jitter_ms=0,
        now_ms=0,
    )
    looks: list[int] = []
    for now_ms in range(0, 20_000, 100):
        if now_ms < 10_000:
            member.master_heard(now_ms)
        member.wake(now_ms)
        if any(isinstance(order, Read) for order in member.take()):
            looks.append(now_ms)
            member.heard(Versioned(record, "1"), now_ms)
    assert len([at for at in looks if at <= 11_000]) <= 3
    assert len([at for at in looks if 11_500 <= at < 15_000]) >= 6
