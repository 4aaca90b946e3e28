"""Groups let go on elsewhere, with a preview of what they would be handed again, or miss."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from escrowmq.aio import MessageQueue
from escrowmq.base.spoken import moment
from escrowmq.client.admin.groups import Lag
from escrowmq.client.admin.places import read_place
from escrowmq.console.api.settling import ROWS_MAX
from escrowmq.console.operations import Asking, Change, Deed, Operation, Row
from escrowmq.errors import EscrowMQError, UsageError
from escrowmq.net.clock import LocalZone, SystemClock

PEEKED_MAX: Final = 8
"""Queues whose first message is looked at for a preview."""


class Reset(Deed, kw_only=True):
    """Where a group is to go on."""

    group: Annotated[str, Meta(min_length=1)]
    topic: Annotated[str, Meta(min_length=1)]
    to: Annotated[
        str,
        Meta(description="first, last, 09:00 (today, where the console runs), "
             "2026-11-21T10:00:00Z, or milliseconds since the epoch; with queue_id an offset"),
    ]  # fmt: skip
    queue_id: Annotated[int, Meta(ge=0, description="only this queue")] | None = None
    broker: Annotated[str, Meta(description="the queue's; needed when there are several")] = ""


async def reset(asking: Asking, wanted: Reset) -> Change:
    """Set a group back or forward."""
    admin = await asking.desk.admin()
    lags = {one.queue: one for one in await admin.groups.lag(wanted.group, topic=wanted.topic)}
    if wanted.queue_id is None:
        place = read_place(wanted.to, now_ms=SystemClock().now_ms(), zone=LocalZone())
        do = admin.offsets.preview if wanted.dry_run else admin.offsets.reset
        found = await do(wanted.group, wanted.topic, place)
    else:
        queue = await _queue(asking, wanted)
        found = {queue: _offset(wanted.to)}
        if not wanted.dry_run:
            await admin.offsets.set(wanted.group, queue, found[queue])
    again, missed = _moved(found, lags)
    if not wanted.dry_run:
        said = f"{wanted.group} goes on elsewhere in {len(found)} queues of {wanted.topic}."
        return Change(is_dry_run=False, said=said, count=again + missed)
    parts = [
        f"{count} messages {what}"
        for count, what in ((again, "would be delivered again"), (missed, "would be passed over"))
        if count
    ]
    return Change(
        is_dry_run=True,
        said=f"{' and '.join(parts) or 'Nothing would change'}: {wanted.group} in {wanted.topic}.",
        count=len(found),
        rows=await _rows(asking, found, lags),
    )


def _offset(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(1 << 63)):
        raise UsageError(f"to={text!r}: with queue_id an offset is expected")
    return int(text)


async def _queue(asking: Asking, wanted: Reset) -> MessageQueue:
    assert wanted.queue_id is not None
    broker = wanted.broker
    if not broker:
        admin = await asking.desk.admin()
        brokers = [info.broker for info in (await admin.topics.describe(wanted.topic)).brokers]
        if len(brokers) != 1:
            raise UsageError(f"{wanted.topic} is on {', '.join(brokers)}; say which is meant")
        broker = brokers[0]
    return MessageQueue(wanted.topic, broker, wanted.queue_id)


def _moved(found: dict[MessageQueue, int], lags: dict[MessageQueue, Lag]) -> tuple[int, int]:
    """How many messages it would get again, and how many it would miss."""
    again = missed = 0
    for queue, offset in found.items():
        step = _before(queue, offset, lags) - offset
        again += max(0, step)
        missed += max(0, -step)
    return again, missed


def _before(queue: MessageQueue, otherwise: int, lags: dict[MessageQueue, Lag]) -> int:
    known = lags.get(queue)
    return otherwise if known is None else max(0, known.committed)


async def _rows(
    asking: Asking, found: dict[MessageQueue, int], lags: dict[MessageQueue, Lag]
) -> list[Row]:
    rows: list[Row] = []
    admin = await asking.desk.admin()
    for nth, queue in enumerate(sorted(found)[:ROWS_MAX]):
        offset, before = found[queue], _before(queue, found[queue], lags)
        what = f"{queue.broker_name}, queue {queue.queue_id}"
        if offset < before:
            what += f": {before - offset} again"
            if nth < PEEKED_MAX:
                try:
                    (first,) = await admin.messages.at(queue, offset)
                    keys = f" ({' '.join(first.key_list)})" if first.key_list else ""
                    what += f", from that of {moment(first.stored_ms)}{keys} on"
                except (EscrowMQError, ValueError):
                    what += ", the first of which is not kept any more"
        elif offset > before:
            what += f": {offset - before} passed over"
        rows.append(Row(what=what, before=str(before), after=str(offset)))
    return rows


OPERATIONS: Final = (
    Operation(name="offsets.reset", method="POST", path="/groups/{group}/offsets", wants=Reset,
              gives=Change, summary="Let the group go on elsewhere", handler=reset),
)  # fmt: skip
