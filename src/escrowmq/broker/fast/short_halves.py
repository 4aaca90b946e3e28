"""Pending halves as raw bytes of the log, for the native lane, which puts the messages of plain
ones."""

from __future__ import annotations

from itertools import accumulate
from typing import Final

from escrowmq.store.commit_log import CommitLog

_PIECE_SIZE: Final = 2_048
"""Bytes that are read of each half where several are read together."""

_ALONE_SIZE: Final = 8_192
"""Bytes that are read of a half alone."""


def bytes_of_halves(log: CommitLog, log_offsets: list[int]) -> tuple[bytes, list[int]]:
    """Bytes of the log with the halves at these offsets, long ones possibly incomplete, and where
    each begins in them."""
    if len(log_offsets) == 1:
        return log.read(log_offsets[0], _ALONE_SIZE), [0]
    first = min(log_offsets)
    size = max(log_offsets) - first + _PIECE_SIZE
    if size <= _PIECE_SIZE * len(log_offsets):
        return log.read(first, size), [at - first for at in log_offsets]
    pieces = [log.read(at, _PIECE_SIZE) for at in log_offsets]
    ends = accumulate(map(len, pieces), initial=0)
    return b"".join(pieces), list(ends)[:-1]
