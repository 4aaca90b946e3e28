"""Orderly pops: only one batch of a queue is in flight at a time (ConsumerOrderInfoManager).

A group's batch of a queue is kept here and in `config/consumerOrderInfo.json`: its messages, since
when and until when they are invisible, which are acknowledged, and how often each was delivered
before. The group's offset stays at the first unacknowledged message. So if the file is lost, or too
old after a kill, the rest of the batch is redelivered immediately.

If RocketMQ does not know the batch of an acknowledged message, it takes all messages before it for
acknowledged too.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from escrowmq.codec import fastjson
from escrowmq.delivery.pop_auto_renewal import (
    NOBODY,
    IsConnected,
    never_renewed,
    renewed_invisible_ms,
)

PATH: Final = "config/consumerOrderInfo.json"
NEVER_MS: Final = 1 << 62
ILLEGAL: Final = -1
IGNORED: Final = -2

_FORGET_MS: Final = 24 * 3600 * 1000
_JOINT: Final = "@"

GroupQueue = tuple[str, str, int]
"""Group, topic, queue id."""


class OrderedBatch(msgspec.Struct, kw_only=True):
    """The last batch popped from a queue. The fields are in RocketMQ's order, with its names."""

    attempt_id: str | None = msgspec.field(default=None, name="a")
    acked: int = msgspec.field(default=0, name="cm")
    invisible_ms: int | None = msgspec.field(default=None, name="i")
    consumed_ms: int = msgspec.field(default=0, name="l")
    diffs: list[int] = msgspec.field(default_factory=list, name="o")
    """The first queue offset, then the distances of the other messages from it."""

    counts: dict[int, int] | None = msgspec.field(default=None, name="oc")
    visible_ms: dict[int, int] | None = msgspec.field(default=None, name="ot")
    pop_ms: int = msgspec.field(default=0, name="popTime")

    def offsets(self) -> list[int]:
        """Return the queue offsets of the messages."""
        first = self.diffs[0] if self.diffs else 0
        return [first, *(first + diff for diff in self.diffs[1:])] if self.diffs else []

    def visible_again_ms(self) -> int:
        """Return when the last unacknowledged message becomes visible again; 0 if all are
        acknowledged."""
        changed = self.visible_ms or {}
        until_ms = self.pop_ms + (self.invisible_ms or 0)
        return max(
            (
                changed.get(offset, until_ms)
                for index, offset in enumerate(self.offsets())
                if not self.acked >> index & 1
            ),
            default=0,
        )

    def shift_future_times(self, now_ms: int) -> None:
        """Shift the batch's times to now if they are in the future, because the clock was ahead."""
        ahead_ms = self.pop_ms - now_ms
        if ahead_ms > 0:
            changed = self.visible_ms or {}
            until_ms = self.pop_ms + (self.invisible_ms or 0)
            self.visible_ms = {
                offset: changed.get(offset, until_ms) - ahead_ms for offset in self.offsets()
            }

    def clock_leapt(self, by_ms: int) -> None:
        """Shift the batch's times by the clock's jump: messages stay invisible for their full
        time."""
        self.consumed_ms += by_ms
        if self.invisible_ms:
            self.invisible_ms += by_ms
        if self.visible_ms:
            self.visible_ms = {offset: at + by_ms for offset, at in self.visible_ms.items()}

    def next_offset(self) -> int:
        """Return the offset of the first unacknowledged message, or the offset after the last
        message."""
        offsets = self.offsets()
        for index, offset in enumerate(offsets):
            if not self.acked >> index & 1:
                return offset
        return offsets[-1] + 1 if offsets else IGNORED


