"""Bugs to plant in a group: each breaks one rule of the protocol (docs/replication.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from escrowmq.broker.replication import group_copy, table_frames, table_marks
from escrowmq.broker.replication.group_master import GroupMaster
from escrowmq.group import copy_stream, tables
from escrowmq.group.history import History
from escrowmq.group.member import GroupMember
from escrowmq.group.record import GroupRecord
from escrowmq.group.state import MemberState
from escrowmq.store.log_ends import LogEnds
from tests.harness import group as harness

Plant = Callable[[pytest.MonkeyPatch], None]


def growth_without_all(patch: pytest.MonkeyPatch) -> None:
    """A copy is taken into the set as soon as it is connected."""
    patch.setattr(GroupMaster, "_has_all_data", lambda *_: True)


def shrinking_counted_early(patch: pytest.MonkeyPatch) -> None:
    """A smaller set is in force before it is written."""
    propose = GroupMember._propose

    def spoilt(member: GroupMember, record: GroupRecord) -> None:
        propose(member, record)
        member.record = record

    patch.setattr(GroupMember, "_propose", spoilt)


def answers_at_once(patch: pytest.MonkeyPatch) -> None:
    """Senders do not wait for the copies."""

    def spoilt(ends: LogEnds, *, timeout_ms: int) -> None:
        del timeout_ms
        ends._hides_unconfirmed = True
        ends._update_ends()

    patch.setattr(LogEnds, "lead_group", spoilt)


def unconfirmed_is_seen(patch: pytest.MonkeyPatch) -> None:
    """Consumers are given what the copies have not confirmed."""

    def spoilt(ends: LogEnds, *, timeout_ms: int) -> None:
        ends.wait_for_copies(timeout_ms=timeout_ms)

    patch.setattr(LogEnds, "lead_group", spoilt)


def confirmed_counts_one(patch: pytest.MonkeyPatch) -> None:
    """What one copy has counts, whichever others are in the set."""

    def spoilt(master: GroupMaster, member: str, incarnation: str) -> int:
        del member, incarnation
        return max((one.acknowledged for one in master._streams.by_peer.values()), default=0)

    patch.setattr(GroupMaster, "_acknowledged_end", spoilt)


def tail_not_cut(patch: pytest.MonkeyPatch) -> None:
    """Logs count as the same as far as both go."""

    def spoilt(_: History, end: int, __: History, their_end: int) -> int:
        return min(end, their_end)

    patch.setattr(copy_stream, "common_end", spoilt)


def incarnation_kept(patch: pytest.MonkeyPatch) -> None:
    """A member that lost power is taken for one that has everything."""

    def spoilt(state: MemberState, **_: Any) -> MemberState:
        return msgspec.structs.replace(state, is_open=True)

    patch.setattr(harness, "state_after_start", spoilt)


def damage_is_not_told(patch: pytest.MonkeyPatch) -> None:
    """A member whose disk has damaged its log is taken for one that has everything."""
    patch.setattr(GroupMember, "note_log_loss", lambda *_: None)


def left_out_serves(patch: pytest.MonkeyPatch) -> None:
    """A member takes over although it is not in the set."""
    patch.setattr(GroupRecord, "is_in_sync", lambda *_: True)


def keys_not_copied(patch: pytest.MonkeyPatch) -> None:
    """The keys that sign transaction ids stay at the master that made them."""
    fewer = tables.COPIED - {"config/escrowKeys.json"}
    for module in (tables, table_marks, table_frames, group_copy, copy_stream):
        if hasattr(module, "COPIED"):
            patch.setattr(module, "COPIED", fewer)


def replaced_master_confirms(patch: pytest.MonkeyPatch) -> None:
    """A master that nobody copies from any more goes on alone, without asking the authority."""

    def spoilt(member: GroupMember) -> dict[str, str]:
        return {}

    patch.setattr(GroupMember, "needed_members", property(spoilt))


PLANTS: dict[Plant, int] = {
    growth_without_all: 124,
    shrinking_counted_early: 1023,
    answers_at_once: 6,
    unconfirmed_is_seen: 10,
    confirmed_counts_one: 263,
    tail_not_cut: 7,
    incarnation_kept: 1057,
    damage_is_not_told: 3,
    left_out_serves: 1,
    keys_not_copied: 6,
    replaced_master_confirms: 5,
}
"""Each with the first world that finds it: other code finds it in another one, soon after or long
before."""
