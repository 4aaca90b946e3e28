"""Consumer groups: list them with their lag, show one queue by queue with its members, create,
change and delete them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from escrowmq.base.message import Topic
from escrowmq.client.admin.groups import GroupInfo, GroupMembers, Lag
from escrowmq.client.admin.previews import groups as previews
from escrowmq.console.answers import Answer
from escrowmq.console.api.topics import FIGURES_MAX, NAMES_FRESH_S
from escrowmq.console.operations import Caller, Change, ChangeParameters, Operation
from escrowmq.console.paging import Listed, Paging, cut_page, sort_items
from escrowmq.errors import EscrowMQError, RouteMissing, TopicNotFound, UsageError


class GroupsWanted(Paging, kw_only=True):
    """Selects which groups to list."""

    part: Annotated[str, Meta(description="part of the name")] = ""
    system: Annotated[bool, Meta(description="include the brokers' own")] = False


class GroupRow(Answer, kw_only=True):
    """A group in the list. Fields are null if no broker could be asked."""

    name: str
    lag: int | None = None
    """Messages not yet acknowledged, in all queues of all topics, retries included."""
    retried: int | None = None
    """How many of these failed before and wait for their redelivery."""
    inflight: int | None = None
    members: int | None = None
    consumed_ms: int | None = None
    """When the last acknowledged message was stored; 0 if there is none."""


class GroupWanted(msgspec.Struct, kw_only=True):
    """Names the group to show."""

    group: Annotated[str, Meta(min_length=1)]


class QueueLag(Answer, kw_only=True):
    """A group's lag in one queue."""

    topic: str
    broker: str
    queue_id: int
    committed: int
    end: int
    lag: int
    inflight: int
    consumed_ms: int


class LagsWanted(Paging, kw_only=True):
    """Selects the group and topic whose lag to list."""

    group: Annotated[str, Meta(min_length=1)]
    topic: str = ""


class GroupShown(Answer, kw_only=True):
    """A group's settings, members and lag."""

    group: str
    brokers: list[GroupInfo]
    online: GroupMembers
    lag: int
    retried: int
    inflight: int
    dead: int | None
    """Number of stored dead letters; null if no broker reports it."""
    missing: list[str]
    """Brokers that left within the last hour; what they know about the group is not included."""


class GroupMade(ChangeParameters, kw_only=True):
    """Settings of a group to create. If the group exists, only the given ones are changed."""

    group: Annotated[str, Meta(min_length=1)]
    attempts_max: Annotated[int, Meta(ge=0)] | None = None
    retry_queues: Annotated[int, Meta(ge=1)] | None = None
    is_enabled: bool | None = None
    may_broadcast: bool | None = None
    is_ordered: bool | None = None


class GroupGone(ChangeParameters, kw_only=True):
    """The group to delete."""

    group: Annotated[str, Meta(min_length=1)]


async def list_groups(caller: Caller, wanted: GroupsWanted) -> Listed[GroupRow]:
    """List groups by name or by lag."""
    client = caller.account_client
    client.collector.note_viewer()
    admin = await client.open_admin()
    names = await client.memo.get_or_request(
        ("groups", wanted.system),
        lambda: admin.groups.names(with_system=wanted.system),
        fresh_s=NAMES_FRESH_S,
    )
    part = wanted.part.lower()
    chosen = [name for name in names if part in name.lower()] if part else names
    if wanted.sort in ("", "name") or (wanted.sort == "lag" and len(chosen) > FIGURES_MAX):
        if wanted.sort == "lag":
            raise UsageError(
                f"sort=lag: {len(chosen)} groups are too many to query the lag of each; "
                f"first select at most {FIGURES_MAX} by a part of the name"
            )
        page = cut_page(sort_items(chosen, wanted, {"name": lambda name: name}, "name"), wanted)
        rows = await asyncio.gather(*(_group_row(caller, name) for name in page.items))
        return Listed(
            items=rows, total=page.total, page=page.page, pages=page.pages, has_more=page.has_more
        )
    rows = await asyncio.gather(*(_group_row(caller, name) for name in chosen[:FIGURES_MAX]))
    by = {"lag": lambda row: row.lag, "retried": lambda row: row.retried,
          "members": lambda row: row.members, "consumed": lambda row: row.consumed_ms}  # fmt: skip
    return cut_page(sort_items(rows, wanted, by, "lag"), wanted)


