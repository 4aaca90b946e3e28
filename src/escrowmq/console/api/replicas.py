"""Replicas of brokers: show which is the master and which are in sync, and change the master."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from escrowmq.client.admin.previews import replicas as previews
from escrowmq.client.admin.replicas import Replica, ReplicaGroup
from escrowmq.console.answers import Answer
from escrowmq.console.operations import Caller, Change, ChangeParameters, Operation

_WELL: Final = ("master", "in sync")


class ReplicasWanted(msgspec.Struct, kw_only=True):
    """Names the brokers to list; all if no name is given."""

    broker: Annotated[str, Meta(description="only the brokers of this name")] = ""


class MemberShown(Answer, kw_only=True):
    """One of the brokers with the same name. Fields are null if unknown."""

    name: str
    """The member's name, or the broker's id."""
    address: str
    role: str
    """master, in sync, behind, out (it neither serves nor copies) or not reached."""
    end: int | None
    """The offset at which its log ends."""
    behind: int | None
    """Bytes of the master's log that it lacks."""
    incarnation: str
    note: str
    """What is wrong with this member, in words; empty if nothing is."""


class ReplicasShown(Answer, kw_only=True):
    """All brokers that share one name."""

    broker: str
    cluster: str
    kind: Literal["group", "pair", "alone"]
    """group: it fails over by an authority; pair: a master with slaves."""
    master: str | None
    """The member that serves as master; null if none does."""
    master_address: str
    epoch: int | None
    """For a group: a number that grows with each change of the master."""
    confirmed: int | None
    """For a group: the log offset up to which all members in sync have everything."""
    in_sync: list[str]
    min_copies: int
    """While fewer members than this are in sync, the group accepts no messages."""
    is_degraded: bool
    """Whether a member is not in sync, or there is no master."""
    authority: str
    notes: list[str]
    """What is wrong with these brokers, in words."""
    members: list[MemberShown]


class Switch(ChangeParameters, kw_only=True):
    """Names the new master of a group."""

    broker: Annotated[str, Meta(min_length=1)]
    to: Annotated[str, Meta(description="a member; empty: the most up-to-date copy")] = ""


async def list_replicas(caller: Caller, wanted: ReplicasWanted) -> list[ReplicasShown]:
    """List the members of all broker names, or of one."""
    admin = await caller.account_client.open_admin()
    found = await caller.account_client.memo.get_or_request(
        ("replicas", wanted.broker), lambda: admin.replicas.status(wanted.broker)
    )
    return [_to_replicas(one) for one in found]


def _to_replicas(one: ReplicaGroup) -> ReplicasShown:
    members = [_to_member(each) for each in one.members]
    is_well = one.master and all(each.role in _WELL for each in members) and not one.notes
    is_group = one.kind == "group"
    return ReplicasShown(
        broker=one.broker,
        cluster=one.cluster,
        kind=one.kind,  # type: ignore[arg-type] # one of these three words
        master=one.master or None,
        master_address=one.master_address,
        epoch=one.epoch if is_group else None,
        confirmed=_none_if_unknown(one.confirmed) if is_group else None,
        in_sync=one.in_sync,
        min_copies=one.min_copies,
        is_degraded=not is_well,
        authority=one.authority,
        notes=one.notes,
        members=members,
    )


def _to_member(one: Replica) -> MemberShown:
    return MemberShown(
        name=one.name, address=one.address, role=one.role, end=_none_if_unknown(one.end),
        behind=_none_if_unknown(one.behind), incarnation=one.incarnation, note=one.note,
    )  # fmt: skip


def _none_if_unknown(number: int) -> int | None:
    return number if number >= 0 else None


async def switch_master(caller: Caller, wanted: Switch) -> Change:
    """Make another member of a group its master."""
    admin = await caller.account_client.open_admin()
    if wanted.dry_run:
        return Change.dry_run_answer(await previews.switch(admin, wanted.broker, wanted.to))
    done = await admin.replicas.switch(wanted.broker, wanted.to)
    said = (
        f"{done.master} is the master of {done.broker} instead of {done.before}, "
        f"{done.took_ms:.0f} ms later (epoch {done.epoch})."
    )
    return Change(is_dry_run=False, said=said, count=1)


OPERATIONS: Final = (
    Operation(name="replicas.list", method="GET", path="/replicas", wants=ReplicasWanted,
              gives=list[ReplicasShown], summary="Brokers with their copies, and who is in sync",
              handler=list_replicas),
    Operation(name="replicas.switch", method="POST", path="/replicas/{broker}/switch",
              wants=Switch, gives=Change, summary="Change the master of a group",
              handler=switch_master),
)  # fmt: skip
