"""Runs: stretches of one sequence of bytes that are read together. They are kept as the place and
the size of each, numbers of 64 bits as this machine writes them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

RUN: Final = struct.Struct("=qq")


def joined(runs: bytes, base: int, size: int, read: Callable[[int, int], bytes]) -> bytes | None:
    """Their bytes one behind the other, of a file of a size whose first byte has the place `base`;
    None when one of them is not wholly in it."""
    pieces = []
    for place, run_size in RUN.iter_unpack(runs):
        if not base <= place <= base + size - run_size or run_size < 0:
            return None
        pieces.append(read(place - base, run_size))
    return b"".join(pieces)


def split(data: bytes, runs: bytes) -> list[bytes]:
    """The bytes of each, of those that stand one behind the other."""
    pieces, at = [], 0
    for _, size in RUN.iter_unpack(runs):
        pieces.append(data[at : at + size])
        at += size
    return pieces
