"""Messages: find them by an id, a key or a position, show and follow them, send them again."""

from __future__ import annotations

import base64
import re
from functools import partial
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from escrowmq.aio import Admin, MessageQueue
from escrowmq.client.admin.previews import messages as previews
from escrowmq.client.core.message import ReceivedMessage
from escrowmq.console.answers import Answer
from escrowmq.console.operations import Caller, Change, ChangeParameters, Operation
from escrowmq.errors import NotFound, UsageError

POSITION_PATTERN: Final = re.compile(r"(.+)[/:]([0-9]{1,9})@([0-9]{1,18})")
"""The form of a message's position: BROKER:QUEUE@OFFSET. Pages show it with a slash in place of the
colon, which is accepted too."""

SHOWN_MAX: Final = 64 * 1024
"""Bytes of a body that are shown unless the whole body is requested."""

TAIL_MAX: Final = 100
TAIL_DEFAULT: Final = 50
TAIL_QUEUES_MAX: Final = 64
"""A tail reads at most this many queues of a topic."""


class MessageShown(Answer, kw_only=True):
    """A message as it is stored."""

    message_id: str
    offset_id: str
    topic: str
    broker: str
    queue_id: int
    queue_offset: int
    tag: str
    keys: list[str]
    properties: dict[str, str]
    system: dict[str, str]
    transaction_id: str
    born_ms: int
    born_host: str
    stored_ms: int
    deliveries_before: int
    body_size: int
    body_base64: str | None = None
    """The first 64 KiB of the body, or all of it if requested; null in lists."""

    @property
    def body(self) -> bytes:
        """The body, as far as it is shown."""
        return base64.b64decode(self.body_base64 or "")


class MessageWanted(msgspec.Struct, kw_only=True):
    """Names the message to show."""

    id: Annotated[
        str,
        Meta(
            min_length=1,
            description="a message id (with its topic), an offset id, or BROKER:QUEUE@OFFSET with "
            "its topic",
        ),
    ]
    topic: str = ""
    whole: Annotated[bool, Meta(description="the whole body")] = False


class TailWanted(msgspec.Struct, kw_only=True):
    """Names the topic whose newest messages to list."""

    topic: Annotated[str, Meta(min_length=1)]
    count: Annotated[int, Meta(ge=1, le=TAIL_MAX)] = TAIL_DEFAULT


class Tail(Answer, kw_only=True):
    """The newest messages of a topic, the newest first."""

    items: list[MessageShown]
    is_part: bool
    """Whether queues were left out."""


class Resend(ChangeParameters, kw_only=True):
    """Names the message to send again, and the topic to send it to."""

    id: Annotated[str, Meta(min_length=1)]
    topic: str = ""
    to: Annotated[str, Meta(description="send to this topic instead of its own")] = ""


class Deliver(ChangeParameters, kw_only=True):
    """Names the message to deliver, and the group member that gets it."""

    id: Annotated[str, Meta(min_length=1)]
    topic: str = ""
    group: Annotated[str, Meta(min_length=1)]
    client_id: Annotated[str, Meta(min_length=1)]


def to_shown(
    message: ReceivedMessage, *, with_body: Literal["no", "part", "whole"]
) -> MessageShown:
    """Convert a message to its form in the API."""
    body = message.body if with_body == "whole" else message.body[:SHOWN_MAX]
    return MessageShown(
        message_id=message.message_id,
        offset_id=message.offset_id,
        topic=message.topic,
        broker=message.broker_name,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        tag=message.tag,
        keys=message.key_list,
        properties=message.properties,
        system=message.system,
        transaction_id=message.transaction_id,
        born_ms=message.born_ms,
        born_host=message.born_host,
        stored_ms=message.stored_ms,
        deliveries_before=message.deliveries_before,
        body_size=len(message.body),
        body_base64=None if with_body == "no" else base64.b64encode(body).decode(),
    )


async def find_message(caller: Caller, name: str, topic: str) -> ReceivedMessage:
    """Find one message, committed or not, by an id, a key or its position."""
    admin = await caller.account_client.open_admin()
    place = _parse_position(name, topic)
    if place is not None:
        found = await admin.messages.at(*place)
        return found[0]
    try:
        return await admin.messages.get(name, topic=topic)
    except NotFound:
        if not topic:
            raise
        return await admin.messages.prepared(name, topic=topic)


