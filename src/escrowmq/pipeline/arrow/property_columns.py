r"""Properties of many records at once: `name 0x01 value 0x02`, repeated, found by their
separators."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from escrowmq.codec.properties import decode_properties, encode_properties
from escrowmq.pipeline.arrow.cells import Array, ByteBuffer, Numbers

_NAME_END: Final = 1
_VALUE_END: Final = 2
_HEAD_SIZE: Final = 8
_PADDING: Final = bytes(_HEAD_SIZE)
"""Bytes appended to the data, because names are compared eight bytes at a time, including the last
ones."""
_LOW_BYTES: Final = np.array(
    [(1 << (8 * count)) - 1 for count in range(8)] + [(1 << 64) - 1], dtype=np.uint64
)
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_COLUMN_BITS: Final = np.uint64(16)
_COLUMN_MASK: Final = np.uint64(0xFFFF)
"""Bits for the number of an entry within its record. A record has at most 64 KiB of properties, and
so fewer entries."""


class Properties:
    """The properties of records, one encoded binary value per record."""

    def __init__(self, encoded: Array) -> None:
        self._count = len(encoded)
        bounds, data = _value_buffers(encoded)
        if not _is_regular(bounds, data):
            encoded = _with_last_separator(encoded)
            bounds, data = _value_buffers(encoded)
        self._bytes = ByteBuffer(data + _PADDING)
        marks = self._bytes.u1[: len(data)]
        ends = np.flatnonzero(marks == _VALUE_END)
        starts = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
        middles = _first_separators(np.flatnonzero(marks == _NAME_END), starts)
        fits = (middles > starts) & (middles + 1 < ends)
        counts = np.diff(np.searchsorted(ends, bounds))
        rows = np.repeat(np.arange(self._count), counts)
        if not fits.all():
            starts, middles, ends, rows = starts[fits], middles[fits], ends[fits], rows[fits]
        self._starts, self._middles, self._ends, self._rows = starts, middles, ends, rows

    def values(self, name: str) -> Array:
        """The values of one name, null where it is missing. If there are two, the last counts."""
        which = self._find(name.encode())
        place = np.full(self._count, -1, dtype=np.int64)
        place[self._rows[which]] = which
        there = place >= 0
        chosen = place[there]
        found = self._bytes.read_cells(self._middles[chosen] + 1, self._ends[chosen], pa.string())
        if there.all():
            return found
        index = np.cumsum(there) - 1
        return found.take(pa.array(index, mask=~there))

    def maps(self, kind: Any) -> Array:  # noqa: ANN401 - an Arrow type
        """All properties as maps."""
        keep = self._without_duplicates()
        starts, middles, ends = self._starts[keep], self._middles[keep], self._ends[keep]
        bounds = np.searchsorted(self._rows[keep], np.arange(self._count + 1)).astype(np.int32)
        names = self._bytes.read_cells(starts, middles, pa.string())
        values = self._bytes.read_cells(middles + 1, ends, pa.string())
        return pa.MapArray.from_arrays(pa.array(bounds), names, values, type=kind)

    def _find(self, name: bytes) -> Numbers:
        """Find the entries with a name: compare by size, then by the first eight bytes, then by the
        rest."""
        found = np.flatnonzero(self._middles - self._starts == len(name))
        width = min(len(name), _HEAD_SIZE)
        head = np.uint64(int.from_bytes(name[:width], "little"))
        heads = self._bytes.read_numbers(self._starts[found], "<u8") & _LOW_BYTES[width]
        found = found[heads == head]
        if len(name) > width:
            at = self._starts[found][:, None] + np.arange(width, len(name))
            rest = np.frombuffer(name, dtype=np.uint8)[width:]
            found = found[(self._bytes.u1[at] == rest).all(axis=1)]
        return found

    def _without_duplicates(self) -> Numbers:
        """Return the entries to keep, so that no record has a name twice; the last entry counts.
        RocketMQ's brokers (5.3) append the properties of a batch to those of its messages. So in a
        topic of batches, names occur twice in every record."""
        keep = np.ones(len(self._rows), dtype=bool)
        former, latter = self._possible_duplicates()
        if not len(former):
            return keep
        sizes = (self._middles - self._starts)[former]
        is_same = sizes == (self._middles - self._starts)[latter]
        low_bytes = _LOW_BYTES[np.minimum(sizes, _HEAD_SIZE)]
        for at in (self._starts, self._name_tails()):
            one, other = (self._bytes.read_numbers(at[side], "<u8") for side in (former, latter))
            is_same &= (one & low_bytes) == (other & low_bytes)
        is_known = is_same & (sizes <= 2 * _HEAD_SIZE)
        keep[former[is_known]] = False
        for row in np.unique(self._rows[former[~is_known]]):
            self._drop_duplicates(row, keep)
        return keep

    def _drop_duplicates(self, row: int, keep: Numbers) -> None:
        seen = set()
        first, last = np.searchsorted(self._rows, [row, row + 1])
        for index in range(last - 1, first - 1, -1):
            name = self._bytes.data[self._starts[index] : self._middles[index]]
            keep[index] = name not in seen
            seen.add(name)

    def _possible_duplicates(self) -> tuple[Numbers, Numbers]:
        """Return pairs of consecutive entries of one record whose names may be equal."""
        if not len(self._rows):
            return self._rows, self._rows
        sizes = self._middles - self._starts
        heads = (
            self._bytes.read_numbers(self._starts, "<u8")
            & _LOW_BYTES[np.minimum(sizes, _HEAD_SIZE)]
        )
        tails = np.where(sizes > _HEAD_SIZE, self._bytes.read_numbers(self._name_tails(), "<u8"), 0)
        marks = (heads * _MIX) ^ ((tails.astype(np.uint64) + sizes.astype(np.uint64)) * _MIX >> 7)
        firsts = np.searchsorted(self._rows, np.arange(self._count))
        columns = np.arange(len(self._rows)) - firsts[self._rows]
        width = int(columns.max()) + 1
        # A row for each record; each cell has 48 bits of the name's mark and 16 of its column, so
        # that sorting puts equal marks beside each other, in order.
        order = np.arange(width, dtype=np.uint64)
        table = np.tile((order << _COLUMN_BITS) | order, (self._count, 1))
        table[self._rows, columns] = (marks << _COLUMN_BITS) | columns.astype(np.uint64)
        table.sort(axis=1)
        kinds = table >> _COLUMN_BITS
        at, place = np.nonzero(kinds[:, 1:] == kinds[:, :-1])
        former, latter = (
            firsts[at] + (table[at, place + n] & _COLUMN_MASK).astype(np.int64) for n in (0, 1)
        )
        is_there = latter < np.append(firsts[1:], len(self._rows))[at]
        return former[is_there], latter[is_there]

    def _name_tails(self) -> Numbers:
        """The start of the last eight bytes of each name; for a shorter name, its start."""
        return np.maximum(self._middles - _HEAD_SIZE, self._starts)


def _value_buffers(encoded: Array) -> tuple[Numbers, bytes]:
    """Starts and ends of the values, counted from 0, and their bytes."""
    _, offsets, data = encoded.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)[encoded.offset :][: len(encoded) + 1]
    low, high = int(bounds[0]), int(bounds[-1])
    return bounds - low, data[low:high].to_pybytes() if data is not None else b""


def _is_regular(bounds: Numbers, data: bytes) -> bool:
    """Whether every non-empty value ends with its separator."""
    lasts = bounds[1:][np.diff(bounds) > 0] - 1
    return bool((np.frombuffer(data, dtype=np.uint8)[lasts] == _VALUE_END).all())


def _with_last_separator(encoded: Array) -> Array:
    """Append the last separator where it is missing, as some clients do."""
    return pa.array(
        [encode_properties(decode_properties(each)) for each in encoded.to_pylist()],
        type=pa.binary(),
    )


def _first_separators(marks: Numbers, starts: Numbers) -> Numbers:
    """The first separator at or after each start; 0 if there is none."""
    if len(marks) == len(starts) and (marks >= starts).all() and (marks[:-1] < starts[1:]).all():
        return marks
    index = np.searchsorted(marks, starts)
    return np.append(marks, 0)[np.minimum(index, len(marks))]
