"""One search box for everything that identifies a message: an id, a key, a position, a time. The
answer says how the text was understood."""

from __future__ import annotations

import datetime as dt
import re
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from escrowmq.aio import MessageQueue
from escrowmq.client.admin.reset_positions import parse_reset_position
from escrowmq.client.core.message import ReceivedMessage
from escrowmq.console.answers import Answer
from escrowmq.console.api.messages import MessageShown, find_message, to_shown
from escrowmq.console.operations import Caller, Operation
from escrowmq.errors import EscrowMQError, NotFound, UsageError
from escrowmq.net.clock import LocalZone, SystemClock

FOUND_MAX: Final = 50
TOPICS_MAX: Final = 200
"""A key is searched in at most this many topics if none is named."""

_HEX: Final = re.compile(r"[0-9A-Fa-f]{32}([0-9A-Fa-f]{24})?")
_PLACE: Final = re.compile(r".+[/:]\d+@\d+")
_TOKEN: Final = re.compile(r"(u1\.)?[A-Za-z0-9_-]{40,}")
_TIME: Final = re.compile(r"\d{1,2}:\d{2}(:\d{2})?|\d{4}-\d\d-\d\dT.*|\d{13}|first")
_TIME_QUEUES_MAX: Final = 16

Taken = Literal["message id", "offset id", "transaction id", "place", "time", "key"]


class Searched(msgspec.Struct, kw_only=True):
    """The text to search for, and the topic."""

    text: Annotated[str, Meta(min_length=1, max_length=1024)]
    topic: Annotated[str, Meta(description="the topic to search; all if empty")] = ""
    as_: Annotated[Literal["", "id", "key", "time"], Meta(description="how to interpret the text")
    ] = msgspec.field(default="", name="as")  # fmt: skip


class Found(Answer, kw_only=True):
    """The messages found, and what the text was taken for."""

    taken_for: Taken
    """What the text was recognised as."""
    items: list[MessageShown]
    transaction: str | None = None
    """The id of the transaction found; GET /transactions/{transaction} shows it in full."""
    searched: int | None = None
    """Number of topics that were searched; null if the search was not by topics."""
    topics: int | None = None
    """Number of topics in the cluster."""


async def search_messages(caller: Caller, wanted: Searched) -> Found:
    """Find messages by an id, a key, a transaction's id, a position or a time."""
    text = wanted.text.strip()
    kind = wanted.as_ or _recognise_kind(text)
    if kind == "time":
        return await _find_by_time(caller, text, wanted.topic)
    if kind in ("place", "id"):
        found = await _find_by_id(caller, text, wanted.topic, is_place=kind == "place")
        if found.items or found.transaction or wanted.as_:
            return found
    elif kind == "transaction":
        return await _find_by_transaction(caller, text)
    return await _find_by_key(caller, text, wanted.topic)


def _recognise_kind(text: str) -> str:
    """Recognise what a text is: an id, a position, a time, a transaction or a key."""
    if _HEX.fullmatch(text):
        return "id"
    if _PLACE.fullmatch(text):
        return "place"
    if _TIME.fullmatch(text):
        return "time"
    return "transaction" if _TOKEN.fullmatch(text) else "key"


async def _searched_topics(caller: Caller, topic: str) -> list[str]:
    if topic:
        return [topic]
    admin = await caller.account_client.open_admin()
    return await admin.topics.names()


async def _find_by_id(caller: Caller, text: str, topic: str, *, is_place: bool) -> Found:
    """Find a message by the id that its producer got, or by the id of a stored copy."""
    taken: Taken = "place" if is_place else "message id"
    if is_place:
        message = await find_message(caller, text, topic)
        return Found(taken_for=taken, items=[to_shown(message, with_body="no")])
    admin = await caller.account_client.open_admin()
    if not topic:
        try:
            message = await admin.messages.get(text)
            return Found(taken_for="offset id", items=[to_shown(message, with_body="no")])
        except (NotFound, UsageError, EscrowMQError):
            pass
    topics = await _searched_topics(caller, topic)
    for nth, name in enumerate(topics[:TOPICS_MAX]):
        try:
            message = await find_message(caller, text, name)
        except EscrowMQError:
            continue
        found = Found(
            taken_for=taken, items=[to_shown(message, with_body="no")], searched=nth + 1,
            topics=len(topics),
        )  # fmt: skip
        found.transaction = (message.transaction_id and text) or None
        return found
    return Found(
        taken_for=taken, items=[], searched=min(len(topics), TOPICS_MAX), topics=len(topics)
    )


async def _find_by_transaction(caller: Caller, text: str) -> Found:
    """Find messages by the signed id of their transaction; a text that is no such id is treated as
    a key."""
    admin = await caller.account_client.open_admin()
    try:
        items = await admin.transactions.show(text)
    except UsageError:
        return await _find_by_key(caller, text, "")
    messages = []
    for item in items:
        try:
            messages.append(await find_message(caller, item.message_id, item.topic))
        except EscrowMQError:
            continue
    return Found(
        taken_for="transaction id", transaction=text,
        items=[to_shown(one, with_body="no") for one in messages],
    )  # fmt: skip


async def _find_by_key(caller: Caller, text: str, topic: str) -> Found:
    admin = await caller.account_client.open_admin()
    topics = await _searched_topics(caller, topic)
    found: list[ReceivedMessage] = []
    searched = 0
    for name in topics[:TOPICS_MAX]:
        try:
            found += await admin.messages.find(name, text, count_max=FOUND_MAX)
        except EscrowMQError:
            if topic:
                raise
            continue
        searched += 1
    found.sort(key=lambda one: one.stored_ms, reverse=True)
    return Found(
        taken_for="key", searched=searched, topics=len(topics),
        items=[to_shown(one, with_body="no") for one in found[:FOUND_MAX]],
    )  # fmt: skip


async def _find_by_time(caller: Caller, text: str, topic: str) -> Found:
    """Find the first messages of a topic that were stored since a time."""
    if not topic:
        raise UsageError(f"{text} is a time; give a topic")
    place = parse_reset_position(
        text, now_ms=SystemClock().now_ms(), zone=LocalZone(), option="text"
    )
    admin = await caller.account_client.open_admin()
    starts = await admin.offsets.preview("TOOLS_CONSUMER", topic, place)
    found: list[ReceivedMessage] = []
    since_ms = int(place.timestamp() * 1000) if isinstance(place, dt.datetime) else 0
    for queue in sorted(starts)[:_TIME_QUEUES_MAX]:
        found += await _messages_at(caller, queue, starts[queue])
    found = [one for one in found if one.stored_ms >= since_ms]
    found.sort(key=lambda one: (one.stored_ms, one.log_offset))
    return Found(
        taken_for="time", items=[to_shown(one, with_body="no") for one in found[:FOUND_MAX]]
    )


async def _messages_at(caller: Caller, queue: MessageQueue, offset: int) -> list[ReceivedMessage]:
    admin = await caller.account_client.open_admin()
    try:
        return await admin.messages.at(queue, offset, count_max=FOUND_MAX)
    except NotFound:
        return []


OPERATIONS: Final = (
    Operation(name="messages.search", method="GET", path="/messages", wants=Searched, gives=Found,
              summary="Find messages by whatever you have of them", handler=search_messages),
)  # fmt: skip
