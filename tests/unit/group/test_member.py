"""When a member looks at the record; what it does is tried by worlds in tests/group."""

from __future__ import annotations

import pytest

from escrowmq.base.authority import Versioned
from escrowmq.group.member import Member
from escrowmq.group.orders import Follow, Keep, Read, Terms, Write
from escrowmq.group.record import Record
from escrowmq.group.state import MemberState


def copy(in_sync: dict[str, str]) -> tuple[Member, Versioned]:
    """Member b, which follows a, and the record."""
    record = Record(
        group="g",
        epoch=1,
        master="a",
        address="a:1",
        in_sync=in_sync,
        numbers={"a": 1, "b": 2},
        mark="m",
    )
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
    return member, Versioned(record.encode(), "1")


def test_a_copy_that_was_handed_the_group_takes_over_although_the_master_is_heard() -> None:
    member, found = copy({"a": "i"})
    member.wake(0)
    member.heard(found, 0)
    _, found = copy({"a": "i", "b": "j"})  # it has not read yet that it is in sync
    member.take()
    member.take_over_now(1_000)
    member.wake(1_000)
    assert [type(order) for order in member.take()] == [Read]
    member.master_heard(1_001)  # a sign of life, sent before its word or after it
    member.heard(found, 1_002)
    assert [type(order) for order in member.take()] == [Follow, Keep, Write]


@pytest.mark.parametrize("is_handed", [True, False])
def test_a_copy_that_may_take_over_asks_again_with_the_record_as_it_is(is_handed: bool) -> None:
    member, found = copy({"a": "i", "b": "j"})
    member.wake(0)
    member.heard(found, 0)
    member.take()
    if is_handed:
        member.take_over_now(1_000)
    else:
        member.master_gone(1_000)
    member.wake(1_000)
    assert [type(order) for order in member.take()] == [Follow, Keep, Write]
    member.refused(1_001)  # the master had taken in a third member
    assert [type(order) for order in member.take()] == [Read]
    changed = copy({"a": "i", "b": "j", "c": "k"})[1]
    member.heard(Versioned(changed.value, "2"), 1_002)
    *_, last = member.take()
    assert isinstance(last, Write)
    assert last.revision == "2"
    assert last.record.in_sync == {"b": "j", "c": "k"}


def test_a_master_that_goes_on_is_not_replaced_by_what_it_said_long_ago() -> None:
    member, found = copy({"a": "i"})
    member.wake(0)
    member.heard(found, 0)
    _, found = copy({"a": "i", "b": "j"})  # it has not read yet that it is in sync
    member.take_over_now(1_000)
    member.wake(1_000)
    member.unheard("no answer", 3_000)
    member.master_heard(5_000)
    member.take()
    member.wake(5_000)
    member.heard(found, 5_001)
    assert not [order for order in member.take() if isinstance(order, Write)]


def test_a_copy_looks_often_for_another_master_while_its_own_is_silent() -> None:
    member, found = copy({"a": "i"})
    looks: list[int] = []
    for now_ms in range(0, 20_000, 100):
        if now_ms < 10_000:
            member.master_heard(now_ms)
        member.wake(now_ms)
        if any(isinstance(order, Read) for order in member.take()):
            looks.append(now_ms)
            member.heard(found, now_ms)
    assert len([at for at in looks if at <= 11_000]) <= 3
    assert len([at for at in looks if 11_500 <= at < 15_000]) >= 6
