"""Previews of changes of consumer groups."""

from __future__ import annotations

from typing import Final

from escrowmq.base.message import Topic
from escrowmq.client.admin.admin import Admin
from escrowmq.client.admin.cluster_calls import ClusterCalls
from escrowmq.client.admin.groups import GroupInfo, check_group_counts
from escrowmq.client.admin.previews.preview import (
    ROWS_MAX,
    Preview,
    PreviewRow,
    format_by_broker,
    format_value,
)
from escrowmq.client.core.redelivery import ATTEMPTS_DEFAULT
from escrowmq.client.core.validation import check_group
from escrowmq.errors import EscrowMQError, GroupNotFound, RouteMissing, TopicNotFound

_NAMES: Final = {
    "attempts_max": "attempts before a message becomes a dead letter",
    "retry_queues": "retry queues",
    "is_enabled": "may consume", "may_broadcast": "may broadcast", "is_ordered": "in order",
}  # fmt: skip
_OF_A_NEW_ONE: Final[dict[str, object]] = {
    "attempts_max": ATTEMPTS_DEFAULT, "retry_queues": 1,
    "is_enabled": True, "may_broadcast": True, "is_ordered": False,
}  # fmt: skip


async def create(admin: Admin, group: str, /, **given: object) -> Preview:
    """Preview `admin.groups.create`, which takes the same fields."""
    check_group(group)
    check_group_counts(**given)
    try:
        infos = (await admin.groups.describe(group)).brokers
    except GroupNotFound:
        names = sorted(await ClusterCalls(admin.instance).masters())
        return Preview(
            said=f"The group {group} would be created on {', '.join(names)}.",
            count=len(names),
            rows=[
                PreviewRow(what=what, after=format_value(given.get(name, _OF_A_NEW_ONE[name])))
                for name, what in _NAMES.items()
            ],
        )
    return _preview_changes(group, infos, given)


async def update(admin: Admin, group: str, /, **given: object) -> Preview:
    """Preview `admin.groups.update`, which takes the same fields."""
    check_group_counts(**given)
    return _preview_changes(group, (await admin.groups.describe(group)).brokers, given)


async def delete(admin: Admin, group: str) -> Preview:
    """Preview `admin.groups.delete`."""
    found = await admin.groups.describe(group)
    dead = await dead_letter_count(admin, group)
    letters = "an unknown number of" if dead is None else dead
    return Preview(
        said=f"This would delete the group {group}: its offsets in {len(found.lags)} queues, and "
        f"{letters} dead letters. They cannot be had back.",
        count=1,
        rows=[
            PreviewRow(what=f"member {one.client_id} at {one.address}", before="connected")
            for one in found.online.members[:ROWS_MAX]
        ],
    )


async def dead_letter_count(admin: Admin, group: str) -> int | None:
    """Return the number of a group's dead letters; None if no broker reports it."""
    try:
        return (await admin.topics.describe(Topic.DLQ_PREFIX + group)).count
    except (TopicNotFound, RouteMissing):  # nothing ever died
        return 0
    except EscrowMQError:
        return None


def _preview_changes(group: str, infos: list[GroupInfo], given: dict[str, object]) -> Preview:
    rows = [
        PreviewRow(
            what=_NAMES[name],
            before=format_by_broker(
                (one.broker, format_value(getattr(one, name))) for one in infos
            ),
            after=format_value(value),
        )
        for name, value in given.items()
    ]
    return Preview(said=f"The group {group} would be changed.", count=len(infos), rows=rows)
