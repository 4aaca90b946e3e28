from collections.abc import Mapping, Sequence
from typing import Any

from escrowmq.lane.native import (
    Buffer,
    FindEnds,
    FindSignedSends,
    LaneRepeated,
    LayOutEnds,
    LayOutSends,
)

CONTRACT: int
lay_out_sends: LayOutSends
find_signed_sends: FindSignedSends
find_ends: FindEnds
lay_out_ends: LayOutEnds

def index_key(prefix_hash: int, key: str | bytes, log_offset: int, stored_ms: int, /) -> bytes:
    """The waiting entry for a key with a prefix (`topic#`) whose Java hash is known."""

def find_blocks(
    keys: bytes, slots_count: int, slots_at: int, block_bits: int, /
) -> set[int] | None:
    """The blocks of a file with the slots of keys. None if the positions of some slots have
    more than 32 bits."""

def chain(
    memory: Buffer,
    keys: bytes,
    slots_count: int,
    slots_at: int,
    first: int,
    begin_ms: int,
    /,
) -> tuple[bytes, bytes, int]:
    """Entries; position and newest entry of each slot, as 32-bit numbers; how many slots were
    empty."""

def lead(memory: Buffer, newest: bytes, /) -> None:
    """Point these slots to these entries."""

def alike_halves(
    data: bytes,
    base: int,
    entries: list[tuple[int, int, int]],
    first: int,
    nth: int,
    topic: bytes,
    by_size: Mapping[int, tuple[Any, ...]],
    /,
) -> tuple[list[int], list[Any]]:
    """Store time and shape (txn/half_shape.KnownShape) of the halves from the nth entry on;
    entry 0 has the queue offset `first`, and the bytes start at log offset `base`."""

def find_starts(data: bytes, base: int, mask: int, kind: int, /) -> tuple[list[int], int, int]:
    """The starts of records whose sysFlag is that kind under the mask, any with -1; the first
    byte that is not part of a record; the start of the last record, -1 without one."""

def find_runs(
    units: bytes, first: int, codes: bytes | None, count_max: int, size_max: int, /
) -> tuple[bytes, Sequence[int], int, int] | None:
    """The fields of store/unit_runs.UnitRuns. The hashes are as in the entries, eight bytes
    each."""

def copy_runs(memory: Buffer, base: int, runs: bytes, /) -> bytes | None:
    """The bytes of the runs, from memory that begins at position `base`; None if one of them is
    not completely in it."""

def reply_with_runs(
    units: bytes,
    first: int,
    codes: bytes | None,
    count_max: int,
    size_max: int,
    memory: Buffer,
    base: int,
    pieces: tuple[bytes, ...],
    opaque: int,
    low: int,
    high: int,
    /,
) -> tuple[bytes, int, int, int] | None:
    """The frame, the number of messages and the bytes of their records, and the next offset.
    None if there are none, or not all of them are in this memory."""

def are_whole(
    data: bytes,
    runs: bytes,
    topic: bytes,
    queue_offsets: Sequence[int],
    has_crc: bool,
    /,
) -> bool:
    """Whether the data are these ranges with complete records of the usual kind; if not, the
    plain version must look."""

def find_repeated(
    data: bytes, at: int, known: dict[int, list[LaneRepeated]], /
) -> tuple[Any, int, list[int], int] | None:
    """The known header, by size, that the frame at a position repeats: its object, the frame's
    opaque, its numbers, and its end."""

def find_records(data: Buffer, /) -> bytes | None:
    """The start of each record, as int64. None if they do not follow each other up to the
    end."""

def copy_cells(data: Buffer, starts: Buffer, ends: Buffer, /) -> tuple[bytes, bytes]:
    """The bytes from each start to its end (int64), as Arrow's offsets (int32) and values."""

def copy_numbers(data: Buffer, places: Buffer, width: int, /) -> bytes:
    """A number of bytes, at most 8, from each position (int64)."""

def find_entries(data: Buffer, starts: Buffer, ends: Buffer, /) -> tuple[bytes, bytes] | None:
    """For properties from each start to its end: the cumulative number of entries (int32), and
    for each entry start and end of its name and the end of its value (int32). None if a record
    has more entries than the lane compares."""

def copy_named(
    data: Buffer, bounds: Buffer, entries: Buffer, name: bytes, /
) -> tuple[bytes, bytes, bytes, int]:
    """The values of a name, from the result of `find_entries`: offsets (int32), values, a bit
    per value that says whether it is present, and how many are not."""
