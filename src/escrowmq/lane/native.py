"""The compiled functions, if there are any: they are built with the distribution on machines with a
compiler, and not used with ESCROWMQ_PURE=1. Most have a plain Python version elsewhere, which is
the reference. The functions for requests have none: the general path defines what they do.

`lay_out_sends` serves consecutive send requests (plain messages, halves and batches) as far as it
can. `find_signed_sends` finds what was signed in such requests, so that it can be verified first.
Both leave their arguments unchanged.

`find_ends` finds which halves consecutive ENDs name; `lay_out_ends` serves as many of them as it
can, given the bytes of these halves.

`index_key` makes a key that waits to be indexed, as store/index_chains does; `find_blocks`, `chain`
and `lead` put such keys into an index file in memory, as store/index does.

`alike_halves` reads consecutive halves in the log, as far as they are complete and have known
shapes, as txn/stored_halves does one by one.

`find_starts` finds where records begin in a range of the log, as codec/log_records.outline_records
does.

`find_runs` selects the entries of a queue that are read together, as store/unit_runs does;
`copy_runs` reads their records, as base/runs.join_runs does; `reply_with_runs` does both, and puts
the header of a reply to a pull before the records, as codec/pulled_reply does; `are_whole` verifies
that the records match their entries, as codec/log_records.match_queue_entries does.

`find_repeated` finds which request another one repeats, and its numbers
(codec/repeated_requests).

`find_records`, `copy_cells`, `copy_numbers`, `find_entries` and `copy_named` make columns of
records, as numpy does in pipeline/arrow.

Each is None if it is not available; `why_plain` says why. `_compiled.pyi` has their types, and says
what they return."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

CONTRACT: Final = 17
"""Incremented with each change of arguments or results, here and in module.c."""

Buffer = Any
"""Bytes, or a contiguous array."""


class LaneShape(NamedTuple):
    """What requests of one shape have in common (codec/request_shapes), and how to serve them."""

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


LaneTail = tuple[Any, bytes, int, int, int]
"""The end of a queue: the object itself (store/record_run.QueueTail), the topic in a record's form,
magic, queue id and the hash of the keys' prefix."""

LaneQueue = tuple[Any, LaneTail | None, str, int, tuple[bytes, ...], bytes]
"""A queue named by requests: its number in the result, its end (None: none yet), topic, queue id,
pieces of a reply (codec/reply_template), and the values that a half keeps of it."""

LaneLimits = tuple[
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
    LaneTail | None,
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
        shapes: list[LaneShape],
        plans: Mapping[tuple[bytes, ...], tuple[Any, ...] | None],
        places: dict[bytes, LaneQueue],
        moment: LaneLimits,
        count_max: int,
        /,
    ) -> LaidOut | None:
        """Serve at most `count_max` requests. None if not even the first is served."""


SignedParts = tuple[int, bytes, bytes, bytes, bytes, bytes]
"""The number of a shape; queue, time, properties, signature, and body of a request."""


class FindSignedSends(Protocol):
    """The type of `find_signed_sends`."""

    def __call__(
        self, data: bytes, at: int, size_max: int, shapes: list[LaneShape], count_max: int, /
    ) -> list[SignedParts]:
        """Consecutive signed requests of these shapes."""


class FindEnds(Protocol):
    """The type of `find_ends`."""

    def __call__(
        self, data: bytes, at: int, size_max: int, shapes: list[LaneShape], count_max: int, /
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
        shapes: list[LaneShape],
        plans: Mapping[tuple[bytes, ...], tuple[Any, ...] | None],
        places: dict[bytes, LaneQueue],
        moment: LaneLimits,
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
    find_signed_sends: FindSignedSends
    find_ends: FindEnds
    lay_out_ends: LayOutEnds


LaneRepeated = tuple[bytes, bytes, Any]
"""A binary header; start and end of each varying number in it, as `=ii`; and an object that is
returned for its repetitions."""


class IndexLane(NamedTuple):
    """The functions that put keys into an index file in memory."""

    find_blocks: Callable[[bytes, int, int, int], set[int] | None]
    chain: Callable[[Buffer, bytes, int, int, int, int], tuple[bytes, bytes, int]]
    lead: Callable[[Buffer, bytes], None]


why_plain = ""
if os.environ.get("ESCROWMQ_PURE", "") not in ("", "0"):
    why_plain = "ESCROWMQ_PURE is set"
else:
    try:
        from escrowmq.lane import _compiled
    except ImportError as error:
        why_plain = str(error)
    else:
        if getattr(_compiled, "CONTRACT", 0) != CONTRACT:
            why_plain = "it was built from other sources"

requests_lane = (
    None
    if why_plain
    else RequestsLane(
        _compiled.lay_out_sends,
        _compiled.find_signed_sends,
        _compiled.find_ends,
        _compiled.lay_out_ends,
    )
)
index_lane = (
    None if why_plain else IndexLane(_compiled.find_blocks, _compiled.chain, _compiled.lead)
)
index_key = None if why_plain else _compiled.index_key
alike_halves = None if why_plain else _compiled.alike_halves
find_starts = None if why_plain else _compiled.find_starts
find_runs = None if why_plain else _compiled.find_runs
copy_runs = None if why_plain else _compiled.copy_runs
reply_with_runs = None if why_plain else _compiled.reply_with_runs
are_whole = None if why_plain else _compiled.are_whole
find_repeated = None if why_plain else _compiled.find_repeated
find_records = None if why_plain else _compiled.find_records
copy_cells = None if why_plain else _compiled.copy_cells
copy_numbers = None if why_plain else _compiled.copy_numbers
find_entries = None if why_plain else _compiled.find_entries
copy_named = None if why_plain else _compiled.copy_named
