"""The orders that a group's member gives to its process."""

from __future__ import annotations

import msgspec

from escrowmq.group.record import GroupRecord
from escrowmq.group.state import MemberState


class KeepState(msgspec.Struct, frozen=True):
    """Order: store the state durably."""

    state: MemberState


class ReadRecord(msgspec.Struct, frozen=True):
    """Order: read the record; then call `record_read`, or `authority_failed` if there is no
    answer."""


class WriteRecord(msgspec.Struct, frozen=True):
    """Order: write the record if it still has this revision. Then call `written`, `refused` or
    `authority_failed`."""

    record: GroupRecord
    revision: str


class FollowMaster(msgspec.Struct, frozen=True):
    """Order: stop being master. Copy from the master of an epoch, or from no broker if there is
    none."""

    record: GroupRecord | None
    why: str


class BecomeMaster(msgspec.Struct, frozen=True):
    """Order: stop copying, and call `begin_epoch` with the end of the log."""

    record: GroupRecord


Order = KeepState | ReadRecord | WriteRecord | FollowMaster | BecomeMaster