async def _group_row(caller: Caller, name: str) -> GroupRow:
    row = GroupRow(name=name)
    client = caller.account_client
    client.collector.note_viewer(group=name)
    admin = await client.open_admin()
    try:
        lags = await client.collector.group_lags(name)
        row.lag = sum(one.count for one in lags)
        row.retried = _retried_count(lags)
        row.inflight = sum(one.inflight for one in lags)
        row.consumed_ms = max((one.consumed_ms for one in lags), default=0)
        online = await client.memo.get_or_request(
            ("members", name), lambda: admin.groups.members(name)
        )
        row.members = len(online.members)
    except EscrowMQError:
        return row
    return row


def _retried_count(lags: list[Lag]) -> int:
    return sum(one.count for one in lags if one.queue.topic.startswith(Topic.RETRY_PREFIX))


async def show_group(caller: Caller, wanted: GroupWanted) -> GroupShown:
    """Show a group's settings on each broker, its members, and its lag by topic."""
    client = caller.account_client
    client.collector.note_viewer(group=wanted.group)
    admin = await client.open_admin()
    found = await client.memo.get_or_request(
        ("group", wanted.group), lambda: admin.groups.describe(wanted.group)
    )
    return GroupShown(
        group=found.group,
        brokers=found.brokers,
        online=found.online,
        lag=found.lag,
        retried=_retried_count(found.lags),
        inflight=sum(one.inflight for one in found.lags),
        dead=await _dead_letter_count(caller, wanted.group),
        missing=found.missing,
    )


async def _dead_letter_count(caller: Caller, group: str) -> int | None:
    try:
        return (
            await caller.account_client.collector.describe_topic(Topic.DLQ_PREFIX + group)
        ).count
    except (TopicNotFound, RouteMissing):  # nothing ever died
        return 0
    except EscrowMQError:
        return None


async def list_lags(caller: Caller, wanted: LagsWanted) -> Listed[QueueLag]:
    """List a group's lag in each queue."""
    caller.account_client.collector.note_viewer(group=wanted.group)
    found = [
        QueueLag(
            topic=one.queue.topic, broker=one.queue.broker_name, queue_id=one.queue.queue_id,
            committed=one.committed, end=one.end, lag=one.count, inflight=one.inflight,
            consumed_ms=one.consumed_ms,
        )
        for one in await caller.account_client.collector.group_lags(wanted.group)
        if wanted.topic in ("", one.queue.topic)
    ]  # fmt: skip
    by: dict[str, Callable[[QueueLag], Any]] = {
        "queue": lambda one: (one.topic, one.broker, one.queue_id),
        "lag": lambda one: one.lag,
        "inflight": lambda one: one.inflight,
        "consumed": lambda one: one.consumed_ms,
    }
    return cut_page(sort_items(found, wanted, by, "queue"), wanted)


_FIELDS: Final = ("attempts_max", "retry_queues", "is_enabled", "may_broadcast", "is_ordered")


async def create_group(caller: Caller, wanted: GroupMade) -> Change:
    """Create a group, or change the given settings of an existing one."""
    admin = await caller.account_client.open_admin()
    given = {name: getattr(wanted, name) for name in _FIELDS if getattr(wanted, name) is not None}
    if wanted.dry_run:
        return Change.dry_run_answer(await previews.create(admin, wanted.group, **given))
    await admin.groups.create(wanted.group, **given)
    return Change(is_dry_run=False, said=f"The group {wanted.group} is as you wish.", count=1)


async def delete_group(caller: Caller, wanted: GroupGone) -> Change:
    """Delete a group with its offsets, retries and dead letters."""
    admin = await caller.account_client.open_admin()
    found = await previews.delete(admin, wanted.group)
    if wanted.dry_run:
        return Change.dry_run_answer(found)
    await admin.groups.delete(wanted.group)
    return Change(is_dry_run=False, said=f"The group {wanted.group} is deleted.", count=1)


_ONE: Final = "/groups/{group}"
OPERATIONS: Final = (
    Operation(name="groups.list", method="GET", path="/groups", wants=GroupsWanted,
              gives=Listed[GroupRow], summary="Consumer groups and their lag", handler=list_groups),
    Operation(name="groups.show", method="GET", path=_ONE, wants=GroupWanted, gives=GroupShown,
              summary="A group, its members and what waits for it", handler=show_group),
    Operation(name="groups.lag", method="GET", path=f"{_ONE}/lag", wants=LagsWanted,
              gives=Listed[QueueLag], summary="How far a group is, queue by queue",
              handler=list_lags),
    Operation(name="groups.create", method="POST", path="/groups", wants=GroupMade, gives=Change,
              summary="Create or change the group", handler=create_group),
    Operation(name="groups.delete", method="DELETE", path=_ONE, wants=GroupGone, gives=Change,
              summary="Delete the group", handler=delete_group),
)  # fmt: skip
