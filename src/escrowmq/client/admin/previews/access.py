"""Previews of changed users and policies."""

from __future__ import annotations

from typing import Final, Unpack

from escrowmq.client.admin.access import PolicyEntry, UserFields, UserSummary
from escrowmq.client.admin.admin import Admin
from escrowmq.client.admin.cluster_calls import ClusterCalls
from escrowmq.client.admin.previews.preview import ROWS_MAX, Preview, PreviewRow, format_by_broker
from escrowmq.errors import NotFound, UsageError

POLICY_TYPES: Final = {True: "Default", False: "Custom"}
"""The two types of policies: default ones, which apply if no other does, and custom ones."""


async def create_user(
    admin: Admin, name: str, *, is_super: bool = False, broker: str = ""
) -> Preview:
    """Preview `admin.access.create_user`. Raises UsageError if the name is taken."""
    known = [one.broker for one in await _users_named(admin, name, broker)]
    if known:
        raise UsageError(f"there already is a user {name!r}, on {', '.join(known)}")
    names = sorted(await ClusterCalls(admin.instance).masters(broker))
    return Preview(
        said=f"The user {name} would be created on {', '.join(names)}.",
        count=len(names),
        rows=[
            PreviewRow(what="kind", after=_user_type(is_super)),
            PreviewRow(what="state", after=_enabled_text(True)),
        ],
    )


async def update_user(
    admin: Admin, name: str, *, broker: str = "", **fields: Unpack[UserFields]
) -> Preview:
    """Preview `admin.access.update_user`. Raises NotFound if there is no such user."""
    if not fields:
        raise UsageError("nothing to change was given; name a password, a type or a status")
    known = await _require_users(admin, name, broker)
    rows = []
    if "is_super" in fields:
        before = format_by_broker((one.broker, _user_type(one.is_super)) for one in known)
        rows.append(PreviewRow(what="kind", before=before, after=_user_type(fields["is_super"])))
    if "is_enabled" in fields:
        before = format_by_broker((one.broker, _enabled_text(one.is_enabled)) for one in known)
        rows.append(
            PreviewRow(what="state", before=before, after=_enabled_text(fields["is_enabled"]))
        )
    if "password" in fields:
        rows.append(PreviewRow(what="password", before="(secret)", after="a new one"))
    if "keeps_former" in fields:
        after = "stays valid" if fields["keeps_former"] else "is no longer valid"
        rows.append(PreviewRow(what="previous password", after=after))
    return Preview(said=f"The user {name} would be changed.", count=len(known), rows=rows)


async def delete_user(admin: Admin, name: str, *, broker: str = "") -> Preview:
    """Preview `admin.access.delete_user`. Raises NotFound if there is no such user."""
    known = await _require_users(admin, name, broker)
    entries = [one for one in await admin.access.policies(name, broker=broker) if one.user == name]
    return Preview(
        said=f"This would delete the user {name} on {', '.join(one.broker for one in known)}, "
        f"with {len(entries)} policy entries.",
        count=len(known),
        rows=[_deletion_row(one) for one in entries[:ROWS_MAX]],
    )


async def put_policy(admin: Admin, entry: PolicyEntry) -> Preview:
    """Preview `admin.access.put_policy` of an entry. If the entry names no broker, it is for all
    brokers."""
    known = await _require_users(admin, entry.user, entry.broker)
    is_default = entry.policy_type == POLICY_TYPES[True]
    there = await _policy_entries(
        admin, entry.user, entry.resource, is_default=is_default, broker=entry.broker
    )
    before = {one.broker: _format_entry(one) for one in there}
    kind = "default policy" if is_default else "policy"
    return Preview(
        said=f"The {kind} of {entry.user} for {entry.resource} would be "
        f"{'replaced' if before else 'added'}.",
        count=len(known),
        rows=[
            PreviewRow(
                what=f"{entry.resource} on {one.broker}",
                before=before.get(one.broker, ""),
                after=_format_entry(entry),
            )
            for one in known[:ROWS_MAX]
        ],
    )


async def delete_policy(
    admin: Admin, user: str, resource: str = "", *, is_default: bool = False, broker: str = ""
) -> Preview:
    """Preview `admin.access.delete_policy`."""
    entries = await _policy_entries(admin, user, resource, is_default=is_default, broker=broker)
    what = f"for {resource}" if resource else "for all resources"
    return Preview(
        said=f"{len(entries)} policy entries of {user} {what} would be deleted.",
        count=len(entries),
        rows=[_deletion_row(one) for one in entries[:ROWS_MAX]],
    )


async def _users_named(admin: Admin, name: str, broker: str) -> list[UserSummary]:
    return [one for one in await admin.access.users(name, broker=broker) if one.name == name]


async def _require_users(admin: Admin, name: str, broker: str) -> list[UserSummary]:
    found = await _users_named(admin, name, broker)
    if not found:
        raise NotFound(f"there is no user {name!r}; `escrowmq acl user list` lists all")
    return found


async def _policy_entries(
    admin: Admin, user: str, resource: str, *, is_default: bool, broker: str
) -> list[PolicyEntry]:
    """Return a user's policy entries; only those of `resource` if it is named."""
    found = await admin.access.policies(user, resource=resource, broker=broker)
    return [
        one
        for one in found
        if one.user == user
        and resource in ("", one.resource)
        and one.policy_type in ("", POLICY_TYPES[is_default])
    ]


def _deletion_row(one: PolicyEntry) -> PreviewRow:
    return PreviewRow(what=f"{one.resource} on {one.broker}", before=_format_entry(one))


def _format_entry(one: PolicyEntry) -> str:
    source = f" from {', '.join(one.sources)}" if one.sources else ""
    return f"{one.decision.lower()} {', '.join(name.lower() for name in one.actions)}{source}"


def _user_type(is_super: bool) -> str:
    return "super" if is_super else "normal"


def _enabled_text(is_enabled: bool) -> str:
    return "enabled" if is_enabled else "disabled"
