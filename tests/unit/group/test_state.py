from __future__ import annotations

import pytest

from escrowmq.errors import StorageError
from escrowmq.group.record import GroupRecord
from escrowmq.group.state import MemberState, Proposal, decode_state, state_after_start

STATE = MemberState(member="a", incarnation="one", group="g", seen=4, boot="b1", is_open=True)


def test_it_is_read_as_it_was_kept() -> None:
    record = GroupRecord(
        group="g", epoch=5, master="a", address="h:1", in_sync={"a": "one"}, mark="m"
    )
    state = MemberState(
        member="a", incarnation="one", seen=4, proposal=Proposal("7", record), history=((1, 0),)
    )
    assert decode_state(state.encode()) == state
    assert state.promised_epoch == 5


def test_damage_is_no_promise() -> None:
    with pytest.raises(StorageError, match="what this member has promised"):
        decode_state(STATE.encode()[:-5])


@pytest.mark.parametrize(
    ("is_open", "boot", "loses_nothing", "is_other"),
    [
        (True, "b1", False, False),  # killed
        (True, "b2", False, True),  # power failed
        (True, "", False, True),  # nobody knows
        (True, "b2", True, False),  # each report was durable
        (False, "b2", False, False),  # closed, and the machine restarted
    ],
)
def test_who_may_have_lost_something_is_another(
    is_open: bool, boot: str, loses_nothing: bool, is_other: bool
) -> None:
    before = MemberState(member="a", incarnation="one", boot="b1", is_open=is_open)
    after = state_after_start(before, boot=boot, loses_nothing=loses_nothing, fresh="two")
    assert after.incarnation == ("two" if is_other else "one")
    assert after.is_open
    assert after.boot == boot
