"""How far the queues of halves and of op records are done with, as RocketMQ's consumer offsets say
it: a start reads on from there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

_OPS_WATCHED_MAX: Final = 65_536
"""Op records that may matter still, or groups of them; one old half holds them all back."""


class Progress:
    """Op records, and the halves that they name."""

    def __init__(self) -> None:
        self._ops: deque[tuple[int, int]] = deque()
        """Op queue offset and the highest half offset that the record names."""
        self._op_next = 0

    def start(self, op_offset: int) -> None:
        """Op records before this one are done with."""
        self._op_next = op_offset

    def note(self, op_queue_offset: int, half_offsets: Iterable[int]) -> None:
        """An op record is there."""
        assert not self._ops or self._ops[-1][0] < op_queue_offset, "in the queue's order"
        self._ops.append((op_queue_offset, max(half_offsets, default=-1)))
        if len(self._ops) > _OPS_WATCHED_MAX:
            self._thin_out()

    def _thin_out(self) -> None:
        """Let each two count as one: the progress of op records is told a little later then."""
        ops = list(self._ops)
        pairs = zip(ops[::2], ops[1::2], strict=False)
        self._ops = deque((second[0], max(first[1], second[1])) for first, second in pairs)
        if len(ops) % 2:
            self._ops.append(ops[-1])

    def op_offset(self, half_progress: int) -> int:
        """The first op record that still matters when halves from `half_progress` on do."""
        while self._ops and self._ops[0][1] < half_progress:
            self._op_next = self._ops.popleft()[0] + 1
        return self._op_next
