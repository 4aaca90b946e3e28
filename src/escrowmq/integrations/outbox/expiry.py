"""Deletes rows that are no longer needed.

A marker is deleted when it is old enough, and no broker has a pending or discarded transaction with
its key. Brokers are recorded in the database before their first message is committed, and nothing
is deleted while one of them does not answer. Nothing is deleted either unless the clocks of the
database and this machine agree: a clock that jumped ahead would make all rows look old."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Collection, Container, Mapping
from typing import Final

from escrowmq.errors import RouteMissing, UsageError
from escrowmq.integrations.outbox import tables
from escrowmq.integrations.outbox.steps import SqlStep, Steps
from escrowmq.integrations.outbox.tables import SqlFamily

CLOCKS_APART_MAX_MS: Final = 5 * 60_000
KEEP_MARKERS_MIN_MS: Final = 24 * 3_600_000
"""Markers are kept at least this long: a confirmed END can be lost in a broker's power failure, and
the broker then checks again."""

KEEP_DEFAULT: Final = dt.timedelta(days=7)
"""By default markers are kept this long, which is longer than RocketMQ's brokers may check
(fileReservedTime, 72 hours)."""

GONE_DOUBT_MS: Final = 3_600_000
"""If a broker was declared gone within this time of a marker, the marker is kept. Messages of it
may be at a new broker of that name: a process notices the declaration only within ten minutes
(REREAD_MS), its transaction may have been open by then, and clocks differ."""

PAGE_COUNT: Final = 500
"""Limit of the rows deleted in one transaction."""


def check_keep_time(keep_ms: int) -> None:
    """Raise UsageError if markers would be kept for too short a time."""
    if keep_ms < KEEP_MARKERS_MIN_MS:
        raise UsageError(
            f"markers would be kept for {keep_ms} ms; at least {KEEP_MARKERS_MIN_MS} (a day) "
            "is required, and with RocketMQ's brokers their fileReservedTime and a day"
        )


def forget_markers(
    family: SqlFamily,
    *,
    keep_ms: int,
    now_ms: int,
    needed: Container[str],
    brokers: Mapping[str, int],
    gone: Collection[str] = (),
) -> Steps[int]:
    """Delete markers older than `keep_ms`, except those with the `needed` keys; return how many.
    `brokers` are the brokers that were asked, each with the time since which it has messages.
    Raises UsageError if the database's clock and the caller's differ. Raises RouteMissing if a
    broker that has taken messages was not asked, unless `gone` names it; naming it once is
    enough."""
    check_keep_time(keep_ms)
    theirs_ms = yield from _checked_now_ms(family, now_ms)
    left_ms = yield from _require_all_brokers(family, brokers, gone, now_ms=theirs_ms)
    made_before_ms = theirs_ms - keep_ms
    count, after = 0, ""
    while True:
        # Continue from the last key: needed rows stay, and a page full of them would otherwise be
        # read again for ever.
        page = tables.select_old_markers(
            made_before_ms=made_before_ms, after=after, count_max=PAGE_COUNT
        )
        rows = yield SqlStep(page, is_read=True)
        made_ms = {str(key): int(str(ms)) for key, ms in rows}
        old = [
            key
            for key, ms in made_ms.items()
            if key not in needed and not _is_in_doubt(ms, left_ms)
        ]
        if old:
            yield SqlStep(tables.delete_markers(old))
        count += len(old)
        if len(rows) < PAGE_COUNT:
            return count
        after = str(rows[-1][0])


def _is_in_doubt(made_ms: int, left_ms: Collection[int]) -> bool:
    return any(abs(made_ms - each) < GONE_DOUBT_MS for each in left_ms)


def _require_all_brokers(
    family: SqlFamily, brokers: Mapping[str, int], gone: Collection[str], *, now_ms: int
) -> Steps[list[int]]:
    """Raise unless all recorded brokers were asked, except those that are gone. Record which
    brokers are gone and which are back. Return the times at which the brokers were declared gone
    that this call does not name."""
    begun_ms = {tables.broker_id(name): ms for name, ms in brokers.items()}

    def has_answered(key: str, noted_ms: int) -> bool:
        # A broker whose log began after that is not the one that has taken the messages.
        return noted_ms >= 0 and begun_ms.get(key, math.inf) <= noted_ms + CLOCKS_APART_MAX_MS

    rows = yield SqlStep(tables.select_brokers(), is_read=True)
    noted = {str(row[0]): (str(row[1]), int(str(row[2]))) for row in rows}
    there = [
        name
        for name in sorted(gone)
        if has_answered(tables.broker_id(name), noted.get(tables.broker_id(name), ("", -1))[1])
    ]
    if there:
        raise _still_there_error(there)
    named = {tables.broker_id(name) for name in gone}
    missing = [
        name
        for key, (name, ms) in noted.items()
        if ms >= 0 and key not in named and not has_answered(key, ms)
    ]
    if missing:
        raise _no_answer_error(missing)
    left = {key: each for key, each in noted.items() if each[1] < 0 and key not in named}
    for name in [*gone, *(each[0] for key, each in left.items() if key in begun_ms)]:
        is_new = name in brokers
        yield SqlStep(
            tables.reset_broker(family, name)
            if is_new
            else tables.mark_broker_gone(name, now_ms=now_ms)
        )
    return [-ms for key, (_, ms) in left.items() if key not in begun_ms]


def _still_there_error(names: Collection[str]) -> UsageError:
    return UsageError(
        f"brokers that are gone for good: {', '.join(names)}; the name server knows "
        "them, and they still have the messages that they took. Nothing was deleted"
    )


def _no_answer_error(names: Collection[str]) -> RouteMissing:
    return RouteMissing(
        f"no answer from {', '.join(names)}, which has taken messages of this database "
        "and may ask for their outcome; or a broker of that name has begun an empty log "
        "since. Nothing was deleted. Run this again when the broker is back, or name it "
        "as gone for good (gone=[...], escrowmq check-from-db --gone NAME)"
    )


def forget_handled(family: SqlFamily, *, keep_ms: int, now_ms: int) -> Steps[int]:
    """Delete records of messages that were handled longer than `keep_ms` ago; return how many."""
    if keep_ms < 0:
        raise UsageError(
            f"records of handled messages would be kept for {keep_ms} ms; 0 or more is expected"
        )
    made_before_ms = (yield from _checked_now_ms(family, now_ms)) - keep_ms
    count = 0
    while True:
        rows = yield SqlStep(
            tables.delete_handled(family, made_before_ms=made_before_ms, count_max=PAGE_COUNT)
        )
        changed = int(str(rows[0][0]))
        count += changed
        if changed < PAGE_COUNT:
            return count


def _checked_now_ms(family: SqlFamily, now_ms: int) -> Steps[int]:
    rows = yield SqlStep(tables.select_now(family), is_read=True)
    theirs_ms = int(str(rows[0][0]))
    if abs(theirs_ms - now_ms) > CLOCKS_APART_MAX_MS:
        raise UsageError(
            f"the database's clock and this machine's are {abs(theirs_ms - now_ms) / 1000:.0f} s "
            f"apart, {CLOCKS_APART_MAX_MS // 1000} are allowed; nothing was deleted. Correct the "
            f"wrong clock, then run this again"
        )
    return theirs_ms


def timedelta_ms(span: dt.timedelta) -> int:
    """Convert a timedelta to milliseconds. Raises UsageError for anything else."""
    found: object = span
    if not isinstance(found, dt.timedelta):
        raise UsageError(f"keep={found!r}; a timedelta is expected, like timedelta(days=7)")
    return round(found.total_seconds() * 1000)
