"""Moves the offsets of a group, with a preview of the messages that it would get again, or skip."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from escrowmq.aio import MessageQueue
from escrowmq.client.admin.offsets import ResetPosition
from escrowmq.client.admin.previews import offsets as previews
from escrowmq.client.admin.reset_positions import parse_reset_position
from escrowmq.console.operations import Caller, Change, ChangeParameters, Operation
from escrowmq.errors import UsageError
from escrowmq.net.clock import LocalZone, SystemClock


class Reset(ChangeParameters, kw_only=True):
    """Where a group should continue."""

    group: Annotated[str, Meta(min_length=1)]
    topic: Annotated[str, Meta(min_length=1)]
    to: Annotated[
        str,
        Meta(description="first, last, 09:00 (today, in the console's time zone), "
            "2026-11-21T10:00:00Z, or milliseconds since the epoch; with queue_id "
            "an offset"),
    ]  # fmt: skip
    queue_id: Annotated[int, Meta(ge=0, description="only this queue")] | None = None
    broker: Annotated[
        str, Meta(description="the queue's broker; required if several have the topic")
    ] = ""


async def reset_offsets(caller: Caller, wanted: Reset) -> Change:
    """Move the offsets of a group back or forward."""
    admin = await caller.account_client.open_admin()
    place: ResetPosition | int
    queue: MessageQueue | None = None
    if wanted.queue_id is None:
        place = parse_reset_position(wanted.to, now_ms=SystemClock().now_ms(), zone=LocalZone())
    else:
        queue, place = await _find_queue(caller, wanted), _parse_offset(wanted.to)
    if wanted.dry_run:
        return Change.dry_run_answer(
            await previews.reset(admin, wanted.group, wanted.topic, place, queue)
        )
    before = previews.committed_offsets(await admin.groups.lag(wanted.group, topic=wanted.topic))
    if queue is not None and isinstance(place, int):
        await admin.offsets.set(wanted.group, queue, place)
        after = {queue: place}
    else:
        assert not isinstance(place, int)
        after = await admin.offsets.reset(wanted.group, wanted.topic, place)
    moves = previews.OffsetChanges(before=before, after=after)
    said = f"{wanted.group} goes on elsewhere in {len(after)} queues of {wanted.topic}."
    return Change(is_dry_run=False, said=said, count=moves.redelivered_count + moves.skipped_count)


def _parse_offset(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(1 << 63)):
        raise UsageError(f"to={text!r}: with queue_id an offset is expected")
    return int(text)


async def _find_queue(caller: Caller, wanted: Reset) -> MessageQueue:
    assert wanted.queue_id is not None
    broker = wanted.broker
    if not broker:
        admin = await caller.account_client.open_admin()
        brokers = [info.broker for info in (await admin.topics.describe(wanted.topic)).brokers]
        if len(brokers) != 1:
            raise UsageError(f"{wanted.topic} is on {', '.join(brokers)}; name one")
        broker = brokers[0]
    return MessageQueue(wanted.topic, broker, wanted.queue_id)


OPERATIONS: Final = (
    Operation(name="offsets.reset", method="POST", path="/groups/{group}/offsets", wants=Reset,
              gives=Change, summary="Let the group go on elsewhere", handler=reset_offsets),
)  # fmt: skip
