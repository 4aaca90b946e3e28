"""Checks the preconditions of a drill."""

from __future__ import annotations

import asyncio

import msgspec

from escrowmq.client.admin.admin import Admin
from escrowmq.client.admin.replicas import DrillMember, ReplicaGroup
from escrowmq.errors import UsageError


class HealthyGroup(msgspec.Struct, kw_only=True, frozen=True):
    """A group that fulfils the preconditions."""

    broker: str
    members: dict[str, str]
    """Addresses of the members, by their names."""
    master: str
    takeover_ms: int
    """The longest time in ms that any member waits before it takes over."""
    min_copies: int


async def inspect_group(admin: Admin, broker: str, drill: str) -> HealthyGroup:
    """Inspect a group without changing it. Raises UsageError if a drill would prove nothing, or do
    harm; ResponseError if a member would refuse faults."""
    group = await admin.replicas.group(broker)
    require_healthy(group)
    addresses = {one.name: one.address for one in group.members}
    reports = await admin.replicas.reports(addresses.values())
    for name, address in addresses.items():
        report = reports.get(address)  # one that is gone by now is found out below
        if report is not None and report.authority_fault:
            raise UsageError(
                f"member {name} does not reach the authority: {report.authority_fault}. No "
                "other member could take over"
            )
    found: list[DrillMember] = await asyncio.gather(*(
        admin.replicas.drill(address, drill, member=name, is_dry_run=True)
        for name, address in addresses.items()
    ))  # fmt: skip
    return HealthyGroup(
        broker=broker,
        members=addresses,
        master=group.master,
        takeover_ms=max(one.takeover_ms for one in found),
        min_copies=group.min_copies,
    )


def require_healthy(group: ReplicaGroup) -> None:
    """Raise UsageError unless the whole group is healthy."""
    name = group.broker
    if not group.master:
        raise UsageError(f"{name} has no master: {'; '.join(group.notes)}")
    refused = next((note for note in group.notes if note.startswith("no messages are taken")), "")
    if refused:
        raise UsageError(f"{name} would fail at once: {refused}")
    if len(group.members) < 2:
        raise UsageError(
            f"{name} has only one member, {group.master}: none could take over. Start another one"
        )
    for one in group.members:
        who = f"member {one.name}" if one.name else f"the broker at {one.address}"
        if one.role not in ("master", "in sync"):
            why = f" ({one.note})" if one.note else ""
            raise UsageError(
                f"{who} of {name} is {one.role}{why}: a fault now could leave the group without a "
                "master. `escrowmq cluster status` shows when it is in sync"
            )
        if not one.address:
            raise UsageError(f"{who} of {name} cannot be asked: {one.note}")
