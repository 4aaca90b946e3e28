"""The compiled functions, if there are any: they are built with the distribution on machines with a
compiler, and not used with ESCROWMQ_PURE=1. Most have a plain Python version elsewhere, which is
the reference. The functions for requests have none: the general path defines what they do.

`lay_out_sends` serves consecutive send requests (plain messages, halves and batches) as far as it
can. `find_signed` finds what was signed in such requests, so that it can be verified first. Both
leave their arguments unchanged.

`find_ends` finds which halves consecutive ENDs name; `lay_out_ends` serves as many of them as it
can, given the bytes of these halves.

`index_key` makes a key that waits to be indexed, as store/index_chains does; `find_blocks`, `chain`
and `lead` put such keys into an index file in memory, as store/index does.

`alike_halves` reads consecutive halves in the log, as far as they are complete and have known
shapes, as txn/stored_halves does one by one.

`find_starts` finds where records begin in a range of the log, as codec/log_stretches.outline does.

`find_runs` selects the entries of a queue that are read together, as store/unit_runs does;
`copy_runs` reads their records, as base/runs.joined does; `reply_with_runs` does both, and puts the
header of a reply to a pull before the records, as codec/pulled_reply does; `are_whole` verifies
that the records match their entries, as codec/log_stretches.is_whole does.

`find_repeated` finds which request another one repeats, and its numbers
(codec/repeated_requests).

`find_records`, `copy_cells`, `copy_numbers`, `find_entries` and `copy_named` make columns of
records, as numpy does in pipeline/arrow.

Each is None if it is not available; `why_plain` says why."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Final, NamedTuple, Protocol

CONTRACT: Final = 16
"""Incremented with each change of arguments or results, here and in module.c."""

Buffer = Any
"""Bytes, or a contiguous array."""


class Shape(NamedTuple):
    """What requests have in common that are alike (codec/alike), and how they are served."""

    pieces: tuple[bytes, ...]
    """The header around the values that vary."""

    order: bytes
    """Which value is at which position."""

    is_json: bool
    name: bytes
    """The topic of sends, followed by a zero; the group of ENDs."""

    flag: int = 0
    sys_flag: int = 0
    half_sys_flag: int = 0
    """The sysFlag with which halves are stored."""

    reconsume_times: int = 0
    is_one_way: bool = False
    may_be_plain: bool = False
    may_be_half: bool = False
    is_batch: bool = False
    wants_id: bool = False
    """Whether the sender of a half requests a signed id, so that Python has to answer."""

    is_commit: bool = False


TailGiven = tuple[Any, bytes, int, int, int]
"""The end of a queue: the object itself (store/run.Tail), the topic in a record's form, magic,
queue id and the hash of the keys' prefix."""

Place = tuple[Any, TailGiven | None, str, int, tuple[bytes, ...], bytes]
"""A queue named by requests: its number in the result, its end (None: none yet), topic, queue id,
pieces of a reply (codec/reply_template), and the values that a half keeps of it."""

Moment = tuple[
    int,
    int,
    int,
    bytes,
    bytes,
    bytes,
    bytes,
    int,
    int,
    int,
    int,
    set[str],
    TailGiven | None,
    int,
    dict[bytes, bool],
]
"""Log offset of the next record, and the limit for the last one; store time; store host and born
host; the text after the properties of each message, and before a half's key; the maximum bytes of a
body, and of properties; the maximum number of keys, and of halves; the groups that may send halves;
their destination; the maximum number of messages of a batch; and whether the reply to a batch
without a key is plain."""

LaidOut = tuple[
    int,
    bytes,
    bytes,
    list[tuple[Any, bytearray]],
    list[tuple[Any, list[int]]],
    bytearray,
    list[tuple[Any, ...]],
    list[tuple[str, int, int, int]],
    int,
    int,
    tuple[bytes, bool] | None,
]
"""The offset of the first request not served; records; replies; for each queue its new entries; for
each topic the sizes of the records; index keys; the values of each half (txn/plain_halves); for
each batch its topic, its number of messages, the size of its records, and whether it is one-way;
the number of other requests, and how many of them are one-way. Last, for a half whose sender
requests a signed id, its opaque as it was written, and whether it is in JSON: such a half is the
last request, and has no reply here."""


