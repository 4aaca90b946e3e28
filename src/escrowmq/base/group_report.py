"""A member's report about itself and the other members of its group."""

from __future__ import annotations

import msgspec


class CopyReport(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """A copy, as its master knows it."""

    member: str
    incarnation: str
    address: str
    """From where it is connected."""
    end: int
    """Up to this log offset it has everything."""
    behind: int
    """Bytes that it lacks."""


class FaultReport(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """A fault that a member injected into itself in a drill."""

    at_ms: int
    fault: str
    span_ms: int
    """How long it was to last; 0 where that is not said."""
    who: str
    """Who asked for it: an account or an address."""
    drill: str


class GroupReport(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """One member's view. Unknown numbers are -1, unknown texts empty."""

    cluster: str
    broker: str
    member: str
    incarnation: str
    group: str
    epoch: int
    """The epoch that it knows of."""
    master: str
    master_address: str
    """Where clients reach the master."""
    in_sync: list[str]
    """The members that have everything that was acknowledged."""
    members: list[str]
    """All that have ever been in sync."""
    numbers: dict[str, int] = {}
    """The brokerId of each."""
    epochs: list[tuple[int, int]] = []
    """Which epochs wrote this member's log, and from which offset on."""
    is_master: bool
    """Whether it serves as master of this epoch."""
    end: int
    """Where its log ends."""
    confirmed: int
    """Up to this log offset everything is acknowledged, and seen by consumers."""
    min_copies: int
    why: str
    """Of a member that neither serves nor copies: why."""
    authority: str
    authority_fault: str
    """Why the authority could not be asked last; empty while it answers."""
    refusal: str = ""
    """Of a master: why it takes no messages; empty while it does."""
    copies: list[CopyReport] = []
    """Of a master: who is connected."""
    faults: list[FaultReport] = []
    """What drills did to this member, the newest last."""
