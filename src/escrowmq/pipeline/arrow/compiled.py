"""Parses the properties of many records with the native lane: one walk finds all entries, and each
column copies its own. It must give the same result as `property_columns.Properties`."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from escrowmq.lane import native
from escrowmq.pipeline.arrow.cells import Array, ByteBuffer, Numbers, binary_array, to_text
from escrowmq.pipeline.arrow.property_columns import Properties


class PropertyColumns(Protocol):
    """The properties of many records. Implemented by `ParsedEntries` (native lane) and by
    `property_columns.Properties`."""

    def values(self, name: str) -> Array:
        """Return each record's value of a property, null where it is missing. If a record has the
        name twice, the last value counts."""

    def maps(self, kind: Any) -> Array:  # noqa: ANN401 - an Arrow type
        """Return all properties of each record, as an Arrow map."""


def parse_properties(found: ByteBuffer, start: Numbers, end: Numbers) -> PropertyColumns:
    """Parse the encoded properties from each start to its end."""
    if native.find_entries is not None:
        places = (np.ascontiguousarray(each, dtype=np.int64) for each in (start, end))
        entries = native.find_entries(found.data, *places)
        if entries is not None:
            return ParsedEntries(found, *entries)
    return Properties(found.read_cells(start, end, pa.binary()))


class ParsedEntries:
    """The entries that the lane found in all records, without duplicate names."""

    def __init__(self, found: ByteBuffer, bounds: bytes, entries: bytes) -> None:
        self._bytes = found
        self._bounds = bounds
        self._entries = entries
        self._count = len(bounds) // 4 - 1

    def values(self, name: str) -> Array:
        """The values of one name, null where it is missing."""
        assert native.copy_named is not None
        copied = native.copy_named(self._bytes.data, self._bounds, self._entries, name.encode())
        return to_text(binary_array(self._count, *copied))

    def maps(self, kind: Any) -> Array:  # noqa: ANN401 - an Arrow type
        """All properties of each record, as an Arrow map."""
        starts, middles, ends = np.frombuffer(self._entries, dtype=np.int32).reshape(-1, 3).T
        names = self._bytes.read_cells(starts, middles, pa.string())
        values = self._bytes.read_cells(middles + 1, ends, pa.string())
        bounds = pa.Array.from_buffers(
            pa.int32(), self._count + 1, [None, pa.py_buffer(self._bounds)]
        )
        return pa.MapArray.from_arrays(bounds, names, values, type=kind)
