"""The epochs of a log: which epoch wrote which part. An epoch has one master, so two logs that have
the same epoch at an offset have the same bytes there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class EpochStart(NamedTuple):
    """An epoch, and the log offset at which it began."""

    epoch: int
    log_offset: int


History = tuple[EpochStart, ...]
"""Epochs in their order; offsets never decrease. Bytes before the first belong to no epoch."""


def without_empty_epochs(history: Sequence[EpochStart], end: int) -> History:
    """Return the history without epochs that have no bytes in a log that ends at `end`."""
    ends = [*(began.log_offset for began in history[1:]), end]
    return tuple(
        began
        for began, until in zip(history, ends, strict=False)
        if began.log_offset < min(until, end)
    )


def common_end(
    ours: Sequence[EpochStart], our_end: int, theirs: Sequence[EpochStart], their_end: int
) -> int:
    """Return the offset up to which two logs are known to be equal."""
    ours, theirs = without_empty_epochs(ours, our_end), without_empty_epochs(theirs, their_end)
    same = [began for began in ours if began in theirs]
    if not same:
        return 0
    last = same[-1]
    return min(_epoch_end(last, ours, our_end), _epoch_end(last, theirs, their_end))


def _epoch_end(began: EpochStart, history: History, end: int) -> int:
    at = history.index(began) + 1
    return history[at].log_offset if at < len(history) else end


def with_new_epoch(history: Sequence[EpochStart], epoch: int, end: int) -> History:
    """Return the history with one more epoch, which begins at the end of the log."""
    if history:
        assert epoch > history[-1].epoch, (epoch, history[-1])
    return (*without_empty_epochs(history, end), EpochStart(epoch, end))
