"""Topics: listed with what they hold, shown queue by queue, made, changed, deleted."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from escrowmq.client.admin.previews import topics as previews
from escrowmq.client.admin.topics import TopicDescription
from escrowmq.console.answers import Answer
from escrowmq.console.operations import Asking, Change, Deed, Operation
from escrowmq.console.tables import Listed, Paging, cut, ordered
from escrowmq.errors import EscrowMQError, UsageError

FIGURES_MAX: Final = 500
"""Of more topics nobody asks for all figures to sort by one of them."""

NAMES_FRESH_S: Final = 5.0
_Permission = Literal["rw", "r", "w", "none"]


class TopicsWanted(Paging, kw_only=True):
    """Which of them."""

    part: Annotated[str, Meta(description="of the name")] = ""
    system: Annotated[bool, Meta(description="the brokers' own too, retries, dead letters")] = False


class TopicRow(Answer, kw_only=True):
    """A topic in the list. What could not be asked is null."""

    name: str
    queues: int | None = None
    messages: int | None = None
    """That are kept."""
    groups: int | None = None
    updated_ms: int | None = None
    """When the newest message was stored; 0 without one."""
    permission: str | None = None
    kind: str | None = None
    """Its attribute message.type; empty when it has none."""
    description: str | None = None
    """Its attribute description: what its owners say of it."""


class TopicWanted(msgspec.Struct, kw_only=True):
    """Which one."""

    topic: Annotated[str, Meta(min_length=1)]


class TopicShown(Answer, kw_only=True):
    """All about one."""

    described: TopicDescription
    messages: int


class TopicMade(Deed, kw_only=True):
    """What it is to be. Of a topic that exists, what is given is changed, and nothing else."""

    topic: Annotated[str, Meta(min_length=1)]
    queues: Annotated[int, Meta(ge=1)] | None = None
    permission: _Permission | None = None
    is_ordered: bool | None = None
    kind: Literal["NORMAL", "FIFO", "DELAY", "TRANSACTION"] | None = None
    broker: Annotated[str, Meta(description="only there; everywhere when empty")] = ""


class TopicGone(Deed, kw_only=True):
    """Which one."""

    topic: Annotated[str, Meta(min_length=1)]


async def listed(asking: Asking, wanted: TopicsWanted) -> Listed[TopicRow]:
    """Topics by name; figures of those of the page alone, unless they are sorted by one."""
    desk = asking.desk
    desk.collector.looked()
    admin = await desk.admin()
    names = await desk.memo.get(
        ("topics", wanted.system),
        lambda: admin.topics.names(with_system=wanted.system),
        fresh_s=NAMES_FRESH_S,
    )
    part = wanted.part.lower()
    chosen = [name for name in names if part in name.lower()] if part else names
    if wanted.sort in ("", "name"):
        page = cut(ordered(chosen, wanted, {"name": lambda name: name}, "name"), wanted)
        rows = await asyncio.gather(*(_row(asking, name) for name in page.items))
        return Listed(
            items=rows, total=page.total, page=page.page, pages=page.pages, has_more=page.has_more
        )
    if len(chosen) > FIGURES_MAX:
        raise UsageError(
            f"sort={wanted.sort}: of {len(chosen)} topics nobody asks for all figures; choose some "
            f"by a part of the name first, {FIGURES_MAX} at most"
        )
    rows = await asyncio.gather(*(_row(asking, name) for name in chosen))
    by = {"messages": lambda row: row.messages, "groups": lambda row: row.groups,
          "queues": lambda row: row.queues, "updated": lambda row: row.updated_ms}  # fmt: skip
    return cut(ordered(rows, wanted, by, "messages"), wanted)


async def _row(asking: Asking, name: str) -> TopicRow:
    try:
        found = await asking.desk.collector.topic(name)
    except EscrowMQError:
        return TopicRow(name=name)
    info = found.brokers[0] if found.brokers else None
    return TopicRow(
        name=name,
        queues=sum(one.read_queues for one in found.brokers),
        messages=found.count,
        groups=len(found.groups),
        updated_ms=max((one.updated_ms for one in found.queues), default=0),
        permission=None if info is None else info.permission,
        kind=None if info is None else info.attributes.get("message.type", ""),
        description=None if info is None else info.attributes.get("description", ""),
    )


async def show(asking: Asking, wanted: TopicWanted) -> TopicShown:
    """Its brokers, queues and readers."""
    asking.desk.collector.looked(topic=wanted.topic)
    found = await asking.desk.collector.topic(wanted.topic)
    return TopicShown(described=found, messages=found.count)


async def create(asking: Asking, wanted: TopicMade) -> Change:
    """Make a topic, or change what is given of one."""
    admin = await asking.desk.admin()
    given: dict[str, Any] = {
        "queues": wanted.queues,
        "permission": "" if wanted.permission == "none" else wanted.permission,
        "is_ordered": wanted.is_ordered,
        "attributes": {"message.type": wanted.kind} if wanted.kind else None,
        "broker": wanted.broker,
    }
    if wanted.dry_run:
        return Change.to_come(await previews.create(admin, wanted.topic, **given))
    await admin.topics.create(wanted.topic, **given)
    return Change(is_dry_run=False, said=f"The topic {wanted.topic} is as you wish.", count=1)


async def delete(asking: Asking, wanted: TopicGone) -> Change:
    """Delete a topic with its messages."""
    admin = await asking.desk.admin()
    found = await previews.delete(admin, wanted.topic)
    if wanted.dry_run:
        return Change.to_come(found)
    await admin.topics.delete(wanted.topic)
    said = f"{wanted.topic} is deleted, with {found.count} messages."
    return Change(is_dry_run=False, said=said, count=found.count)


OPERATIONS: Final = (
    Operation(name="topics.list", method="GET", path="/topics", wants=TopicsWanted,
              gives=Listed[TopicRow], summary="Topics and what they hold", handler=listed),
    Operation(name="topics.show", method="GET", path="/topics/{topic}", wants=TopicWanted,
              gives=TopicShown, summary="A topic queue by queue", handler=show),
    Operation(name="topics.create", method="POST", path="/topics", wants=TopicMade, gives=Change,
              summary="Make or change the topic", handler=create),
    Operation(name="topics.delete", method="DELETE", path="/topics/{topic}", wants=TopicGone,
              gives=Change, summary="Delete the topic", handler=delete),
)  # fmt: skip
