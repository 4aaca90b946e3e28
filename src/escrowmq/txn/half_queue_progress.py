"""Progress in the queues of halves and op records, stored in the form of RocketMQ's consumer
offsets: a start reads both queues from there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

_OPS_WATCHED_MAX: Final = 65_536
"""The most entries for op records that may still be needed. A single old pending half keeps all of
them."""


class HalfQueueProgress:
    """Tracks which op records are still needed, by the halves that they name."""

    def __init__(self) -> None:
        self._ops: deque[tuple[int, int]] = deque()
        """For each op record: its queue offset and the highest half offset that it names."""
        self._op_next = 0

    def start_at(self, op_offset: int) -> None:
        """Set the first op record that is needed."""
        self._op_next = op_offset

    def add_op_record(self, op_queue_offset: int, half_offsets: Iterable[int]) -> None:
        """Add a stored op record and the halves that it names."""
        assert not self._ops or self._ops[-1][0] < op_queue_offset, "in the queue's order"
        self._ops.append((op_queue_offset, max(half_offsets, default=-1)))
        if len(self._ops) > _OPS_WATCHED_MAX:
            self._merge_entries()

    def _merge_entries(self) -> None:
        """Merge pairs of entries, to save memory. The progress of op records then advances a little
        later."""
        ops = list(self._ops)
        pairs = zip(ops[::2], ops[1::2], strict=False)
        self._ops = deque((second[0], max(first[1], second[1])) for first, second in pairs)
        if len(ops) % 2:
            self._ops.append(ops[-1])

    def first_needed_op(self, half_progress: int) -> int:
        """Return the queue offset of the first op record that is still needed, if all halves before
        `half_progress` have ended."""
        while self._ops and self._ops[0][1] < half_progress:
            self._op_next = self._ops.popleft()[0] + 1
        return self._op_next
