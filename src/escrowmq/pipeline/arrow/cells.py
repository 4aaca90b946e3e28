"""Makes Arrow arrays from parts of a buffer, without a Python object per value. numpy finds the
positions of the values; the native lane copies them, or Arrow if the lane is not installed."""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from escrowmq.base.human_format import LAST_MS
from escrowmq.lane import native

Numbers = Any
"""A numpy array of numbers."""

Array = Any
"""An Arrow array."""

BUFFER_SIZE_MAX: Final = (1 << 31) - 1
"""Limit of a buffer's bytes, because Arrow's offsets of strings are 32 bits wide."""

_DAY_MS: Final = 86_400_000
_FIRST_MS: Final = -62_135_596_800_000 + _DAY_MS
_LAST_MS: Final = LAST_MS - _DAY_MS

_HEX: Final = np.frombuffer(bytes(range(256)).hex().upper().encode(), dtype="<u2")


class ByteBuffer:
    """A buffer, with methods to read numbers and bytes at any positions."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self.u1 = np.frombuffer(data, dtype=np.uint8)

    def read_numbers(self, at: Numbers, kind: str) -> Numbers:
        """The numbers of a type (">i4", ">i8", ...) that start at these positions, in native byte
        order: 2 ns a number with the lane."""
        found = (
            self._gather_numbers(at, kind)
            if native.copy_numbers is None
            else self._copy_numbers(at, kind)
        )
        return found.astype(np.dtype(kind).newbyteorder("="), copy=False)

    def _copy_numbers(self, at: Numbers, kind: str) -> Numbers:
        assert native.copy_numbers is not None
        places = np.ascontiguousarray(at, dtype=np.int64)
        taken = native.copy_numbers(self.data, places, np.dtype(kind).itemsize)
        return np.frombuffer(taken, dtype=kind)

    def _gather_numbers(self, at: Numbers, kind: str) -> Numbers:
        """Read the numbers without the lane, by one unaligned view and one gather: 4 ns a number
        and more."""
        width = np.dtype(kind).itemsize
        view = np.ndarray(
            shape=(max(0, self.size - width + 1),), dtype=kind, buffer=self.data, strides=(1,)
        )
        return view[at]

    def read_cells(self, start: Numbers, end: Numbers, kind: Any) -> Array:  # noqa: ANN401 - an Arrow type
        """The bytes from each start to its end, as binary or strings. The positions must not
        decrease."""
        found = (
            self._slice_cells(start, end)
            if native.copy_cells is None
            else self._copy_cells(start, end)
        )
        return found if kind == pa.binary() else to_text(found)

    def _copy_cells(self, start: Numbers, end: Numbers) -> Array:
        """Copy the cells with the lane: 15 ns a cell; `_slice_cells` takes 40 and more."""
        assert native.copy_cells is not None
        places = (np.ascontiguousarray(each, dtype=np.int64) for each in (start, end))
        bounds, values = native.copy_cells(self.data, *places)
        return binary_array(len(start), bounds, values)

    def _slice_cells(self, start: Numbers, end: Numbers) -> Array:
        """Make the cells without the lane. The buffer becomes an array in which the cells alternate
        with the bytes between them; Arrow then takes every other value."""
        count = len(start)
        bounds = np.empty(2 * count + 1, dtype=np.int32)
        bounds[0:-1:2], bounds[1::2] = start, end
        bounds[-1] = end[-1] if count else 0
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(self.data)]
        whole = pa.Array.from_buffers(pa.binary(), 2 * count, buffers)
        return whole.take(pa.array(np.arange(0, 2 * count, 2)))


def binary_array(
    count: int, bounds: bytes, values: bytes, there: bytes = b"", missing: int = 0
) -> Array:
    """Make an array of binary values from cells that the lane has copied. `there` has one bit per
    value, set if the value is not null; `missing` is the number of nulls."""
    mask = pa.py_buffer(there) if missing else None
    buffers = [mask, pa.py_buffer(bounds), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), count, buffers, null_count=missing)


def to_text(found: Array) -> Array:
    """Convert binary values to UTF-8; invalid bytes become the replacement character."""
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [
            None if each is None else each.decode("utf-8", "replace") for each in found.to_pylist()
        ]
        return pa.array(texts, type=pa.string())


def to_hex(rows: Numbers) -> Array:
    """Format rows of bytes as upper-case hexadecimal."""
    count, width = rows.shape
    digits = np.ascontiguousarray(_HEX[rows])
    bounds = np.arange(0, (count + 1) * 2 * width, 2 * width, dtype=np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(digits)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def repeated_text(text: str, count: int) -> Array:
    """Make an array that repeats one string, or null."""
    if not text:
        return pa.nulls(count, type=pa.string())
    return pa.repeat(pa.scalar(text, type=pa.string()), count)


def to_timestamps(time_ms: Numbers) -> Array:
    """Convert milliseconds since 1970 to Spark's timestamps. A time that Python's `datetime` cannot
    hold in every time zone becomes the nearest that it can: any sender may choose one."""
    return pa.array(np.clip(time_ms, _FIRST_MS, _LAST_MS) * 1000).view(pa.timestamp("us", tz="UTC"))


def split_words(texts: Array, kind: Any) -> Array:  # noqa: ANN401 - an Arrow type
    """Split each string at its blanks, into lists of the given type; null stays null."""
    lists = pc.split_pattern(texts, " ")
    flat = lists.flatten()
    keep = np.asarray(pc.greater(pc.binary_length(flat), 0))
    if keep.all():
        return lists.cast(kind)
    counts = np.concatenate(([0], np.cumsum(keep))).astype(np.int32)
    bounds = pa.array(counts[np.asarray(lists.offsets)])
    found = pa.ListArray.from_arrays(bounds, flat.filter(pa.array(keep)), mask=texts.is_null())
    return found.cast(kind)


assert sys.byteorder == "little", "the digits of _HEX stand in little-endian pairs"
