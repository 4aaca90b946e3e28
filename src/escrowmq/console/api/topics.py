"""Topics: list them with their sizes, show one queue by queue, create, change and delete them."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from escrowmq.client.admin.previews import topics as previews
from escrowmq.client.admin.topics import TopicDescription
from escrowmq.console.answers import Answer
from escrowmq.console.operations import Caller, Change, ChangeParameters, Operation
from escrowmq.console.paging import Listed, Paging, cut_page, sort_items
from escrowmq.errors import EscrowMQError, UsageError

FIGURES_MAX: Final = 500
"""The most topics with which the list can be sorted by a metric: that needs the metrics of all
topics."""

READERS_MAX: Final = 64
"""The most groups of a topic whose lag is requested."""

NAMES_FRESH_S: Final = 5.0
ROW_FRESH_S: Final = 6.0
"""The seconds for which a row is cached. A row takes three requests: without the cache, a page of
fifty rows every two seconds took 1.5 % of a core."""

_Permission = Literal["rw", "r", "w", "none"]


class TopicsWanted(Paging, kw_only=True):
    """Selects which topics to list."""

    part: Annotated[str, Meta(description="part of the name")] = ""
    system: Annotated[
        bool, Meta(description="include the brokers' own, retry topics and dead letters")
    ] = False


class TopicRow(Answer, kw_only=True):
    """A topic in the list. Fields are null if no broker could be asked."""

    name: str
    queues: int | None = None
    messages: int | None = None
    """Number of stored messages."""
    groups: int | None = None
    updated_ms: int | None = None
    """When the newest message was stored; 0 if there is none."""
    permission: str | None = None
    kind: str | None = None
    """The topic's attribute message.type; empty if it has none."""
    description: str | None = None
    """The topic's attribute description, written by its owners."""


class TopicWanted(msgspec.Struct, kw_only=True):
    """Names the topic to show."""

    topic: Annotated[str, Meta(min_length=1)]


class Reader(Answer, kw_only=True):
    """A consumer group that reads a topic."""

    group: str
    lag: int | None = None
    """Messages of this topic that it has not consumed; null if unknown."""


class TopicShown(Answer, kw_only=True):
    """A topic's brokers, queues and readers."""

    described: TopicDescription
    messages: int
    readers: list[Reader]
    """The groups that read it. The lag is requested only for the first 64."""


class TopicMade(ChangeParameters, kw_only=True):
    """Settings of a topic to create. If the topic exists, only the given ones are changed."""

    topic: Annotated[str, Meta(min_length=1)]
    queues: Annotated[int, Meta(ge=1)] | None = None
    permission: _Permission | None = None
    is_ordered: bool | None = None
    kind: Literal["NORMAL", "FIFO", "DELAY", "TRANSACTION"] | None = None
    broker: Annotated[str, Meta(description="only on this broker; on all if empty")] = ""


class TopicGone(ChangeParameters, kw_only=True):
    """The topic to delete."""

    topic: Annotated[str, Meta(min_length=1)]


async def list_topics(caller: Caller, wanted: TopicsWanted) -> Listed[TopicRow]:
    """List topics by name, with metrics. Brokers are asked only about the topics of the page,
    unless the list is sorted by a metric."""
    client = caller.account_client
    client.collector.note_viewer()
    admin = await client.open_admin()
    names = await client.memo.get_or_request(
        ("topics", wanted.system),
        lambda: admin.topics.names(with_system=wanted.system),
        fresh_s=NAMES_FRESH_S,
    )
    part = wanted.part.lower()
    chosen = [name for name in names if part in name.lower()] if part else names
    if wanted.sort in ("", "name"):
        page = cut_page(sort_items(chosen, wanted, {"name": lambda name: name}, "name"), wanted)
        rows = await asyncio.gather(*(_topic_row(caller, name) for name in page.items))
        return Listed(
            items=rows, total=page.total, page=page.page, pages=page.pages, has_more=page.has_more
        )
    if len(chosen) > FIGURES_MAX:
        raise UsageError(
            f"sort={wanted.sort}: {len(chosen)} topics are too many to query the figures of "
            f"each; first select at most {FIGURES_MAX} by a part of the name"
        )
    rows = await asyncio.gather(*(_topic_row(caller, name) for name in chosen))
    by = {"messages": lambda row: row.messages, "groups": lambda row: row.groups,
          "queues": lambda row: row.queues, "updated": lambda row: row.updated_ms}  # fmt: skip
    return cut_page(sort_items(rows, wanted, by, "messages"), wanted)


async def _topic_row(caller: Caller, name: str) -> TopicRow:
    try:
        found = await caller.account_client.collector.describe_topic(name, fresh_s=ROW_FRESH_S)
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


async def show_topic(caller: Caller, wanted: TopicWanted) -> TopicShown:
    """Show a topic's brokers, queues and readers."""
    caller.account_client.collector.note_viewer(topic=wanted.topic)
    found = await caller.account_client.collector.describe_topic(wanted.topic)
    readers = [Reader(group=group) for group in found.groups]
    await asyncio.gather(
        *(_request_lag(caller, wanted.topic, one) for one in readers[:READERS_MAX])
    )
    return TopicShown(described=found, messages=found.count, readers=readers)


async def _request_lag(caller: Caller, topic: str, reader: Reader) -> None:
    try:
        lags = await caller.account_client.collector.group_lags(reader.group)
    except EscrowMQError:
        return
    reader.lag = sum(one.count for one in lags if one.queue.topic == topic)


async def create_topic(caller: Caller, wanted: TopicMade) -> Change:
    """Create a topic, or change the given settings of an existing one."""
    admin = await caller.account_client.open_admin()
    given: dict[str, Any] = {
        "queues": wanted.queues,
        "permission": "" if wanted.permission == "none" else wanted.permission,
        "is_ordered": wanted.is_ordered,
        "attributes": {"message.type": wanted.kind} if wanted.kind else None,
        "broker": wanted.broker,
    }
    if wanted.dry_run:
        return Change.dry_run_answer(await previews.create(admin, wanted.topic, **given))
    await admin.topics.create(wanted.topic, **given)
    return Change(is_dry_run=False, said=f"The topic {wanted.topic} is as you wish.", count=1)


async def delete_topic(caller: Caller, wanted: TopicGone) -> Change:
    """Delete a topic with its messages."""
    admin = await caller.account_client.open_admin()
    found = await previews.delete(admin, wanted.topic)
    if wanted.dry_run:
        return Change.dry_run_answer(found)
    await admin.topics.delete(wanted.topic)
    said = f"{wanted.topic} is deleted, with {found.count} messages."
    return Change(is_dry_run=False, said=said, count=found.count)


OPERATIONS: Final = (
    Operation(name="topics.list", method="GET", path="/topics", wants=TopicsWanted,
              gives=Listed[TopicRow], summary="Topics and what they hold", handler=list_topics),
    Operation(name="topics.show", method="GET", path="/topics/{topic}", wants=TopicWanted,
              gives=TopicShown, summary="A topic queue by queue", handler=show_topic),
    Operation(name="topics.create", method="POST", path="/topics", wants=TopicMade, gives=Change,
              summary="Create or change the topic", handler=create_topic),
    Operation(name="topics.delete", method="DELETE", path="/topics/{topic}", wants=TopicGone,
              gives=Change, summary="Delete the topic", handler=delete_topic),
)  # fmt: skip
