"""Previews of changes of topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from escrowmq.base.message import Topic
from escrowmq.client.admin.admin import Admin
from escrowmq.client.admin.cluster import Cluster
from escrowmq.client.admin.previews.preview import ROWS_MAX, Preview, Row, shown, spread
from escrowmq.client.admin.topics import (
    QUEUES_DEFAULT,
    TopicInfo,
    permission_bits,
    queue_count,
)
from escrowmq.client.core.validation import check_topic
from escrowmq.errors import TopicNotFound, UsageError

Read = Callable[[TopicInfo], str]
CLOSED = "none"


async def create(
    admin: Admin,
    topic: str,
    *,
    queues: int | None = None,
    permission: str | None = None,
    is_ordered: bool | None = None,
    attributes: Mapping[str, str] | None = None,
    broker: str = "",
) -> Preview:
    """Preview `admin.topics.create`."""
    check_topic(topic)
    try:
        infos = _on((await admin.topics.describe(topic)).brokers, broker)
    except TopicNotFound:
        infos = []
    if infos:
        rows = [
            *_counted("queues", queues, infos, _both_counts),
            *_fields(infos, permission, attributes or {}),
        ]
        if is_ordered is not None:
            rows.append(
                _row("ordered", shown(is_ordered), infos, lambda one: shown(one.is_ordered))
            )
        return Preview(said=f"The topic {topic} would be changed.", count=len(infos), rows=rows)
    _check(queues=queues, permission=permission)
    names = sorted(await Cluster(admin.instance).masters(broker))
    made = {
        "queues of each broker": QUEUES_DEFAULT if queues is None else queues,
        "permission": "rw" if permission is None else permission or CLOSED,
        "ordered": shown(bool(is_ordered)),
        **(attributes or {}),
    }
    return Preview(
        said=f"The topic {topic} would be created on {', '.join(names)}.",
        count=len(names),
        rows=[Row(what=what, after=str(after)) for what, after in made.items()],
    )


async def update(
    admin: Admin,
    topic: str,
    *,
    read_queues: int | None = None,
    write_queues: int | None = None,
    permission: str | None = None,
    attributes: Mapping[str, str] | None = None,
    broker: str = "",
) -> Preview:
    """Preview `admin.topics.update`."""
    infos = _on((await admin.topics.describe(topic)).brokers, broker)
    if not infos:
        raise TopicNotFound(f"there is no topic {topic!r} on {broker!r}")
    rows = [
        *_counted("read queues", read_queues, infos, lambda one: str(one.read_queues)),
        *_counted("write queues", write_queues, infos, lambda one: str(one.write_queues)),
        *_fields(infos, permission, attributes or {}),
    ]
    return Preview(said=f"The topic {topic} would be changed.", count=len(infos), rows=rows)


async def delete(admin: Admin, topic: str) -> Preview:
    """Preview `admin.topics.delete`. Raises UsageError for a topic that belongs to the brokers
    themselves."""
    found = await admin.topics.describe(topic)
    if topic.startswith(Topic.SYSTEM_PREFIX):
        raise UsageError(f"{topic} is one of the brokers' own topics, and cannot be deleted")
    rows = [
        Row(what=f"group {group} reads it", before="reads", after="nothing")
        for group in found.groups[:ROWS_MAX]
    ]
    return Preview(
        said=f"This would delete the topic {topic} with its {found.count} messages on "
        f"{len(found.brokers)} brokers. They cannot be had back.",
        count=found.count,
        rows=rows,
    )


def _on(infos: list[TopicInfo], broker: str) -> list[TopicInfo]:
    return [one for one in infos if broker in ("", one.broker)]


def _check(*, queues: int | None = None, permission: str | None = None) -> None:
    """Raise UsageError for values that the change itself would refuse."""
    if queues is not None:
        queue_count(queues)
    if permission is not None:
        permission_bits(permission)


def _both_counts(one: TopicInfo) -> str:
    return f"{one.read_queues} read, {one.write_queues} written"


def _counted(name: str, queues: int | None, infos: list[TopicInfo], read: Read) -> list[Row]:
    if queues is None:
        return []
    _check(queues=queues)
    return [_row(f"{name} of each broker", str(queues), infos, read)]


def _fields(
    infos: list[TopicInfo], permission: str | None, attributes: Mapping[str, str]
) -> list[Row]:
    rows = []
    if permission is not None:
        _check(permission=permission)
        rows.append(
            _row("permission", permission or CLOSED, infos, lambda one: one.permission or CLOSED)
        )
    for name, value in attributes.items():
        before = spread((one.broker, one.attributes.get(name, "")) for one in infos)
        rows.append(Row(what=name, before=before, after=value))
    return rows


def _row(what: str, after: str, infos: list[TopicInfo], read: Read) -> Row:
    return Row(what=what, before=spread((one.broker, read(one)) for one in infos), after=after)
