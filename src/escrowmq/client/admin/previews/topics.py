"""Previews of changes of topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from escrowmq.base.message import Topic
from escrowmq.client.admin.admin import Admin
from escrowmq.client.admin.cluster_calls import ClusterCalls
from escrowmq.client.admin.previews.preview import (
    ROWS_MAX,
    Preview,
    PreviewRow,
    format_by_broker,
    format_value,
)
from escrowmq.client.admin.topics import (
    QUEUES_DEFAULT,
    TopicInfo,
    check_queue_count,
    permission_bits,
)
from escrowmq.client.core.validation import check_topic
from escrowmq.errors import TopicNotFound, UsageError

ReadValue = Callable[[TopicInfo], str]
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
        infos = _infos_on((await admin.topics.describe(topic)).brokers, broker)
    except TopicNotFound:
        infos = []
    if infos:
        rows = [
            *_queue_count_rows("queues", queues, infos, _queue_counts_text),
            *_changed_field_rows(infos, permission, attributes or {}),
        ]
        if is_ordered is not None:
            rows.append(
                _change_row(
                    "ordered",
                    format_value(is_ordered),
                    infos,
                    lambda one: format_value(one.is_ordered),
                )
            )
        return Preview(said=f"The topic {topic} would be changed.", count=len(infos), rows=rows)
    _check_values(queues=queues, permission=permission)
    names = sorted(await ClusterCalls(admin.instance).masters(broker))
    made = {
        "queues of each broker": QUEUES_DEFAULT if queues is None else queues,
        "permission": "rw" if permission is None else permission or CLOSED,
        "ordered": format_value(bool(is_ordered)),
        **(attributes or {}),
    }
    return Preview(
        said=f"The topic {topic} would be created on {', '.join(names)}.",
        count=len(names),
        rows=[PreviewRow(what=what, after=str(after)) for what, after in made.items()],
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
    infos = _infos_on((await admin.topics.describe(topic)).brokers, broker)
    if not infos:
        raise TopicNotFound(f"there is no topic {topic!r} on {broker!r}")
    rows = [
        *_queue_count_rows("read queues", read_queues, infos, lambda one: str(one.read_queues)),
        *_queue_count_rows("write queues", write_queues, infos, lambda one: str(one.write_queues)),
        *_changed_field_rows(infos, permission, attributes or {}),
    ]
    return Preview(said=f"The topic {topic} would be changed.", count=len(infos), rows=rows)


async def delete(admin: Admin, topic: str) -> Preview:
    """Preview `admin.topics.delete`. Raises UsageError for a topic that belongs to the
    brokers themselves."""
    found = await admin.topics.describe(topic)
    if topic.startswith(Topic.SYSTEM_PREFIX):
        raise UsageError(f"{topic} is one of the brokers' own topics, and cannot be deleted")
    rows = [
        PreviewRow(what=f"group {group} reads it", before="reads", after="nothing")
        for group in found.groups[:ROWS_MAX]
    ]
    return Preview(
        said=f"This would delete the topic {topic} with its {found.count} messages on "
        f"{len(found.brokers)} brokers. They cannot be had back.",
        count=found.count,
        rows=rows,
    )


def _infos_on(infos: list[TopicInfo], broker: str) -> list[TopicInfo]:
    return [one for one in infos if broker in ("", one.broker)]


def _check_values(*, queues: int | None = None, permission: str | None = None) -> None:
    """Raise UsageError for values that the change itself would refuse."""
    if queues is not None:
        check_queue_count(queues)
    if permission is not None:
        permission_bits(permission)


def _queue_counts_text(one: TopicInfo) -> str:
    return f"{one.read_queues} read, {one.write_queues} written"


def _queue_count_rows(
    name: str, queues: int | None, infos: list[TopicInfo], read: ReadValue
) -> list[PreviewRow]:
    if queues is None:
        return []
    _check_values(queues=queues)
    return [_change_row(f"{name} of each broker", str(queues), infos, read)]


def _changed_field_rows(
    infos: list[TopicInfo], permission: str | None, attributes: Mapping[str, str]
) -> list[PreviewRow]:
    rows = []
    if permission is not None:
        _check_values(permission=permission)
        rows.append(
            _change_row(
                "permission", permission or CLOSED, infos, lambda one: one.permission or CLOSED
            )
        )
    for name, value in attributes.items():
        before = format_by_broker((one.broker, one.attributes.get(name, "")) for one in infos)
        rows.append(PreviewRow(what=name, before=before, after=value))
    return rows


def _change_row(what: str, after: str, infos: list[TopicInfo], read: ReadValue) -> PreviewRow:
    return PreviewRow(
        what=what, before=format_by_broker((one.broker, read(one)) for one in infos), after=after
    )
