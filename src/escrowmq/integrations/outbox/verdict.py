"""The answer to a check, from the marker.

A producer's marker is inserted before any message of its transaction is stored. So whoever asks
about a message finds one of these:

- The row says `commit`: COMMIT.
- The row says `rollback`: an earlier check wrote it. ROLLBACK.
- The row is locked: its transaction is under way, or prepared. UNKNOWN, and the broker asks again.
- There is no row: the transaction has ended without it. ROLLBACK, once a row that says so stands in
  its place. Should the transaction commit all the same (a cluster of several primaries finds out
  late), its own row finds the place taken, and the commit fails.
"""

from __future__ import annotations

from typing import Final

from escrowmq.client.core.sending import Outcome
from escrowmq.integrations.outbox import tables
from escrowmq.integrations.outbox.steps import SqlStep, StepFailed, Steps
from escrowmq.integrations.outbox.tables import NAME_ID, SqlFamily

COMMIT: Final = "commit"
ROLLBACK: Final = "rollback"
_OUTCOMES: Final = {COMMIT: Outcome.COMMIT, ROLLBACK: Outcome.ROLLBACK}

LOCK_WAIT_S: Final = 2
"""How long a check waits for a transaction that has the marker locked."""


def parse_marker(marker: str) -> tuple[str, str]:
    """The database and the key that a message's marker names; empty ones when it cannot be."""
    database, colon, key = marker.rpartition(":")
    return (database, key) if colon and tables.is_key(key) else ("", "")


def answer(family: SqlFamily, marker: str, *, name: str) -> Steps[Outcome | None]:
    """What a check is told; None when the marker is of another database than `name`."""
    database, key = parse_marker(marker)
    if database != name:
        return None
    return (yield from verdict(family, key))


def name(family: SqlFamily, *, new_name: str) -> Steps[str]:
    """The database's name; the first who asks gives it one."""
    found = yield from _said(NAME_ID)
    if found:
        return found
    try:
        yield SqlStep(tables.mark(family, NAME_ID, new_name))
    except StepFailed:
        found = yield from _said(NAME_ID)
        if not found:
            raise
        return found
    return new_name


def verdict(family: SqlFamily, key: str) -> Steps[Outcome]:
    """How the transaction of a key ended. StepFailed when the database cannot be asked."""
    found = yield from _said(key)
    if found:
        return _OUTCOMES.get(found, Outcome.UNKNOWN)
    before, after = tables.waiting_shortly(family, lock_wait_s=LOCK_WAIT_S)
    tombstone = tables.mark(family, key, ROLLBACK)
    try:
        yield SqlStep(tombstone, before=tuple(before), after=tuple(after))
    except StepFailed:
        # The transaction is under way, or was quicker, or another check was.
        found = yield from _said(key)
        return _OUTCOMES.get(found, Outcome.UNKNOWN)
    return Outcome.ROLLBACK


def _said(key: str) -> Steps[str]:
    rows = yield SqlStep(tables.read(key), is_read=True)
    return str(rows[0][0]) if rows else ""
