"""Runs: ranges of one sequence of bytes that are read together, stored as position and size of
each, native 64-bit numbers."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, Protocol

RUN: Final = struct.Struct("=qq")


class Memory(Protocol):
    """Bytes in memory, such as those of a mapped file."""

    def __len__(self) -> int: ...

    def __getitem__(self, span: slice, /) -> bytes: ...


def join_runs(runs: bytes, base: int, size: int, read: Callable[[int, int], bytes]) -> bytes | None:
    """Return the bytes of the runs, concatenated, from a file of this size whose first byte is at
    position `base`. None if a run is not completely inside."""
    if not _are_within(runs, base, size):
        return None
    return b"".join([read(place - base, count) for place, count in RUN.iter_unpack(runs)])


def slice_runs(runs: bytes, base: int, memory: Memory) -> bytes | None:
    """Do what `join_runs` does for bytes in memory, in a third of the time."""
    if not _are_within(runs, base, len(memory)):
        return None
    places = RUN.iter_unpack(runs)
    return b"".join([memory[place - base : place - base + count] for place, count in places])


def _are_within(runs: bytes, base: int, size: int) -> bool:
    end = base + size
    return all(
        base <= place <= end - count and count >= 0 for place, count in RUN.iter_unpack(runs)
    )


def split_runs(data: bytes, runs: bytes) -> list[bytes]:
    """Split the concatenation of runs into the bytes of each."""
    pieces, at = [], 0
    for _, size in RUN.iter_unpack(runs):
        pieces.append(data[at : at + size])
        at += size
    return pieces