class LayOutSends(Protocol):
    """The type of `lay_out_sends`."""

    def __call__(  # noqa: PLR0913 - it asks nobody for more
        self,
        data: bytes,
        at: int,
        size_max: int,
        shapes: list[Shape],
        plans: Mapping[tuple[bytes, ...], tuple[Any, ...] | None],
        places: dict[bytes, Place],
        moment: Moment,
        count_max: int,
        /,
    ) -> LaidOut | None:
        """Serve at most `count_max` requests. None if not even the first is served."""


SignedParts = tuple[int, bytes, bytes, bytes, bytes, bytes]
"""The number of a shape; queue, time, properties, signature, and body of a request."""


class FindSigned(Protocol):
    """The type of `find_signed`."""

    def __call__(
        self, data: bytes, at: int, size_max: int, shapes: list[Shape], count_max: int, /
    ) -> list[SignedParts]:
        """Consecutive signed requests of these shapes."""


class FindEnds(Protocol):
    """The type of `find_ends`."""

    def __call__(
        self, data: bytes, at: int, size_max: int, shapes: list[Shape], count_max: int, /
    ) -> tuple[list[int], list[int]] | None:
        """Queue offsets and log offsets named by ENDs of these shapes; None if the first request is
        not one."""


EndRules = tuple[int, int, tuple[bytes, ...], tuple[bytes, ...]]
"""Bits of a half's sysFlag that exclude it, and of a commit's; the pieces (codec/reply_template) of
a reply to a rollback, and of one to a commit."""

EndsLaidOut = tuple[int, bytes, bytes, bytes, list[tuple[Any, bytearray]], bytearray]
"""The offset of the first request not served; records; replies; for each END seven bytes: whether
it commits, is one-way, is in JSON, and its number; entries of each queue; index keys."""


class LayOutEnds(Protocol):
    """The type of `lay_out_ends`."""

    def __call__(  # noqa: PLR0913 - it asks nobody for more
        self,
        data: bytes,
        at: int,
        size_max: int,
        shapes: list[Shape],
        plans: Mapping[tuple[bytes, ...], tuple[Any, ...] | None],
        places: dict[bytes, Place],
        moment: Moment,
        log: bytes,
        starts: list[int],
        rules: EndRules,
        /,
    ) -> EndsLaidOut | None:
        """Serve at most as many ENDs as there are `starts`, the positions of their halves in the
        bytes of the log. None if not even the first is served."""


class RequestsLane(NamedTuple):
    """The functions for requests."""

    lay_out_sends: LayOutSends
    find_signed: FindSigned
    find_ends: FindEnds
    lay_out_ends: LayOutEnds


class IndexKeyOf(Protocol):
    """The type of `index_key`."""

    def __call__(
        self, prefix_hash: int, key: str | bytes, log_offset: int, stored_ms: int, /
    ) -> bytes:
        """The waiting entry for a key with a prefix (`topic#`) whose Java hash is known."""


class FindBlocks(Protocol):
    """The type of `find_blocks`."""

    def __call__(
        self, keys: bytes, slots_count: int, slots_at: int, block_bits: int, /
    ) -> set[int] | None:
        """The blocks of a file with the slots of keys. None if the positions of some slots have
        more than 32 bits."""


