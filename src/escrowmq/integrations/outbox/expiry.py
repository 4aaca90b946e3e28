"""Forgets what nobody can ask for any more.

A marker goes when it is older than it is to be kept, and no broker has a transaction with its key
that is pending or was given up. Two clocks must agree before anything goes by its age: one that
jumps ahead would make everything old.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Container
from typing import Final

from escrowmq.errors import UsageError
from escrowmq.integrations.outbox import tables
from escrowmq.integrations.outbox.steps import SqlStep, Steps
from escrowmq.integrations.outbox.tables import SqlFamily

CLOCKS_APART_MAX_MS: Final = 5 * 60_000
KEEP_MARKERS_MIN_MS: Final = 24 * 3_600_000
"""An END that was confirmed can be lost with a broker's power; so long, it is asked for again."""

KEEP_DEFAULT: Final = dt.timedelta(days=7)
"""Longer than RocketMQ's brokers ask for (fileReservedTime, 72 hours)."""

PAGE_COUNT: Final = 500
"""Rows of one transaction."""


def forget_markers(
    family: SqlFamily, *, keep_ms: int, now_ms: int, needed: Container[str]
) -> Steps[int]:
    """Delete markers older than that but for the `needed` keys; how many went. UsageError when the
    database's clock and the caller's are apart."""
    if keep_ms < KEEP_MARKERS_MIN_MS:
        raise UsageError(
            f"markers are to be kept for {keep_ms} ms; {KEEP_MARKERS_MIN_MS} (a day) is the least, "
            "and on RocketMQ's brokers their fileReservedTime and a day"
        )
    made_before_ms = (yield from _agreed_now_ms(family, now_ms)) - keep_ms
    count, after = 0, ""
    while True:
        # On from the last key, not from the beginning: those that are needed stay, and a page
        # full of them would come again for ever.
        page = tables.old_markers(made_before_ms=made_before_ms, after=after, count_max=PAGE_COUNT)
        rows = yield SqlStep(page, is_read=True)
        keys = [str(row[0]) for row in rows]
        gone = [key for key in keys if key not in needed]
        if gone:
            yield SqlStep(tables.delete_markers(gone))
        count += len(gone)
        if len(keys) < PAGE_COUNT:
            return count
        after = keys[-1]


def forget_handled(family: SqlFamily, *, keep_ms: int, now_ms: int) -> Steps[int]:
    """Delete what consumers handled longer ago than that; how many rows went."""
    if keep_ms < 0:
        raise UsageError(f"handled messages are to be kept for {keep_ms} ms; 0 or more is expected")
    made_before_ms = (yield from _agreed_now_ms(family, now_ms)) - keep_ms
    count = 0
    while True:
        rows = yield SqlStep(
            tables.delete_handled(family, made_before_ms=made_before_ms, count_max=PAGE_COUNT)
        )
        changed = int(str(rows[0][0]))
        count += changed
        if changed < PAGE_COUNT:
            return count


def _agreed_now_ms(family: SqlFamily, now_ms: int) -> Steps[int]:
    rows = yield SqlStep(tables.now(family), is_read=True)
    theirs_ms = int(str(rows[0][0]))
    if abs(theirs_ms - now_ms) > CLOCKS_APART_MAX_MS:
        raise UsageError(
            f"the database's clock and this machine's are {abs(theirs_ms - now_ms) / 1000:.0f} s "
            f"apart, {CLOCKS_APART_MAX_MS // 1000} are allowed; nothing was deleted. Mend the "
            "clock that is wrong, then let this run again"
        )
    return theirs_ms


def span_ms(span: dt.timedelta) -> int:
    """A timedelta in milliseconds. UsageError for anything else."""
    found: object = span
    if not isinstance(found, dt.timedelta):
        raise UsageError(f"keep={found!r}; a timedelta is expected, like timedelta(days=7)")
    return round(found.total_seconds() * 1000)