class OrderlyBatches:
    """The last batch of each queue of all orderly groups."""

    def __init__(self, is_there: IsConnected = never_renewed) -> None:
        self._batches: dict[GroupQueue, OrderedBatch] = {}
        self._frees: list[tuple[int, GroupQueue]] = []
        self._scheduled: dict[GroupQueue, int] = {}
        self._holders: dict[GroupQueue, int] = {}
        """For each queue: the consumer whose batch is renewed while that consumer is connected."""
        self._clock_leaps_ms: dict[GroupQueue, int] = {}
        """By queue: how far the clock was set forward since its batch was popped."""
        self._is_there = is_there
        self.is_changed = False

    @property
    def has_any(self) -> bool:
        """Whether there are any batches."""
        return bool(self._batches)

    # -- the file --------------------------------------------------------------------------------

    def load(self, data: bytes | None, now_ms: int) -> None:
        """Load consumerOrderInfo.json. If it cannot be parsed, raises, and the table is empty."""
        self._batches.clear()
        found: list[tuple[GroupQueue, OrderedBatch]] = []
        raw: dict[str, Any] = fastjson.decode_fastjson(data) if data else {}
        for key, queues in (raw.get("table") or {}).items():
            topic, _, group = key.partition(_JOINT)
            for queue_id, value in queues.items():
                batch = msgspec.convert(value, OrderedBatch, strict=False)
                found.append(((group, topic, int(queue_id)), batch))
        for line, batch in found:
            batch.shift_future_times(now_ms)
            self._put_batch(line, batch)

    def catch_up(self, group_offset: Callable[[GroupQueue], int]) -> None:
        """Take the messages before a group's offset for acknowledged, and drop batches that are
        finished: after a kill the file may be older than the offsets, which come from the log."""
        for line, batch in list(self._batches.items()):
            end, offsets = group_offset(line), batch.offsets()
            if not offsets or end <= offsets[0]:
                continue
            if end > offsets[-1]:
                self.drop_batch(line)
                continue
            for index, offset in enumerate(offsets):
                if offset < end:
                    batch.acked |= 1 << index
            self.is_changed = True

    def mark_saved(self) -> None:
        """Note that the result of `content_to_save` is being stored: later changes need another
        save."""
        self.is_changed = False

    def content_to_save(self, is_there: Callable[[GroupQueue], bool], now_ms: int) -> bytes:
        """Return the present content of consumerOrderInfo.json. Drop batches that are a day old, or
        whose queue or group no longer exists."""
        table: dict[str, dict[str, OrderedBatch]] = {}
        for line, batch in list(self._batches.items()):
            if now_ms - batch.consumed_ms > _FORGET_MS or not is_there(line):
                del self._batches[line]
                continue
            group, topic, queue_id = line
            table.setdefault(f"{topic}{_JOINT}{group}", {})[str(queue_id)] = batch
        return msgspec.json.format(fastjson.encode({"table": table}), indent=2)

    # -- handing out -----------------------------------------------------------------------------

    def is_blocked(
        self, line: GroupQueue, *, attempt_id: str | None, invisible_ms: int, now_ms: int
    ) -> bool:
        """Whether a queue must not be popped, because a batch of it is in flight. A repeated
        attempt of the consumer that has the batch is not blocked."""
        batch = self._batches.get(line)
        if batch is None or (batch.attempt_id is not None and batch.attempt_id == attempt_id):
            return False
        if not batch.invisible_ms or batch.invisible_ms <= 0:
            batch.invisible_ms = invisible_ms
        return now_ms < batch.visible_again_ms() or self._renew(line, batch, now_ms)

    def record_pop(
        self,
        line: GroupQueue,
        queue_offsets: Sequence[int],
        *,
        attempt_id: str | None,
        invisible_ms: int,
        now_ms: int,
        holder: int = NOBODY,
    ) -> tuple[dict[int, int], int]:
        """Record a popped batch. Return how often each message was delivered before, for those that
        were, and the lowest of these numbers; 0 if any message is new."""
        first = queue_offsets[0]
        assert all(offset >= first >= 0 for offset in queue_offsets), queue_offsets
        batch = OrderedBatch(
            attempt_id=attempt_id,
            invisible_ms=invisible_ms,
            consumed_ms=now_ms,
            diffs=[first, *(offset - first for offset in queue_offsets[1:])],
            pop_ms=now_ms,
        )
        old = self._batches.get(line)
        if old is not None:
            batch.counts = _delivery_counts(old, batch, queue_offsets)
        self._clock_leaps_ms.pop(line, None)
        self._holders.pop(line, None)
        if holder:
            self._holders[line] = holder
        self._put_batch(line, batch)
        self.is_changed = True
        counts = batch.counts or {}
        is_all = len(counts) == len(queue_offsets)
        return counts, min(counts.values()) if counts and is_all else 0

    def acknowledge(
        self, line: GroupQueue, queue_offset: int, pop_ms: int, *, group_offset: int
    ) -> int:
        """Acknowledge a message. Return the group's new offset; ILLEGAL if it was not in flight;
        IGNORED if it was or will be redelivered. Messages of an unknown batch must be acknowledged
        in order."""
        batch = self._batches.get(line)
        if batch is None:
            return queue_offset + 1 if queue_offset == group_offset else IGNORED
        if not batch.diffs:
            return ILLEGAL
        if batch.pop_ms != pop_ms:
            return IGNORED
        offsets = batch.offsets()
        if queue_offset not in offsets:
            return ILLEGAL
        batch.acked |= 1 << offsets.index(queue_offset)
        self.is_changed = True
        self._schedule(line, batch)
        return batch.next_offset()

    def set_visible_ms(
        self, line: GroupQueue, queue_offset: int, pop_ms: int, visible_ms: int
    ) -> None:
        """Set when a message becomes visible again."""
        batch = self._batches.get(line)
        if batch is not None and batch.pop_ms == pop_ms and queue_offset in batch.offsets():
            if batch.visible_ms is None:
                batch.visible_ms = {}
            batch.visible_ms[queue_offset] = visible_ms
            self.is_changed = True
            self._schedule(line, batch)

    def _renew(self, line: GroupQueue, batch: OrderedBatch, now_ms: int) -> bool:
        """Renew a batch if its holder is connected. Return whether this blocks the queue."""
        holder = self._holders.get(line)
        if holder is None:
            return False
        leapt_ms = self._clock_leaps_ms.get(line, 0)
        invisible_ms = (
            renewed_invisible_ms(batch.pop_ms + leapt_ms, now_ms) if self._is_there(holder) else 0
        )
        if not invisible_ms or not batch.visible_again_ms():
            del self._holders[line]
            self._clock_leaps_ms.pop(line, None)
            return False
        batch.invisible_ms = invisible_ms + leapt_ms
        self.is_changed = True
        return now_ms < batch.visible_again_ms()

    def drop_batch(self, line: GroupQueue) -> None:
        """Drop the batch of a queue whose offset was reset, so that the queue can be popped."""
        if self._batches.pop(line, None) is not None:
            self.is_changed = True

    def forget_topic(self, topic: str) -> None:
        """Drop the batches of a deleted topic."""
        self._forget([line for line in self._batches if line[1] == topic])

    def forget_group(self, group: str) -> None:
        """Drop the batches of a deleted group."""
        self._forget([line for line in self._batches if line[0] == group])

    def _forget(self, lines: list[GroupQueue]) -> None:
        for line in lines:
            self.drop_batch(line)
            self._holders.pop(line, None)
            self._clock_leaps_ms.pop(line, None)

    def clock_leapt(self, by_ms: int) -> None:
        """Shift all times by the clock's jump, so that no queue becomes free early."""
        for batch in self._batches.values():
            batch.clock_leapt(by_ms)
            self.is_changed = True
        for line in self._holders:
            self._clock_leaps_ms[line] = self._clock_leaps_ms.get(line, 0) + by_ms
        self._frees = [(at_ms + by_ms, line) for at_ms, line in self._frees]
        self._scheduled = {line: at_ms + by_ms for line, at_ms in self._scheduled.items()}

    # -- when queues become free -----------------------------------------------------------------

    def _put_batch(self, line: GroupQueue, batch: OrderedBatch) -> None:
        self._batches[line] = batch
        self._schedule(line, batch)

    def _schedule(self, line: GroupQueue, batch: OrderedBatch) -> None:
        visible_again_ms = batch.visible_again_ms()
        # A later time needs no entry: `take_freed_queues` runs at the earlier one and schedules
        # again.
        if visible_again_ms and visible_again_ms < self._scheduled.get(line, NEVER_MS):
            self._scheduled[line] = visible_again_ms
            heapq.heappush(self._frees, (visible_again_ms, line))

    def take_freed_queues(self, now_ms: int) -> list[GroupQueue]:
        """Return the queues that have become free since the last call."""
        found = []
        while self._frees and self._frees[0][0] <= now_ms:
            at_ms, line = heapq.heappop(self._frees)
            if self._scheduled.get(line) != at_ms:
                continue  # an earlier time replaced it
            del self._scheduled[line]
            batch = self._batches.get(line)
            if batch is None:
                continue
            if batch.visible_again_ms() <= now_ms and not self._renew(line, batch, now_ms):
                found.append(line)
            else:
                self._schedule(line, batch)
        return found

    def wake_at_ms(self) -> int:
        """The time at which `take_freed_queues` may return something next."""
        return self._frees[0][0] if self._frees else NEVER_MS


def _delivery_counts(
    old: OrderedBatch, new: OrderedBatch, queue_offsets: Sequence[int]
) -> dict[int, int]:
    before = old.counts or {}
    if old.attempt_id is not None and old.attempt_id == new.attempt_id:
        return before
    had = set(old.offsets())
    return {offset: before.get(offset, 0) + 1 for offset in queue_offsets if offset in had}
