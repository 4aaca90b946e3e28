"""The states of a transaction and their transitions."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class State(enum.IntEnum):
    """The state of a transaction. All except PENDING are final."""

    PENDING = 0
    COMMITTED = 1
    ROLLED_BACK = 2
    EXPIRED = 3
    SETTLED = 4
    """Settled before this process started, with an unknown outcome."""


class Verdict(enum.IntEnum):
    """A producer's or operator's decision about a transaction."""

    UNKNOWN = 0
    COMMIT = 8
    ROLLBACK = 12
    EXPIRE = 1


AFTER: Final = {
    (State.PENDING, Verdict.COMMIT): State.COMMITTED,
    (State.PENDING, Verdict.ROLLBACK): State.ROLLED_BACK,
    (State.PENDING, Verdict.UNKNOWN): State.PENDING,
    (State.PENDING, Verdict.EXPIRE): State.EXPIRED,
}

WANTED: Final = {Verdict.COMMIT: State.COMMITTED, Verdict.ROLLBACK: State.ROLLED_BACK}


def state_after(state: State, verdict: Verdict) -> State:
    """Return the state after a verdict. A settled transaction keeps its state."""
    return AFTER.get((state, verdict), state)


_BLOCK_BITS: Final = 16
_IN_BLOCK: Final = (1 << _BLOCK_BITS) - 1


class OutcomeLedger:
    """Records outcomes by half queue offset, one byte each, in blocks. The oldest blocks are
    dropped."""

    BLOCK_BITS: Final = _BLOCK_BITS

    def __init__(self, blocks_max: int = 1024) -> None:
        self._blocks: dict[int, bytearray] = {}
        self._blocks_max = blocks_max

    def record_outcome(self, queue_offset: int, state: State) -> None:
        """Record the outcome of a transaction."""
        self._block(queue_offset >> self.BLOCK_BITS)[queue_offset & _IN_BLOCK] = state

    def record_outcomes(self, states: Mapping[int, State]) -> None:
        """Record the outcomes of several halves, by queue offset."""
        block, present = bytearray(), -1
        for queue_offset, state in states.items():
            number = queue_offset >> self.BLOCK_BITS
            if number != present:
                block, present = self._block(number), number
            block[queue_offset & _IN_BLOCK] = state

    def _block(self, number: int) -> bytearray:
        block = self._blocks.get(number)
        if block is None:
            if len(self._blocks) >= self._blocks_max:
                del self._blocks[min(self._blocks)]
            block = self._blocks[number] = bytearray(1 << self.BLOCK_BITS)
        return block

    def outcome(self, queue_offset: int) -> State | None:
        """Return the outcome of a transaction; None if none is recorded (any more)."""
        block = self._blocks.get(queue_offset >> self.BLOCK_BITS)
        if block is None:
            return None
        return State(block[queue_offset & _IN_BLOCK]) or None
