"""Reads pending halves as raw bytes of the log, for the native lane."""

from __future__ import annotations

from itertools import accumulate
from typing import Final

from escrowmq.store.commit_log import CommitLog

_PIECE_SIZE: Final = 2_048
"""Bytes to read of each half when several are read."""

_ALONE_SIZE: Final = 8_192
"""Bytes to read of a half when it is the only one."""


def read_halves(log: CommitLog, log_offsets: list[int]) -> tuple[bytes, list[int]]:
    """Read the halves at these log offsets; long halves may be incomplete. Return the bytes, and
    the position of each half in them."""
    if len(log_offsets) == 1:
        return log.read(log_offsets[0], _ALONE_SIZE), [0]
    first = min(log_offsets)
    size = max(log_offsets) - first + _PIECE_SIZE
    if size <= _PIECE_SIZE * len(log_offsets):
        return log.read(first, size), [at - first for at in log_offsets]
    pieces = [log.read(at, _PIECE_SIZE) for at in log_offsets]
    ends = accumulate(map(len, pieces), initial=0)
    return b"".join(pieces), list(ends)[:-1]
