"""Which of a queue's units are read at once, and where their records are in the log: adjacent
records are read together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from escrowmq.base.runs import RUN
from escrowmq.codec.entries import ENTRY
from escrowmq.lane import native
from escrowmq.store.consume_queue import GAP_SIZE

RECORDS_SIZE_MAX: Final = 128 * 1024 * 1024
"""Bytes of one answer, whatever the settings say."""

_LOG_OFFSET_MAX: Final = 1 << 62
_CODE_AT: Final = 12
_KEPT_MAX: Final = 1024
CODES_MAX: Final = 16
"""The native lane compares a unit with each code; with more codes than this, a set is faster."""


UnitRuns = tuple[bytes, Sequence[int], int, int]
"""The log ranges of the records (base/runs), their queue offsets, the offset after the last unit
that was examined, and the bytes of all records together."""


def runs_of(
    units: bytes, first: int, codes: frozenset[int] | None, count_max: int, size_max: int
) -> UnitRuns | None:
    """Of the units, the first of which has that queue offset, those with one of these codes (any
    with None). None if one of them is impossible."""
    find = native.find_runs
    if find is None or len(codes or ()) > CODES_MAX:
        return find_runs(units, first, codes, count_max, size_max)
    return find(units, first, coded(codes), count_max, size_max)


@lru_cache(_KEPT_MAX)
def coded(codes: frozenset[int] | None) -> bytes | None:
    """The codes in the form that the native lane takes."""
    return (
        None if codes is None else b"".join([ENTRY.pack(0, 0, code)[_CODE_AT:] for code in codes])
    )


def find_runs(
    units: bytes, first: int, codes: frozenset[int] | None, count_max: int, size_max: int
) -> UnitRuns | None:
    """What `runs_of` does, one unit at a time, as the native lane does it."""
    at, total = first, 0
    found: list[int] = []
    run_start = run_end = -1
    runs = bytearray()
    for log_offset, size, code in ENTRY.iter_unpack(units):
        if codes is None or code in codes:
            total += size
            # The first message is given however large it is: a consumer would ask for ever.
            # A gap's size is above every limit: all gaps end here, and need no other test.
            if total > size_max and (found or size == GAP_SIZE):
                total -= size
                if size != GAP_SIZE:
                    break
            elif not (0 < size <= RECORDS_SIZE_MAX and 0 <= log_offset < _LOG_OFFSET_MAX):
                return None
            else:
                if log_offset != run_end:
                    if run_end >= 0:
                        runs += RUN.pack(run_start, run_end - run_start)
                    run_start = log_offset
                run_end = log_offset + size
                found.append(at)
        at += 1
        if len(found) >= count_max:
            break
    if run_end >= 0:
        runs += RUN.pack(run_start, run_end - run_start)
    return bytes(runs), found, at, total
