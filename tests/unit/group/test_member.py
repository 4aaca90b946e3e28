"""When a member looks at the record; what it does is tried by worlds in tests/group."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from escrowmq.base.authority import VersionedRecord
from escrowmq.group.member import GroupMember
from escrowmq.group.member_timeouts import MemberTimeouts
from escrowmq.group.orders import BecomeMaster, FollowMaster, KeepState, ReadRecord, WriteRecord
from escrowmq.group.record import GroupRecord
from escrowmq.group.state import MemberState, Proposal, settling_proposal


def member_in(state: MemberState, *, mark: str = "m", has_log: bool = False) -> GroupMember:
    return GroupMember(
        state,
        MemberTimeouts(),
        mark=lambda: mark,
        address="b:1",
        client_address="b:2",
        has_log=has_log,
        log=lambda _: None,
        jitter_ms=0,
        now_ms=0,
    )


def copy(in_sync: dict[str, str]) -> tuple[GroupMember, VersionedRecord]:
    """Member b, which follows a, and the record."""
    record = GroupRecord(
        group="g",
        epoch=1,
        master="a",
        address="a:1",
        in_sync=in_sync,
        numbers={"a": 1, "b": 2},
        mark="m",
    )
    member = member_in(MemberState(member="b", incarnation="j", group="g", seen=1))
    return member, VersionedRecord(record.encode(), "1")


def test_a_copy_that_was_handed_the_group_takes_over_although_the_master_is_heard() -> None:
    member, found = copy({"a": "i"})
    member.wake(0)
    member.record_read(found, 0)
    _, found = copy({"a": "i", "b": "j"})  # it has not read yet that it is in sync
    member.take_orders()
    member.take_over_now(1_000)
    member.wake(1_000)
    assert [type(order) for order in member.take_orders()] == [ReadRecord]
    member.note_master_alive(1_001)  # a sign of life, sent before its word or after it
    member.record_read(found, 1_002)
    assert [type(order) for order in member.take_orders()] == [FollowMaster, KeepState, WriteRecord]


@pytest.mark.parametrize("is_handed", [True, False])
def test_a_copy_that_may_take_over_asks_again_with_the_record_as_it_is(is_handed: bool) -> None:
    member, found = copy({"a": "i", "b": "j"})
    member.wake(0)
    member.record_read(found, 0)
    member.take_orders()
    if is_handed:
        member.take_over_now(1_000)
    else:
        member.note_master_failed(1_000)
    member.wake(1_000)
    assert [type(order) for order in member.take_orders()] == [ReadRecord]
    member.record_read(found, 1_000)
    assert [type(order) for order in member.take_orders()] == [FollowMaster, KeepState, WriteRecord]
    member.write_refused(1_001)  # the master had taken in a third member
    assert [type(order) for order in member.take_orders()] == [ReadRecord]
    changed = copy({"a": "i", "b": "j", "c": "k"})[1]
    member.record_read(VersionedRecord(changed.value, "2"), 1_002)
    *_, last = member.take_orders()
    assert isinstance(last, WriteRecord)
    assert last.revision == "2"
    assert last.record.in_sync == {"b": "j", "c": "k"}


def test_a_master_that_goes_on_is_not_replaced_by_what_it_said_long_ago() -> None:
    member, found = copy({"a": "i"})
    member.wake(0)
    member.record_read(found, 0)
    _, found = copy({"a": "i", "b": "j"})  # it has not read yet that it is in sync
    member.take_over_now(1_000)
    member.wake(1_000)
    member.authority_failed("no answer", 3_000)
    member.note_master_alive(5_000)
    member.take_orders()
    member.wake(5_000)
    member.record_read(found, 5_001)
    assert not [order for order in member.take_orders() if isinstance(order, WriteRecord)]


def test_a_copy_looks_often_for_another_master_while_its_own_is_silent() -> None:
    member, found = copy({"a": "i"})
    looks: list[int] = []
    for now_ms in range(0, 20_000, 100):
        if now_ms < 10_000:
            member.note_master_alive(now_ms)
        member.wake(now_ms)
        if any(isinstance(order, ReadRecord) for order in member.take_orders()):
            looks.append(now_ms)
            member.record_read(found, now_ms)
    assert len([at for at in looks if at <= 11_000]) <= 3
    assert len([at for at in looks if 11_500 <= at < 15_000]) >= 6


@pytest.mark.parametrize("has_lost", [False, True])
def test_a_member_that_lost_power_does_not_ask_to_lead_any_more(has_lost: bool) -> None:
    """World 201995: it wrote its old proposal again, which deposed a master that served; and could
    not serve itself, since it was no longer the incarnation that had asked."""
    served = GroupRecord(
        group="g", epoch=3, master="a", address="a:1", in_sync={"a": "i", "b": "j"},
        numbers={"a": 1, "b": 2}, mark="m",
    )  # fmt: skip
    claim = replace(served, epoch=4, master="b", address="b:1", in_sync={"b": "j"}, mark="n")
    incarnation = "k" if has_lost else "j"
    state = MemberState(
        member="b", incarnation=incarnation, group="g", seen=3, proposal=Proposal("7", claim)
    )
    member = member_in(state, mark="new", has_log=True)
    member.record_read(VersionedRecord(served.encode(), "7"), 0)
    (order,) = [order for order in member.take_orders() if isinstance(order, WriteRecord)]
    assert order.revision == "7"
    assert order.record == (replace(served, mark="new") if has_lost else claim)
    member.write_succeeded(VersionedRecord(order.record.encode(), "8"), 1)
    orders = [type(one) for one in member.take_orders()]
    assert (BecomeMaster in orders) is not has_lost
    assert member.state.proposal is None
    if has_lost:  # it follows the master that serves
        member.wake(2)
        member.record_read(VersionedRecord(order.record.encode(), "8"), 3)
        assert member.state.seen == 3
        assert any(
            isinstance(one, FollowMaster) and one.record is not None and one.record.master == "a"
            for one in member.take_orders()
        )


@pytest.mark.parametrize("value", [b"", b"{not a record"])
def test_a_claim_is_made_again_where_there_is_no_record_to_keep(value: bytes) -> None:
    claim = GroupRecord(
        group="g",
        epoch=1,
        master="b",
        address="b:1",
        in_sync={"b": "j"},
        numbers={"b": 1},
        mark="m",
    )
    state = MemberState(member="b", incarnation="k", proposal=Proposal("7", claim))
    assert (
        settling_proposal(
            Proposal("7", claim), VersionedRecord(value, "7"), state, mark=str, may_lag=False
        ).record
        == claim
    )


def rebuilding() -> tuple[GroupMember, VersionedRecord]:
    """Member b, which is not in sync, and was ordered to lead all the same at 1 s."""
    member, found = copy({"a": "i"})
    member.record_read(found, 0)
    member.take_over_now(1_000, is_forced=True)
    member.wake(1_000)
    assert isinstance(member.take_orders()[-1], ReadRecord)
    return member, found


def writes_of(member: GroupMember) -> list[GroupRecord]:
    return [one.record for one in member.take_orders() if isinstance(one, WriteRecord)]


@pytest.mark.parametrize(("answered_ms", "is_done"), [(9_000, True), (60_000, False)])
def test_an_order_to_rebuild_is_forgotten_when_its_command_has_given_up(
    answered_ms: int, is_done: bool
) -> None:
    member, found = rebuilding()
    member.authority_failed("no answer", 2_000)
    member.record_read(found, answered_ms)
    assert [record.master for record in writes_of(member)] == ["b"] * is_done


def test_an_order_to_rebuild_is_forgotten_when_the_master_gives_this_member_its_log() -> None:
    member, found = rebuilding()
    member.authority_failed("no answer", 2_000)
    member.adopt_history(1, ())
    member.record_read(found, 3_000)
    assert not writes_of(member)


@pytest.mark.parametrize(("answered_ms", "is_done"), [(9_000, True), (60_000, False)])
def test_a_rebuild_that_was_being_written_is_taken_back_when_it_is_too_late(
    answered_ms: int, is_done: bool
) -> None:
    member, found = rebuilding()
    member.record_read(found, 1_001)
    assert [record.master for record in writes_of(member)] == ["b"]
    member.authority_failed("no answer", 2_000)
    member.record_read(found, answered_ms)
    (written,) = writes_of(member)
    assert written.master == ("b" if is_done else "a")
    assert written.mark == "m"
    member.write_succeeded(VersionedRecord(written.encode(), "2"), answered_ms + 1)
    assert member.state.proposal is None
    assert (member.state.promised_epoch > 1) is is_done
    assert any(isinstance(one, BecomeMaster) for one in member.take_orders()) is is_done


def test_a_rebuild_that_was_being_written_is_taken_back_after_a_restart() -> None:
    member, found = rebuilding()
    member.record_read(found, 1_001)
    again = member_in(member.state, mark="new", has_log=True)
    again.record_read(found, 0)
    assert [(one.master, one.mark) for one in writes_of(again)] == [("a", "new")]


@pytest.mark.parametrize("cause", ["handed", "failed", "silent"])
def test_a_member_promises_nothing_while_the_authority_does_not_answer(cause: str) -> None:
    """It could not write the epoch that it promises, and takes nothing from a master that is
    back."""
    member, found = copy({"a": "i", "b": "j"})
    member.wake(0)
    member.record_read(found, 0)
    member.take_orders()
    at_ms = 9_000 if cause == "silent" else 1_000  # it last read long ago
    if cause == "handed":
        member.take_over_now(at_ms)
    elif cause == "failed":
        member.note_master_failed(at_ms)
    for now_ms in range(at_ms, at_ms + 2_000, 100):
        member.wake(now_ms)
        for order in member.take_orders():
            assert isinstance(order, ReadRecord)
            member.authority_failed("no answer", now_ms)
    assert member.state.promised_epoch == 1
    member.record_read(found, at_ms + 2_000)
    assert [type(order) for order in member.take_orders()] == [FollowMaster, KeepState, WriteRecord]


def test_a_master_whose_broker_is_not_open_yet_removes_nobody_from_the_set() -> None:
    """If it never opens, they have to take over."""
    member, found = copy({"a": "i", "b": "j"})
    member.record_read(found, 0)
    member.note_master_failed(1)
    member.wake(1)
    member.record_read(VersionedRecord(found.value, "1"), 2)
    (record,) = writes_of(member)
    asked = replace(record, in_sync={"b": "j", "c": "k"})
    member.proposal = Proposal("1", asked)
    member.write_succeeded(VersionedRecord(asked.encode(), "2"), 3)
    member.begin_epoch(0, 4)
    written: dict[int, GroupRecord] = {}
    for now_ms in range(100, 25_000, 100):
        if now_ms == 20_000:
            member.note_opened_as_master(now_ms)
        member.wake(now_ms)
        for order in member.take_orders():
            if isinstance(order, WriteRecord):
                written[now_ms] = order.record
            elif isinstance(order, ReadRecord):
                member.record_read(VersionedRecord(asked.encode(), "2"), now_ms)
    assert [(at, record.in_sync) for at, record in written.items()] == [(23_100, {"b": "j"})]


OTHER_FORMAT = VersionedRecord(b'{"format":2,"leader":"c","terms":[5]}', "9")


def test_a_master_steps_down_when_a_newer_release_has_written_the_record() -> None:
    """It cannot read who has replaced it, and must not write its own record over that."""
    member, found = copy({"a": "i", "b": "j"})
    member.record_read(found, 0)
    member.note_master_failed(1)
    member.wake(1)
    member.record_read(found, 2)
    (record,) = writes_of(member)
    member.write_succeeded(VersionedRecord(record.encode(), "2"), 3)
    member.begin_epoch(0, 4)
    member.note_opened_as_master(5)
    member.take_orders()
    member.read_soon(6)
    member.wake(6)
    member.record_read(OTHER_FORMAT, 7)
    assert not member.is_leader
    assert "format 2" in member.why
    reads, follows = [one for one in member.take_orders() if not isinstance(one, KeepState)]
    assert isinstance(reads, ReadRecord)
    assert follows == FollowMaster(None, member.why)


def test_a_rebuild_does_not_replace_what_a_newer_release_has_written() -> None:
    member, _ = rebuilding()
    member.record_read(OTHER_FORMAT, 1_001)
    assert not writes_of(member)
    assert "upgrade this broker" in member.why


@pytest.mark.parametrize("is_certain", [True, False])
def test_a_member_whose_name_another_process_uses_does_not_take_over_until_it_is_let_in(
    is_certain: bool,
) -> None:
    member, found = copy({"a": "i", "b": "j"})
    member.record_read(found, 0)
    member.note_duplicate(is_certain=is_certain)
    member.note_duplicate(is_certain=is_certain)
    member.note_master_failed(1)
    member.wake(1)
    member.record_read(found, 2)
    assert not writes_of(member)
    assert (member.state.incarnation == "j") is not is_certain
    member.adopt_history(1, ((1, 0),))
    member.note_master_failed(3)
    member.wake(3)
    member.record_read(found, 4)
    assert bool(writes_of(member)) is not is_certain
