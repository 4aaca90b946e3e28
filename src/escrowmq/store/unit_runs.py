"""Chooses units of a queue, and finds the log ranges of their records; adjacent records are read
together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from escrowmq.base.runs import RUN
from escrowmq.codec.store_entries import ENTRY
from escrowmq.lane import native
from escrowmq.store.consume_queue import GAP_SIZE

RECORDS_SIZE_MAX: Final = 128 * 1024 * 1024
"""The most bytes of one answer, whatever the settings say."""

_LOG_OFFSET_MAX: Final = 1 << 62
_CODE_AT: Final = 12
_KEPT_MAX: Final = 1024
CODES_MAX: Final = 16
"""The most tags codes for the native lane, which compares a unit with each. With more, a set is
faster."""


UnitRuns = tuple[bytes, Sequence[int], int, int]
"""Log ranges of records (base/runs), their queue offsets, the offset after the last examined unit,
and the size of all records."""


def select_runs(
    units: bytes, first: int, codes: frozenset[int] | None, count_max: int, size_max: int
) -> UnitRuns | None:
    """Choose the units that have one of these codes (None: any), up to the limits. `first` is the
    queue offset of the first unit. Return None if a unit is impossible."""
    find = native.find_runs
    if find is None or len(codes or ()) > CODES_MAX:
        return select_runs_in_python(units, first, codes, count_max, size_max)
    return find(units, first, encode_codes(codes), count_max, size_max)


@lru_cache(_KEPT_MAX)
def encode_codes(codes: frozenset[int] | None) -> bytes | None:
    """Pack tags codes for the native lane, each as it is in a unit. None (any tag) stays None."""
    return (
        None if codes is None else b"".join([ENTRY.pack(0, 0, code)[_CODE_AT:] for code in codes])
    )


def select_runs_in_python(
    units: bytes, first: int, codes: frozenset[int] | None, count_max: int, size_max: int
) -> UnitRuns | None:
    """Do the same as `runs_of` in Python, one unit at a time."""
    at, total = first, 0
    found: list[int] = []
    run_start = run_end = -1
    runs = bytearray()
    for log_offset, size, code in ENTRY.iter_unpack(units):
        if codes is None or code in codes:
            total += size
            # The first message is returned at any size: otherwise a consumer would retry forever.
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
