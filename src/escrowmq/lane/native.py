"""The compiled functions, where there are any: they are built with the distribution on machines
that have a compiler, and left aside with ESCROWMQ_PURE=1.

`lay_out_sends` serves a stretch of send requests, plain messages, halves and batches, as far as it
comes: what the short cut does with each alone (broker/fast/shortcut, broker/fast/short_puts), which
stays what they mean. It changes nothing that it is given.

`find_ends` finds which halves a stretch of ENDs is about; `lay_out_ends` serves as many of them as
it can, given the bytes of these halves (broker/fast/short_ends does the same with each alone).

`index_key` makes a key that waits to be indexed, as store/index_chains does; `find_blocks`, `chain`
and `lead` put such keys into an index file that lies in memory, as store/index does.

`lay_out_batch` lays out the records of a batch, and says where they are, as
broker/fast/short_batches does when it knows the names of all properties.

`alike_halves` reads halves that stand one behind the other in the log, as far as they are whole and
like others that were seen, as txn/stored_halves does with each alone.

`find_starts` finds where records begin in a stretch of the log, as codec/log_stretches.outline
does.

`find_runs` chooses the units of a queue that are read at once, as store/unit_runs does;
`copy_runs` reads the records that these lead to, as base/runs.joined does;
`reply_with_runs` does both, and writes the reply to a pull in front of the records, as
codec/pulled_reply does;
`are_whole` sees that they are what the units promise, as codec/log_stretches.is_whole does.

`find_repeated` finds which request one repeats, and its numbers, as codec/repeated_requests does.

`find_records`, `copy_cells`, `copy_numbers`, `find_entries` and `copy_named` make columns of
records, as numpy does in pipeline/arrow.

Each is None where there is none; `why_plain` says why.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Final, NamedTuple, Protocol

CONTRACT: Final = 15
"""One more with each change of what goes in or comes out, here and in module.c."""

Buffer = Any
"""Bytes, or an array whose parts lie one behind the other."""

Shape = tuple[bytes, bytes, bytes, int, int, int, int, int, int, int, int, int, int, int, bool]
"""What requests have in common: the frame up to the properties, the header behind them, the topic
with a zero; where queue and time begin and end; flag, sysFlag, sysFlag of a half, reconsume times;
whether their sender wants no answer; whether they may be plain messages, and halves; whether they
are batches."""

JsonShape = tuple[
    tuple[bytes, bytes, bytes, bytes, bytes], bytes, bytes, int, int, int, int, int, int, int, bool
]
"""The same of requests in JSON: the header around the four values that differ, and which of them
stand where (0 queue, 1 time, 2 properties, 3 number); then topic, flag and what follows it."""

TailGiven = tuple[Any, bytes, int, int, int]
"""The end of a queue: itself (store/run.Tail), the topic as in a record, magic,
queue id and the hash that keys begin with."""

Place = tuple[Any, TailGiven | None, str, int, tuple[bytes, ...], bytes]
"""A queue that requests name: what it is called in the answer, its end (None: none yet), topic,
queue id, pieces of a reply (codec/sent_template), and what a half keeps of it."""

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
"""Log offset of the next record, and where the last one has to end; store time; store host and
born host; what follows the properties of each message, and what stands in front of a half's key;
the most bytes of a body, and of properties; the most keys, and halves; the groups that may send
halves; where these go; the most messages of a batch; and of what is said of batches without a key,
whether it is plain."""

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
]
"""Where the first request is that is not served; records; replies; of each queue that was put into
its units; of each that was sent to the sizes of the records; index keys; the
values of each half (txn/plain_halves); of each batch its topic, how many messages it has, how long
their records are, and whether its sender wants no answer; how many other requests, and how many of
them want none."""


class LayOutSends(Protocol):
    """See above."""

    def __call__(
        self,
        data: bytes,
        at: int,
        size_max: int,
        shapes: list[Shape | JsonShape],
        plans: Mapping[tuple[bytes, ...], tuple[Any, ...] | None],
        places: dict[bytes, Place],
        moment: Moment,
        /,
    ) -> LaidOut | None:
        """None when the first request is not served either."""


EndShape = tuple[bytes, bytes, int, int, int, int, int, int, int, int, int, int, int, bool, bool]
"""What ENDs have in common: the frame, and the group; where each of the four values begins and ends
that differ; which of these are queue offset, log offset and key; whether they commit, and whether
their sender wants no answer."""


class FindEnds(Protocol):
    """See above."""

    def __call__(
        self, data: bytes, at: int, size_max: int, shapes: list[EndShape], count_max: int, /
    ) -> tuple[list[int], list[int]] | None:
        """Queue offsets and log offsets that ENDs of these shapes name; None when the first request
        is none."""


EndRules = tuple[int, int, bytes, bytes, bytes, bytes]
"""Bits of a half's sysFlag that are for others, that of a commit; what stands before and behind the
number in a reply to a rollback, and in one to a commit."""

EndsLaidOut = tuple[int, bytes, bytes, bytes, list[tuple[Any, bytearray]], bytearray]
"""Where the first request is that is not served; records; replies; of each END six bytes: whether
it commits, whether its sender wants no answer, its number; units of each queue; index keys."""


class LayOutEnds(Protocol):
    """See above."""

    def __call__(  # noqa: PLR0913 - it asks nobody for more
        self,
        data: bytes,
        at: int,
        size_max: int,
        shapes: list[EndShape],
        plans: Mapping[tuple[bytes, ...], tuple[Any, ...] | None],
        places: dict[bytes, Place],
        moment: Moment,
        log: bytes,
        starts: list[int],
        rules: EndRules,
        /,
    ) -> EndsLaidOut | None:
        """At most as many as there are `starts`, where their halves begin in the bytes of the log;
        places are named by what a half keeps of them. None when the first is not served either."""


class EndsLane(NamedTuple):
    """What serves ENDs."""

    find: FindEnds
    lay_out: LayOutEnds


class IndexKeyOf(Protocol):
    """See above."""

    def __call__(
        self, prefix_hash: int, key: str | bytes, log_offset: int, stored_ms: int, /
    ) -> bytes:
        """What waits for a key behind a prefix (`topic#`) whose Java hash is known."""


class FindBlocks(Protocol):
    """See above."""

    def __call__(
        self, keys: bytes, slots_count: int, slots_at: int, block_bits: int, /
    ) -> set[int] | None:
        """The blocks of a file that the slots of keys are in. None when the places of some slots
        have more than 32 bits."""


class Chain(Protocol):
    """See above."""

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
        """Entries; place and newest one of each slot, as numbers of 32 bits; how many had none."""


class Lead(Protocol):
    """See above."""

    def __call__(self, memory: Buffer, newest: bytes, /) -> None:
        """Have these slots lead to these entries."""


class IndexLane(NamedTuple):
    """What puts keys into an index file that lies in memory."""

    find_blocks: FindBlocks
    chain: Chain
    lead: Lead


BatchLaidOut = tuple[bytes, bytearray, bytearray, bytes]
"""Records; their units; index keys; the ids of the messages, with commas."""


class LayOutBatch(Protocol):
    """See above."""

    def __call__(
        self,
        data: bytes,
        begin: int,
        end: int,
        plans: Mapping[tuple[bytes, ...], tuple[Any, ...] | None],
        tail: TailGiven,
        common: tuple[int, int, bytes, int],
        moment: Moment,
        /,
    ) -> BatchLaidOut | None:
        """What stands between two places of the data; in common (store/run.Common) the records have
        sysFlag, time and host of birth, and reconsume times."""


class AlikeHalves(Protocol):
    """See above."""

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
        """Store time and shape (txn/half_shape.KnownShape) of those from the nth entry on; the
        0th has the queue offset `first`, and the bytes stand at `base`."""


class FindStarts(Protocol):
    """See above."""

    def __call__(
        self, data: bytes, base: int, mask: int, kind: int, /
    ) -> tuple[list[int], int, int]:
        """Where records begin whose sysFlag is that kind under the mask, any with -1; where the
        first byte is that is of no record any more; where the last record begins, -1 without."""


class FindRuns(Protocol):
    """See above."""

    def __call__(
        self, units: bytes, first: int, codes: bytes | None, count_max: int, size_max: int, /
    ) -> tuple[bytes, Sequence[int], int, int] | None:
        """The parts of store/unit_runs.UnitRuns. The codes are as in the units, eight bytes
        each."""


class CopyRuns(Protocol):
    """See above."""

    def __call__(self, memory: Buffer, base: int, runs: bytes, /) -> bytes | None:
        """Their bytes, where the memory begins at the place `base`; None when one of them is not
        wholly in it."""


ReplyPieces = tuple[bytes, bytes, bytes, bytes, bytes, bytes]
"""Of the reply to a pull: what stands in front of its opaque, of its fields, of each of the three
offsets, and behind the last one (codec/pulled_reply)."""


class ReplyWithRuns(Protocol):
    """See above."""

    def __call__(  # noqa: PLR0913 - it asks nobody for more
        self,
        units: bytes,
        first: int,
        codes: bytes | None,
        count_max: int,
        size_max: int,
        memory: Buffer,
        base: int,
        pieces: ReplyPieces,
        opaque: int,
        low: int,
        high: int,
        /,
    ) -> tuple[bytes, int, int, int] | None:
        """The frame, how many messages it has and the bytes of their records, and where to go on.
        None when there are none, or not all of them in this memory."""


class AreWhole(Protocol):
    """See above."""

    def __call__(
        self,
        data: bytes,
        runs: bytes,
        topic: bytes,
        queue_offsets: Sequence[int],
        has_crc: bool,
        /,
    ) -> bool:
        """Whether the data are these runs, and these whole records of the most usual kind; where
        they are not, somebody else has to look."""


RepeatedGiven = tuple[bytes, bytes, Any]
"""A binary header; where each number in it begins and ends that differs in those that repeat it, as
`=ii`; and whatever is given back for these."""


class FindRepeated(Protocol):
    """See above."""

    def __call__(
        self, data: bytes, at: int, known: dict[int, list[RepeatedGiven]], /
    ) -> tuple[Any, int, list[int], int] | None:
        """What the frame at a place repeats of what is known by the sizes of headers: what was
        given for it, its opaque, its numbers, and where it ends."""


class FindRecords(Protocol):
    """See above."""

    def __call__(self, data: Buffer, /) -> bytes | None:
        """Where each record begins, as int64. None when they do not follow each other to the
        end."""


class CopyCells(Protocol):
    """See above."""

    def __call__(self, data: Buffer, starts: Buffer, ends: Buffer, /) -> tuple[bytes, bytes]:
        """The bytes from each start to its end (int64), as Arrow's bounds (int32) and values."""


