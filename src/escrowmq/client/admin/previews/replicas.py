"""Previews of a change of the master."""

from __future__ import annotations

from escrowmq.client.admin.admin import Admin
from escrowmq.client.admin.previews.preview import Preview, PreviewRow
from escrowmq.errors import UsageError


async def switch(admin: Admin, broker: str, to: str = "") -> Preview:
    """Preview `admin.replicas.switch`. Raises UsageError for a member that cannot become the
    master."""
    group = await admin.replicas.group(broker)
    if not group.master:
        raise UsageError(f"{broker} has no master that could hand over")
    able = [one for one in group.members if one.role == "in sync"]
    if to:
        able = [one for one in able if one.name == to]
    if not able:
        raise UsageError(
            f"{to or 'no other member'} of {broker} is in sync, so the master stays {group.master}"
        )
    heir = min(able, key=lambda one: one.behind)
    return Preview(
        said=f"{heir.name} would be the master of {broker} instead of {group.master}; messages "
        "would be refused until it serves, a fraction of a second.",
        count=1,
        rows=[PreviewRow(what="master", before=group.master, after=heir.name)],
    )


async def rebuild(admin: Admin, address: str) -> Preview:
    """Preview `admin.replicas.rebuild`."""
    one = await admin.replicas.report(address)
    if one.is_master:
        raise UsageError(f"{one.member} is the master, and is running: there is nothing to rebuild")
    lost = [each for each in one.in_sync if each != one.member]
    return Preview(
        said=f"{one.member} would be the master of {one.broker} with its log up to {one.end}; what "
        f"only {', '.join(lost) or 'a former incarnation of it'} had would be lost.",
        count=1,
        rows=[PreviewRow(what="master", before=one.master, after=one.member)],
    )
