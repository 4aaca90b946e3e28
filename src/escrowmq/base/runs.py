"""Runs: stretches of one sequence of bytes that are read together. They are kept as the place and
the size of each, numbers of 64 bits as this machine writes them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, Protocol

RUN: Final = struct.Struct("=qq")


class Memory(Protocol):
    """Bytes that are there, as those of a mapped file."""

    def __len__(self) -> int: ...

    def __getitem__(self, span: slice, /) -> bytes: ...


def joined(runs: bytes, base: int, size: int, read: Callable[[int, int], bytes]) -> bytes | None:
    """Their bytes one behind the other, of a file of a size whose first byte has the place `base`;
    None when one of them is not wholly in it."""
    if not _are_within(runs, base, size):
        return None
    return b"".join([read(place - base, count) for place, count in RUN.iter_unpack(runs)])


def sliced(runs: bytes, base: int, memory: Memory) -> bytes | None:
    """The same of what lies in memory, in a third of the time."""
    if not _are_within(runs, base, len(memory)):
        return None
    places = RUN.iter_unpack(runs)
    return b"".join([memory[place - base : place - base + count] for place, count in places])


def _are_within(runs: bytes, base: int, size: int) -> bool:
    end = base + size
    return all(
        base <= place <= end - count and count >= 0 for place, count in RUN.iter_unpack(runs)
    )


def split(data: bytes, runs: bytes) -> list[bytes]:
    """The bytes of each, of those that stand one behind the other."""
    pieces, at = [], 0
    for _, size in RUN.iter_unpack(runs):
        pieces.append(data[at : at + size])
        at += size
    return pieces
