"""Previews of offset changes: which messages a group would get again, and which it would miss."""

from __future__ import annotations

from typing import Final

import msgspec

from escrowmq.base.human_format import format_moment
from escrowmq.client.admin.admin import Admin
from escrowmq.client.admin.groups import Lag
from escrowmq.client.admin.offsets import ResetPosition
from escrowmq.client.admin.previews.preview import ROWS_MAX, Preview, PreviewRow
from escrowmq.client.core.routes import MessageQueue
from escrowmq.errors import EscrowMQError, UsageError

PEEKED_MAX: Final = 8
"""The preview reads the first message of at most this many queues, to describe it."""


class OffsetChanges(msgspec.Struct, kw_only=True):
    """A group's offsets in each queue, before and after a reset."""

    before: dict[MessageQueue, int]
    """Committed offsets before the reset; queues that the group has not read are missing."""
    after: dict[MessageQueue, int]

    def set_back_count(self, queue: MessageQueue) -> int:
        """Return the number of messages by which a queue is set back; negative if messages are
        skipped."""
        return max(0, self.before.get(queue, self.after[queue])) - self.after[queue]

    @property
    def redelivered_count(self) -> int:
        """Number of messages that the group gets once more."""
        return sum(max(0, self.set_back_count(queue)) for queue in self.after)

    @property
    def skipped_count(self) -> int:
        """Number of messages that the group never gets."""
        return sum(max(0, -self.set_back_count(queue)) for queue in self.after)

    def describe(self) -> str:
        """Say in words how many messages would be delivered again and how many skipped."""
        parts = [
            f"{count} messages would be {what}"
            for count, what in (
                (self.redelivered_count, "delivered again"),
                (self.skipped_count, "passed over"),
            )
            if count
        ]
        return " and ".join(parts) or "Nothing would change"


async def compute_changes(
    admin: Admin, group: str, topic: str, to: ResetPosition | int, queue: MessageQueue | None = None
) -> OffsetChanges:
    """Compute the offsets that `admin.offsets.reset` would set, or `admin.offsets.set` for
    one queue."""
    before = committed_offsets(await admin.groups.lag(group, topic=topic))
    if queue is None:
        assert not isinstance(to, int), to
        return OffsetChanges(before=before, after=await admin.offsets.preview(group, topic, to))
    assert isinstance(to, int), to
    await admin.offsets.check_set(queue, to)
    return OffsetChanges(before=before, after={queue: to})


def committed_offsets(lags: list[Lag]) -> dict[MessageQueue, int]:
    """Return the committed offsets by queue."""
    return {one.queue: one.committed for one in lags}


async def reset(
    admin: Admin, group: str, topic: str, to: ResetPosition | int, queue: MessageQueue | None = None
) -> Preview:
    """Preview `admin.offsets.reset`, or `admin.offsets.set` if a queue is given."""
    found = await compute_changes(admin, group, topic, to, queue)
    return Preview(
        said=f"{found.describe()}: {group} in {topic}.",
        count=len(found.after),
        rows=await _change_rows(admin, found),
    )


async def clone(admin: Admin, source: str, target: str, *, topic: str = "") -> Preview:
    """Preview `admin.offsets.clone`. Raises UsageError if both groups are the same."""
    if source == target:
        raise UsageError(f"{source} and {target} are the same group; name another one")
    after = committed_offsets(await admin.offsets.show(source, topic=topic))
    before = committed_offsets(await admin.groups.lag(target, topic=topic))
    found = OffsetChanges(before=before, after={queue: max(0, at) for queue, at in after.items()})
    rows = [
        PreviewRow(
            what=f"{queue.topic} on {queue.broker_name}, queue {queue.queue_id}",
            before=str(before.get(queue, "")),
            after=str(found.after[queue]),
        )
        for queue in sorted(found.after)[:ROWS_MAX]
    ]
    return Preview(
        said=f"{target} would continue where {source} is, in {len(after)} queues. "
        f"{found.describe()}.",
        count=len(after),
        rows=rows,
    )


async def _change_rows(admin: Admin, found: OffsetChanges) -> list[PreviewRow]:
    rows: list[PreviewRow] = []
    for nth, queue in enumerate(sorted(found.after)[:ROWS_MAX]):
        offset, step = found.after[queue], found.set_back_count(queue)
        what = f"{queue.broker_name}, queue {queue.queue_id}"
        if step > 0:
            what += f": {step} again"
            if nth < PEEKED_MAX:
                what += await _describe_first_message(admin, queue, offset)
        elif step < 0:
            what += f": {-step} passed over"
        rows.append(PreviewRow(what=what, before=str(offset + step), after=str(offset)))
    return rows


async def _describe_first_message(admin: Admin, queue: MessageQueue, offset: int) -> str:
    try:
        (first,) = await admin.messages.at(queue, offset)
    except (EscrowMQError, ValueError):
        return ", the first of which is no longer kept"
    keys = f" ({' '.join(first.key_list)})" if first.key_list else ""
    return f", from that of {format_moment(first.stored_ms)}{keys} on"
