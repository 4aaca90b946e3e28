"""The answer to a check, from the marker.

A producer's marker is inserted before any message of its transaction is stored. So a check about a
message finds one of these:

- The row says `commit`: COMMIT.
- The row says `rollback`: an earlier check wrote it. ROLLBACK.
- The row is locked: its transaction is still open, or prepared. UNKNOWN, and the broker asks again.
- There is no row: the transaction has ended without it. ROLLBACK, after inserting a tombstone in
  its place. If the transaction commits after all (a multi-primary cluster may learn of it late),
  inserting its marker fails on the tombstone, and so does the commit. The tombstone must go into
  the table with the name of the marker's database; otherwise the answer is UNKNOWN.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from escrowmq.client.core.sending import Outcome
from escrowmq.integrations.outbox import tables
from escrowmq.integrations.outbox.steps import SqlStep, StepFailed, Steps
from escrowmq.integrations.outbox.tables import NAME_ID, MarkerTable, SqlFamily

COMMIT: Final = "commit"
ROLLBACK: Final = "rollback"
_OUTCOMES: Final = {COMMIT: Outcome.COMMIT, ROLLBACK: Outcome.ROLLBACK}

_LOOKS: Final = 2
"""Limit of attempts to find the right table, which may change once between two statements."""

LOCK_WAIT_S: Final = 2
"""How long a check waits for a transaction that has locked the marker."""


def parse_marker(marker: str) -> tuple[str, str]:
    """Return the database's name and the key in a message's marker; both empty if the marker is
    invalid."""
    database, colon, key = marker.rpartition(":")
    return (database, key) if colon and tables.is_marker_key(key) else ("", "")


class CheckAnswer(NamedTuple):
    """The answer to a check."""

    outcome: Outcome | None
    """The outcome; None if the marker belongs to another database than the one that the connection
    finds."""
    place: MarkerTable | None
    """The table that was found; None if it was not searched for. Pass it to the next check."""


def answer_check(
    family: SqlFamily,
    marker: str,
    *,
    place: MarkerTable | None,
    new_name: str,
    may_write: bool = True,
) -> Steps[CheckAnswer]:
    """Answer a check. `place` is the table that the last check found. Without `may_write` no
    tombstone is inserted: if there is no row, the answer is UNKNOWN."""
    database, key = parse_marker(marker)
    for _ in range(_LOOKS):
        if place is None or place.name != database:  # perhaps it has another name by now
            place = yield from find_marker_table(family, new_name=new_name)
        if place.name != database:
            return CheckAnswer(None, place)
        if not may_write:
            found = yield from _read_marker(key)
            return CheckAnswer(_OUTCOMES.get(found, Outcome.UNKNOWN), place)
        outcome = yield from decide_outcome(family, key, proof=place.proof)
        if outcome is not None:
            return CheckAnswer(outcome, place)
        place = None
    return CheckAnswer(Outcome.UNKNOWN, None)


def find_marker_table(family: SqlFamily, *, new_name: str) -> Steps[MarkerTable]:
    """Return the table of markers that the connection finds; the first caller gives the database
    its name."""
    for _ in range(_LOOKS):
        rows = yield SqlStep(tables.select_marker_table(family), is_read=True)
        if rows:
            return MarkerTable(str(rows[0][0]), str(rows[0][1]))
        try:
            yield SqlStep(tables.insert_outcome(family, NAME_ID, new_name))
        except StepFailed as error:
            rows = yield SqlStep(tables.select_marker_table(family), is_read=True)
            if rows:
                return MarkerTable(str(rows[0][0]), str(rows[0][1]))
            raise error from error.__cause__
    raise StepFailed("the database was given a name, but the name cannot be found in it")


def decide_outcome(family: SqlFamily, key: str, *, proof: str) -> Steps[Outcome | None]:
    """Return the outcome of a key's transaction, inserting a tombstone if there is no row. Return
    None if there is no row, and the table is not the one with `proof`. Raises StepFailed if the
    database is unreachable."""
    found = yield from _read_marker(key)
    if found:
        return _OUTCOMES.get(found, Outcome.UNKNOWN)
    before, after = tables.limit_lock_wait(family, lock_wait_s=LOCK_WAIT_S)
    tombstone = tables.insert_outcome_if_here(family, key, ROLLBACK, proof=proof)
    try:
        rows = yield SqlStep(tombstone, before=tuple(before), after=tuple(after))
    except StepFailed:
        # The transaction is still open, or was committed before this, or another check was first.
        found = yield from _read_marker(key)
        return _OUTCOMES.get(found, Outcome.UNKNOWN)
    return Outcome.ROLLBACK if rows[0][0] == 1 else None


def _read_marker(key: str) -> Steps[str]:
    rows = yield SqlStep(tables.select_outcome(key), is_read=True)
    return str(rows[0][0]) if rows else ""
