"""Queues whose files cannot be written, for example because another user owns their folder.

Their messages wait here, in the queue's order, while those of all other queues become visible. They
are in the log, and derived data do not count as complete past the first of them: a start finds them
there."""

from __future__ import annotations

import errno
import logging
from collections import deque
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from escrowmq.errors import DiskFull, StorageError
from escrowmq.store.consume_queue import ConsumeQueue

RETRY_MS: Final = 1_000
"""The pause between two attempts to write."""

HELD_UNITS_MAX: Final = 100_000
"""Units of all these queues, some 200 bytes each; beyond that they accept no more messages."""

_AT_ONCE: Final = 10_000
"""Units that are written in one turn."""

_OF_ALL_QUEUES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)

_NEVER_MS: Final = (1 << 62) - 1

_log = logging.getLogger(__name__)


def stall_reason(error: Exception) -> str | None:
    """Return why no queue can be written, if the failure to write one says so: the disk is full, or
    the process has no descriptors or memory. None if it concerns that queue alone."""
    cause = error if isinstance(error, OSError) else error.__cause__
    is_of_all = isinstance(cause, OSError) and cause.errno in _OF_ALL_QUEUES
    return str(error) if is_of_all or isinstance(error, DiskFull) else None


class HeldUnit(NamedTuple):
    """A unit that could not be written, with the store time of its record."""

    queue_offset: int
    log_offset: int
    record_size: int
    tags_code: int
    stored_ms: int


class HeldBackQueues:
    """The units of queues that cannot be written, until they can."""

    def __init__(self) -> None:
        self.units: dict[ConsumeQueue, deque[HeldUnit]] = {}
        """The units of each queue that has some, in their order. Other code only reads it."""
        self._count = 0
        self.retry_at_ms = _NEVER_MS
        """The time of the next attempt to write."""

    def add(self, queue: ConsumeQueue, unit: HeldUnit, error: Exception | None = None) -> None:
        """Hold a unit back. `error`: why it could not be written; None if the queue has others
        already."""
        held = self.units.get(queue)
        if held is None:
            held = self.units[queue] = deque()
            self.retry_at_ms = 0
            _log.error(
                "messages of %s/%d are not visible: %s; they are when its file can be written",
                queue.topic, queue.queue_id, error,
            )  # fmt: skip
        held.append(unit)
        self._count += 1
        queue.set_next_offset(unit.queue_offset + 1)

    @property
    def first(self) -> HeldUnit | None:
        """The unit whose record is the first in the log; None if none is held back."""
        return min((held[0] for held in self.units.values()), key=_log_offset, default=None)

    def refusal(self, queue: ConsumeQueue | None) -> str:
        """Return why a queue accepts no more messages; empty if it does."""
        if self._count < HELD_UNITS_MAX or queue not in self.units:
            return ""
        return f"{self._count} messages wait for queues that cannot be written, this one among them"

    @property
    def is_full(self) -> bool:
        """Whether these queues accept no more messages."""
        return self._count >= HELD_UNITS_MAX

    def covers(self, queue: ConsumeQueue, log_offset: int) -> bool:
        """Whether a queue's unit of the record at a log offset is held back."""
        return any(unit.log_offset == log_offset for unit in self.units.get(queue, ()))

    def entries(self, topic: str, queue_offset: int) -> list[tuple[int, int, int]]:
        """Return the units of the first queue of a topic that are held back, from an offset on:
        log offset, record size, tags code."""
        return [
            unit[1:4]
            for queue, held in self.units.items()
            if (queue.topic, queue.queue_id) == (topic, 0)
            for unit in held
            if unit.queue_offset >= queue_offset
        ]

    def forget(self, doomed: Collection[ConsumeQueue]) -> None:
        """Forget the units of queues that will be removed."""
        for queue in doomed:
            self._count -= len(self.units.pop(queue, ()))
        if not self.units:
            self.retry_at_ms = _NEVER_MS

    def write_again(self, now_ms: int) -> Iterator[tuple[ConsumeQueue, HeldUnit]]:
        """Write what can be written now; yield each unit that was."""
        left = _AT_ONCE
        for queue in list(self.units):
            for unit in self._write(queue, left):
                left -= 1
                yield queue, unit
        if not self.units:
            self.retry_at_ms = _NEVER_MS
        else:
            self.retry_at_ms = now_ms + RETRY_MS if left else now_ms

    def _write(self, queue: ConsumeQueue, count_max: int) -> Iterator[HeldUnit]:
        held = self.units[queue]
        while held:
            unit = held[0]
            if count_max <= 0:
                return
            try:
                queue.append_at(*unit[:4])
            except (StorageError, OSError):
                return
            held.popleft()
            self._count -= 1
            count_max -= 1
            yield unit
        del self.units[queue]
        _log.info("all messages of %s/%d are visible now", queue.topic, queue.queue_id)


def _log_offset(unit: HeldUnit) -> int:
    return unit.log_offset
