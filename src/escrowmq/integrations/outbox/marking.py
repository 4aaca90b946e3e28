"""Writes a transaction's marker, inside that transaction, and verifies that it is there.

On PostgreSQL the marker is written right before COMMIT: a failed transaction accepts no more
statements, so no other begins unnoticed in its place. MariaDB and MySQL roll back a whole
transaction after a deadlock, SQLite after a full disk, and then begin another one if the program
catches the error. There the marker is written with the first message, and verified before COMMIT: a
rollback would have removed it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Protocol, TypeVar

from escrowmq.errors import MarkerNotWritten
from escrowmq.integrations.outbox import tables, verdict
from escrowmq.integrations.outbox.known_brokers import SETTLED_MS, KnownBrokers
from escrowmq.integrations.outbox.steps import SqlStep, StepFailed, Steps
from escrowmq.integrations.outbox.tables import MarkerTable, SqlFamily

TRIES: Final = 3
"""Limit of attempts to write a marker: into the remembered table, into the one found instead, and
once more after that got a name."""


class HasMarkerKey(Protocol):
    """Messages that are being stored under a marker's key."""

    @property
    def key(self) -> str:
        """The marker's key."""


M = TypeVar("M", bound=HasMarkerKey)


def writes_marker_early(family: SqlFamily) -> bool:
    """Whether the marker is written with the first message."""
    return family is not SqlFamily.POSTGRESQL


def write_marker(
    family: SqlFamily,
    begin: Callable[[str], M],
    *,
    place: MarkerTable | None,
    new_name: Callable[[], str],
    is_long: bool = False,
) -> Steps[tuple[M, MarkerTable | None]]:
    """Write a marker into the table that the transaction finds. Return the messages, which `begin`
    makes for the database's name, and the table, which the next call may pass as `place`. With
    `is_long` the transaction may stay open for long; then locks that others would wait for are
    taken in separate transactions."""
    # A name is made only for a database without one: random bytes are a system call, during which
    # another thread takes the GIL.
    for attempt in range(TRIES):
        is_kept = True
        if place is None:
            is_apart = (is_long or writes_marker_early(family)) and attempt < TRIES - 1
            place, is_kept = yield from _find_table(family, new_name=new_name, is_apart=is_apart)
        sent = begin(place.name)
        rows = yield SqlStep(
            tables.insert_outcome_if_here(family, sent.key, verdict.COMMIT, proof=place.proof)
        )
        if rows[0][0] == 1:
            return sent, place if is_kept else None
        place = None
    raise StepFailed(
        f"the table {tables.MARKERS} that the transaction finds changes from statement to statement"
    )


def write_marker_into(family: SqlFamily, place: MarkerTable, key: str) -> Steps[None]:
    """Write a marker into this table. Raises StepFailed if the transaction finds another table."""
    rows = yield SqlStep(
        tables.insert_outcome_if_here(family, key, verdict.COMMIT, proof=place.proof)
    )
    if rows[0][0] != 1:
        raise StepFailed(
            f"the table {tables.MARKERS} that the transaction finds is another than the one that "
            "was found before"
        )


def require_marker(key: str) -> Steps[None]:
    """Raise MarkerNotWritten unless the transaction still has the marker."""
    rows = yield SqlStep(tables.touch_marker(key))
    if rows[0][0] != 1:
        raise MarkerNotWritten(
            "the database has rolled back the transaction meanwhile, as it does for a "
            "deadlock, so its messages are not sent: roll back, and run the transaction "
            "again"
        )


def _find_table(
    family: SqlFamily, *, new_name: Callable[[], str], is_apart: bool
) -> Steps[tuple[MarkerTable, bool]]:
    """Return the table that the transaction finds, and whether that remains valid after a
    rollback."""
    rows = yield SqlStep(tables.select_marker_table(family), is_read=True)
    is_kept = bool(rows)
    if not rows and is_apart and family is not SqlFamily.SQLITE:
        # A second connection, while this one is held: no more than once in a database's life, and
        # none of a pool that others of this kind may hold the rest of.
        return (
            yield from _outside_transaction(verdict.find_marker_table(family, new_name=new_name()))
        ), True
    if not rows:
        # Other transactions that get here meanwhile wait for the end of this one, which is near, or
        # which has SQLite's only lock.
        yield SqlStep(tables.name_database(family, new_name()))
        rows = yield SqlStep(tables.select_marker_table(family), is_read=True)
    if not rows:
        raise StepFailed("another transaction has given the database its name meanwhile")
    return MarkerTable(str(rows[0][0]), str(rows[0][1])), is_kept


def record_brokers(
    family: SqlFamily, names: Collection[str], known: KnownBrokers, *, is_long: bool = False
) -> Steps[None]:
    """Record, before the transaction commits, which brokers may ask about it. Those whose record
    this process has seen are added to `known`, and need no statement for a while."""
    is_lite = family is SqlFamily.SQLITE
    for name in known.names_to_look_up(names):  # in one order, so that no two wait for each other
        note = _record_by_writing(name) if is_lite else _record_after_reading(family, name, is_long)
        if (yield from note):
            known.add(name)


def _record_after_reading(family: SqlFamily, name: str, is_apart: bool) -> Steps[bool]:
    """Record a broker unless its row is there. Return whether the row existed before this
    transaction."""
    row = tables.select_broker(family, name)
    rows = yield SqlStep(row, is_read=True, is_apart=is_apart)
    if not rows:
        yield SqlStep(tables.record_broker(family, name), is_apart=is_apart)
        return False
    made_ms, now_ms = (int(str(value)) for value in rows[0])
    if made_ms < 0:
        yield SqlStep(tables.reset_gone_broker(family, name), is_apart=is_apart)
    return 0 <= made_ms <= now_ms - SETTLED_MS


def _record_by_writing(name: str) -> Steps[bool]:
    """Record a broker in SQLite, without a select: if a task is cancelled during a select, the
    select stays open, and so does the lock. Return whether the row existed before."""
    lite = SqlFamily.SQLITE
    rows = yield SqlStep(tables.touch_broker(lite, name, older_than_ms=SETTLED_MS))
    if rows[0][0] == 1:
        return True
    yield SqlStep(tables.record_broker(lite, name))
    yield SqlStep(tables.reset_gone_broker(lite, name))
    return False


T = TypeVar("T")


def _outside_transaction(steps: Steps[T]) -> Steps[T]:
    """Return these steps, to be run in separate transactions."""
    try:
        step = next(steps)
        while True:
            try:
                rows = yield step._replace(is_apart=True)
            except StepFailed as error:
                step = steps.throw(error)
            else:
                step = steps.send(rows)
    except StopIteration as end:
        found: T = end.value
        return found
