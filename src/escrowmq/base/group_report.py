"""A member's report about itself and the other members of its group."""

from __future__ import annotations

import msgspec


class CopyReport(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """A copy of the group's log, as the master sees it."""

    member: str
    incarnation: str
    address: str
    """The address from which it is connected."""
    end: int
    """The log offset up to which it has everything."""
    behind: int
    """How many bytes of the master's log the copy lacks."""


class FaultReport(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """A fault that a member injected into itself in a drill."""

    at_ms: int
    fault: str
    span_ms: int
    """How long the fault was to last, in ms; 0 if that was not given."""
    who: str
    """The account or address that requested it."""
    drill: str


class GroupReport(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """The state of a group as one member sees it. Unknown numbers are -1, unknown texts empty."""

    cluster: str
    broker: str
    member: str
    incarnation: str
    group: str
    epoch: int
    """The epoch that this member knows."""
    master: str
    master_address: str
    """The address at which clients reach the master."""
    in_sync: list[str]
    """The members that have everything that was acknowledged."""
    members: list[str]
    """All members that have ever been in sync."""
    numbers: dict[str, int] = {}
    """The brokerId of each member, by member."""
    epochs: list[tuple[int, int]] = []
    """The epochs that wrote this member's log, each with the log offset at which it began."""
    is_master: bool
    """Whether it serves as master of this epoch."""
    end: int
    """The log offset at which this member's log ends."""
    confirmed: int
    """The log offset up to which everything is acknowledged, and visible to consumers."""
    min_copies: int
    why: str
    """Why this member neither serves as master nor copies one; empty if it does."""
    authority: str
    authority_fault: str
    """Why the last request to the authority failed; empty while it answers."""
    refusal: str = ""
    """For a master: why it accepts no messages; empty while it does."""
    copies: list[CopyReport] = []
    """For a master: the connected copies."""
    faults: list[FaultReport] = []
    """The faults that drills injected into this member, the newest last."""