def _parse_position(name: str, topic: str) -> tuple[MessageQueue, int] | None:
    """Parse the position of a message. Return None if the text has another form."""
    found = POSITION_PATTERN.fullmatch(name)
    if found is None:
        return None
    if not topic:
        raise UsageError(f"{name} is a place; give its topic")
    broker, queue, offset = found.groups()
    return MessageQueue(topic, broker, int(queue)), int(offset)


async def show_message(caller: Caller, wanted: MessageWanted) -> MessageShown:
    """Show one message, with its body."""
    message = await find_message(caller, wanted.id, wanted.topic)
    return to_shown(message, with_body="whole" if wanted.whole else "part")


async def list_newest(caller: Caller, wanted: TailWanted) -> Tail:
    """List the newest messages of a topic. A page that follows the topic calls this; all its
    viewers share one request."""
    client = caller.account_client
    client.collector.note_viewer(topic=wanted.topic)
    described = await client.collector.describe_topic(wanted.topic)
    queues = [one for one in described.queues if one.max_offset > one.min_offset]
    queues.sort(key=lambda one: one.updated_ms, reverse=True)
    found: list[ReceivedMessage] = []
    admin = await client.open_admin()
    each = -(-wanted.count // max(1, min(len(queues), TAIL_QUEUES_MAX))) + 1
    for status in queues[:TAIL_QUEUES_MAX]:
        first = max(status.min_offset, status.max_offset - each)
        queue, count = status.queue, status.max_offset - first
        found += await client.memo.get_or_request(
            ("tail", queue, first, count),
            partial(read_consecutive, admin, queue, first, count),
            fresh_s=30,
        )
    found.sort(key=lambda one: (one.stored_ms, one.log_offset), reverse=True)
    return Tail(
        items=[to_shown(one, with_body="no") for one in found[: wanted.count]],
        is_part=len(queues) > TAIL_QUEUES_MAX,
    )


async def read_consecutive(
    admin: Admin, queue: MessageQueue, first: int, count: int
) -> list[ReceivedMessage]:
    """Read consecutive messages of a queue. A broker may return fewer per pull than requested, so
    this may take several pulls."""
    found: list[ReceivedMessage] = []
    at = first
    while at < first + count:
        try:
            some = await admin.messages.at(queue, at, count_max=first + count - at)
        except NotFound:
            break
        found += some
        at = some[-1].queue_offset + 1
    return found


async def resend_message(caller: Caller, wanted: Resend) -> Change:
    """Send a copy of a message as a new one, for all groups."""
    admin = await caller.account_client.open_admin()
    message = await find_message(caller, wanted.id, wanted.topic)
    if wanted.dry_run:
        return Change.dry_run_answer(await previews.resend(admin, message, topic=wanted.to))
    sent = await admin.messages.resend(message, topic=wanted.to)
    return Change(is_dry_run=False, said=f"Sent as {sent.message_id}.", count=1)


async def deliver_message(caller: Caller, wanted: Deliver) -> Change:
    """Make one connected member of a group consume a message now, independently of the group's
    offsets."""
    admin = await caller.account_client.open_admin()
    message = await find_message(caller, wanted.id, wanted.topic)
    if wanted.dry_run:
        return Change.dry_run_answer(
            await previews.deliver(admin, message, group=wanted.group, client_id=wanted.client_id)
        )
    await admin.messages.deliver(message, group=wanted.group, client_id=wanted.client_id)
    return Change(is_dry_run=False, said=f"{wanted.client_id} has consumed it.", count=1)


_ONE: Final = "/messages/{id}"
OPERATIONS: Final = (
    Operation(name="messages.show", method="GET", path=_ONE, wants=MessageWanted,
              gives=MessageShown, summary="One message", handler=show_message),
    Operation(name="messages.tail", method="GET", path="/topics/{topic}/messages",
              wants=TailWanted, gives=Tail, summary="The newest messages of a topic",
              handler=list_newest),
    Operation(name="messages.resend", method="POST", path=f"{_ONE}/resend", wants=Resend,
              gives=Change, summary="Send a copy", handler=resend_message),
    Operation(name="messages.deliver", method="POST", path=f"{_ONE}/deliver", wants=Deliver,
              gives=Change, summary="Let a member consume it now", handler=deliver_message),
)  # fmt: skip