class CopyNumbers(Protocol):
    """See above."""

    def __call__(self, data: Buffer, places: Buffer, width: int, /) -> bytes:
        """So many bytes, 8 at most, from each place (int64)."""


class FindEntries(Protocol):
    """See above."""

    def __call__(self, data: Buffer, starts: Buffer, ends: Buffer, /) -> tuple[bytes, bytes] | None:
        """Of properties from each start to its end: how many entries all up to there have (int32),
        and of each entry where its name begins and ends and where its value ends (int32). None
        when a record has more of them than the lane compares."""


class CopyNamed(Protocol):
    """See above."""

    def __call__(
        self, data: Buffer, bounds: Buffer, entries: Buffer, name: bytes, /
    ) -> tuple[bytes, bytes, bytes, int]:
        """The values of a name, by what `find_entries` found: bounds (int32), values, a bit for
        each that says whether it is there, and how many are not."""


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
lay_out_sends: LayOutSends | None = getattr(_module, "lay_out_sends", None)
ends_lane: EndsLane | None = (
    None if _module is None else EndsLane(_module.find_ends, _module.lay_out_ends)
)
index_key: IndexKeyOf | None = getattr(_module, "index_key", None)
index_lane: IndexLane | None = (
    None if _module is None else IndexLane(_module.find_blocks, _module.chain, _module.lead)
)
lay_out_batch: LayOutBatch | None = getattr(_module, "lay_out_batch", None)
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
