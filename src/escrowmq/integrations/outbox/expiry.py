"""Forgets what nobody can ask for any more.

A marker goes when it is older than it is to be kept, and no broker has a transaction with its key
that is pending or was given up: brokers are noted in the database before the first message that
they take is committed, and nothing goes while one of them says nothing. Two clocks must agree
before anything goes by its age: one that jumps ahead would make everything old.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Container, Mapping
from typing import Final

from escrowmq.errors import RouteMissing, UsageError
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


def check_keep(keep_ms: int) -> None:
    """UsageError when markers would be kept for too short a time."""
    if keep_ms < KEEP_MARKERS_MIN_MS:
        raise UsageError(
            f"markers are to be kept for {keep_ms} ms; {KEEP_MARKERS_MIN_MS} (a day) is the least, "
            "and on RocketMQ's brokers their fileReservedTime and a day"
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
    """Delete markers older than that, except those of the `needed` keys; how many went. `brokers`
    are those that have said what they need, and since when they have messages. UsageError when the
    database's clock and the caller's are apart; RouteMissing when a broker has taken messages and
    is not among them, unless it is named in `gone`, which forgets it."""
    check_keep(keep_ms)
    yield from _require_all(family, brokers, gone)
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


def _require_all(
    family: SqlFamily, brokers: Mapping[str, int], gone: Collection[str]
) -> Steps[None]:
    begun_ms = {tables.broker_id(name): ms for name, ms in brokers.items()}

    def is_there(key: str, noted_ms: int) -> bool:
        # A log that was begun later than that is not the one that has taken the messages.
        return key in begun_ms and begun_ms[key] <= noted_ms + CLOCKS_APART_MAX_MS

    rows = yield SqlStep(tables.noted_brokers(), is_read=True)
    noted = {str(row[0]): (str(row[1]), is_there(str(row[0]), int(str(row[2])))) for row in rows}
    there = [name for name in sorted(gone) if noted.get(tables.broker_id(name), ("", False))[1]]
    if there:
        raise UsageError(
            f"brokers that are gone for good: {', '.join(there)}; the name server knows them, and "
            "they have what they took. Nothing was deleted"
        )
    left = {tables.broker_id(name) for name in gone}
    missing = [name for key, (name, is_there) in noted.items() if not is_there and key not in left]
    if missing:
        raise RouteMissing(
            f"no word from {', '.join(missing)}, which has taken messages of this database and may "
            "ask what became of them, or what answers by that name has begun an empty log since; "
            "nothing was deleted. Let this run again when it is back, or name it as gone "
            "(gone=[...], escrowmq check-from-db --gone NAME) when it never will be"
        )
    for name in gone:
        is_new = name in brokers
        yield SqlStep(tables.renew_broker(family, name) if is_new else tables.forget_broker(name))


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
