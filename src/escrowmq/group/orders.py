"""The orders of a group's member to its process, and its timeouts."""

from __future__ import annotations

import msgspec

from escrowmq.group.record import Record
from escrowmq.group.state import MemberState


class MemberTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """The timeouts of a member."""

    silence_ms: int = 3_000
    """A copy that is behind for this long is no longer in sync."""
    takeover_ms: int = 3_500
    """A member in sync takes over when its master has been silent for this long."""
    leader_look_ms: int = 5_000
    follower_look_ms: int = 10_000
    search_ms: int = 1_000
    """How often a member without a master reads the record."""


class Keep(msgspec.Struct, frozen=True):
    """Store the state durably."""

    state: MemberState


class Read(msgspec.Struct, frozen=True):
    """Read the record; then call `record_read`, or `authority_failed` without an answer."""


class Write(msgspec.Struct, frozen=True):
    """Write the record if it has that revision; then `written`, `refused` or `authority_failed`."""

    record: Record
    revision: str


class Follow(msgspec.Struct, frozen=True):
    """Stop being master, if it is. Copy from the master of an epoch; from no broker without one."""

    record: Record | None
    why: str


class Lead(msgspec.Struct, frozen=True):
    """Stop copying, and call `begin_epoch` with the end of the log."""

    record: Record


Order = Keep | Read | Write | Follow | Lead
