"""The zeros that follow what was written: files are made at their full length."""

from __future__ import annotations

from typing import Final

_BLOCK: Final = bytes(4096)


def without_zeros(data: bytes) -> bytes:
    """All up to the last byte that is none. Compares block by block: 0.05 ms for a MB of zeros, of
    which `rstrip` looks at each (4.6 ms, measured; a start asks for the journal and each queue)."""
    end, size = len(data), len(_BLOCK)
    while end >= size and data[end - size : end] == _BLOCK:
        end -= size
    return data[:end].rstrip(b"\0")
