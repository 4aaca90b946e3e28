"""Progress in the queues of halves and op records, in the form of RocketMQ's consumer offsets: a
start reads from there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

_OPS_WATCHED_MAX: Final = 65_536
"""Op records, or groups of them, that may still matter; one old half keeps them all."""


class Progress:
    """Op records, and the halves that they name."""

    def __init__(self) -> None:
        self._ops: deque[tuple[int, int]] = deque()
        """Op queue offset and the highest half offset that the record names."""
        self._op_next = 0

    def start(self, op_offset: int) -> None:
        """Op records before this one are not needed."""
        self._op_next = op_offset

    def note(self, op_queue_offset: int, half_offsets: Iterable[int]) -> None:
        """An op record was stored."""
        assert not self._ops or self._ops[-1][0] < op_queue_offset, "in the queue's order"
        self._ops.append((op_queue_offset, max(half_offsets, default=-1)))
        if len(self._ops) > _OPS_WATCHED_MAX:
            self._thin_out()

    def _thin_out(self) -> None:
        """Merge pairs of entries: the progress of op records then advances a little later."""
        ops = list(self._ops)
        pairs = zip(ops[::2], ops[1::2], strict=False)
        self._ops = deque((second[0], max(first[1], second[1])) for first, second in pairs)
        if len(ops) % 2:
            self._ops.append(ops[-1])

    def op_offset(self, half_progress: int) -> int:
        """The first op record that still matters if halves from `half_progress` on do."""
        while self._ops and self._ops[0][1] < half_progress:
            self._op_next = self._ops.popleft()[0] + 1
        return self._op_next
