"""Arrow arrays out of a buffer without a Python object for a value: numpy finds where the values
lie, Arrow copies them."""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Numbers = Any
"""A numpy array of numbers."""

Array = Any
"""An Arrow array."""

BUFFER_SIZE_MAX: Final = (1 << 31) - 1
"""Arrow's offsets of texts are 32 bits wide."""

_HEX: Final = np.frombuffer(bytes(range(256)).hex().upper().encode(), dtype="<u2")
_PADDING: Final = bytes(8)


class Bytes:
    """A buffer, and numbers in it at any place."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        # Numbers are read eight bytes at a time, also the last ones.
        self._padded = data + _PADDING
        self.u1 = np.frombuffer(self._padded, dtype=np.uint8)

    def numbers(self, at: Numbers, kind: str) -> Numbers:
        """The numbers of a kind (">i4", ">i8", ...) that begin at these places, in the machine's
        order. One unaligned view and one gather: 4 ns a number."""
        width = np.dtype(kind).itemsize
        view = np.ndarray(
            shape=(self.size + len(_PADDING) - width + 1,),
            dtype=kind,
            buffer=self._padded,
            strides=(1,),
        )
        return view[at].astype(np.dtype(kind).newbyteorder("="), copy=False)

    def cells(self, start: Numbers, end: Numbers, kind: Any) -> Array:  # noqa: ANN401 - an Arrow type
        """The bytes from each start to its end, as binary or texts. The places must not go back.
        The buffer becomes an array whose values are the cells and what lies between them; Arrow
        then takes every other one."""
        count = len(start)
        bounds = np.empty(2 * count + 1, dtype=np.int32)
        bounds[0:-1:2], bounds[1::2] = start, end
        bounds[-1] = end[-1] if count else 0
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(self.data)]
        whole = pa.Array.from_buffers(pa.binary(), 2 * count, buffers)
        found = whole.take(pa.array(np.arange(0, 2 * count, 2)))
        return found if kind == pa.binary() else as_text(found)


def as_text(found: Array) -> Array:
    """Binary as UTF-8; what is none has the replacement character instead."""
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [
            None if each is None else each.decode("utf-8", "replace") for each in found.to_pylist()
        ]
        return pa.array(texts, type=pa.string())


def hex_texts(rows: Numbers) -> Array:
    """Rows of bytes as upper-case hexadecimal."""
    count, width = rows.shape
    digits = np.ascontiguousarray(_HEX[rows])
    bounds = np.arange(0, (count + 1) * 2 * width, 2 * width, dtype=np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(digits)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def repeated(text: str, count: int) -> Array:
    """The same text so many times; nulls for none."""
    if not text:
        return pa.nulls(count, type=pa.string())
    return pa.repeat(pa.scalar(text, type=pa.string()), count)


def timestamps(time_ms: Numbers) -> Array:
    """Milliseconds since 1970 as Spark's timestamps."""
    return pa.array(time_ms * 1000).view(pa.timestamp("us", tz="UTC"))


def words(texts: Array, kind: Any) -> Array:  # noqa: ANN401 - an Arrow type
    """The words between the blanks of each text, as lists of a type; null where the text is."""
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