class Chain(Protocol):
    """The type of `chain`."""

    def __call__(
        self,
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


class Lead(Protocol):
    """The type of `lead`."""

    def __call__(self, memory: Buffer, newest: bytes, /) -> None:
        """Point these slots to these entries."""


class IndexLane(NamedTuple):
    """The functions that put keys into an index file in memory."""

    find_blocks: FindBlocks
    chain: Chain
    lead: Lead


class AlikeHalves(Protocol):
    """The type of `alike_halves`."""

    def __call__(
        self,
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


class FindStarts(Protocol):
    """The type of `find_starts`."""

    def __call__(
        self, data: bytes, base: int, mask: int, kind: int, /
    ) -> tuple[list[int], int, int]:
        """The starts of records whose sysFlag is that kind under the mask, any with -1; the first
        byte that is not part of a record; the start of the last record, -1 without one."""


class FindRuns(Protocol):
    """The type of `find_runs`."""

    def __call__(
        self, units: bytes, first: int, codes: bytes | None, count_max: int, size_max: int, /
    ) -> tuple[bytes, Sequence[int], int, int] | None:
        """The fields of store/unit_runs.UnitRuns. The hashes are as in the entries, eight bytes
        each."""


class CopyRuns(Protocol):
    """The type of `copy_runs`."""

    def __call__(self, memory: Buffer, base: int, runs: bytes, /) -> bytes | None:
        """The bytes of the runs, from memory that begins at position `base`; None if one of them is
        not completely in it."""


class ReplyWithRuns(Protocol):
    """The type of `reply_with_runs`."""

    def __call__(  # noqa: PLR0913 - it asks nobody for more
        self,
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


class AreWhole(Protocol):
    """The type of `are_whole`."""

    def __call__(
        self,
        data: bytes,
        runs: bytes,
        topic: bytes,
        queue_offsets: Sequence[int],
        has_crc: bool,
        /,
    ) -> bool:
        """Whether the data are these ranges with complete records of the usual kind; if not, the
        plain version must look."""


RepeatedGiven = tuple[bytes, bytes, Any]
"""A binary header; start and end of each varying number in it, as `=ii`; and an object that is
returned for its repetitions."""


class FindRepeated(Protocol):
    """The type of `find_repeated`."""

    def __call__(
        self, data: bytes, at: int, known: dict[int, list[RepeatedGiven]], /
    ) -> tuple[Any, int, list[int], int] | None:
        """The known header, by size, that the frame at a position repeats: its object, the frame's
        opaque, its numbers, and its end."""


class FindRecords(Protocol):
    """The type of `find_records`."""

    def __call__(self, data: Buffer, /) -> bytes | None:
        """The start of each record, as int64. None if they do not follow each other up to the
        end."""


class CopyCells(Protocol):
    """The type of `copy_cells`."""

    def __call__(self, data: Buffer, starts: Buffer, ends: Buffer, /) -> tuple[bytes, bytes]:
        """The bytes from each start to its end (int64), as Arrow's offsets (int32) and values."""


class CopyNumbers(Protocol):
    """The type of `copy_numbers`."""

    def __call__(self, data: Buffer, places: Buffer, width: int, /) -> bytes:
        """A number of bytes, at most 8, from each position (int64)."""


class FindEntries(Protocol):
    """The type of `find_entries`."""

    def __call__(self, data: Buffer, starts: Buffer, ends: Buffer, /) -> tuple[bytes, bytes] | None:
        """For properties from each start to its end: the cumulative number of entries (int32), and
        for each entry start and end of its name and the end of its value (int32). None if a record
        has more entries than the lane compares."""


class CopyNamed(Protocol):
    """The type of `copy_named`."""

    def __call__(
        self, data: Buffer, bounds: Buffer, entries: Buffer, name: bytes, /
    ) -> tuple[bytes, bytes, bytes, int]:
        """The values of a name, from the result of `find_entries`: offsets (int32), values, a bit
        per value that says whether it is present, and how many are not."""


def _load() -> tuple[ModuleType | None, str]:
    if os.environ.get("ESCROWMQ_PURE", "") not in ("", "0"):
        return None, "ESCROWMQ_PURE is set"
    try:
        from escrowmq.lane import _compiled
    except ImportError as error:
        return None, str(error)
    if getattr(_compiled, "CONTRACT", 0) != CONTRACT:
        return None, "it was built from other sources"
    return _compiled, ""


_module, why_plain = _load()
requests_lane: RequestsLane | None = (
    None
    if _module is None
    else RequestsLane(
        _module.lay_out_sends, _module.find_signed, _module.find_ends, _module.lay_out_ends
    )
)
index_key: IndexKeyOf | None = getattr(_module, "index_key", None)
index_lane: IndexLane | None = (
    None if _module is None else IndexLane(_module.find_blocks, _module.chain, _module.lead)
)
alike_halves: AlikeHalves | None = getattr(_module, "alike_halves", None)
find_starts: FindStarts | None = getattr(_module, "find_starts", None)
find_runs: FindRuns | None = getattr(_module, "find_runs", None)
copy_runs: CopyRuns | None = getattr(_module, "copy_runs", None)
reply_with_runs: ReplyWithRuns | None = getattr(_module, "reply_with_runs", None)
are_whole: AreWhole | None = getattr(_module, "are_whole", None)
find_repeated: FindRepeated | None = getattr(_module, "find_repeated", None)
find_records: FindRecords | None = getattr(_module, "find_records", None)
copy_cells: CopyCells | None = getattr(_module, "copy_cells", None)
copy_numbers: CopyNumbers | None = getattr(_module, "copy_numbers", None)
find_entries: FindEntries | None = getattr(_module, "find_entries", None)
copy_named: CopyNamed | None = getattr(_module, "copy_named", None)
