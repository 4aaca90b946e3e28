"""Whatever the order in which checks and commits come: an order has its message, or neither is."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.client.core.sending import Outcome
from escrowmq.integrations.outbox import tables, verdict
from escrowmq.integrations.outbox.steps import SqlStep, Steps
from escrowmq.integrations.outbox.tables import SqlFamily

from .mariadb import MariaDbServer
from .races import MariaDb, Postgres, Sqlite, failures, prepare

ON_SERVERS = range(12)
"""Seeds; `make races` tries a thousand on each."""


@pytest.fixture
def sqlite(tmp_path: Path) -> Sqlite:
    database = Sqlite(tmp_path / "races.db")
    prepare(database)
    return database


def test_no_order_of_steps_parts_order_and_message(sqlite: Sqlite) -> None:
    assert failures(sqlite, range(300)) == {}


def test_no_order_of_steps_parts_them_on_postgresql(postgres_address: str) -> None:
    database = Postgres(postgres_address)
    prepare(database)
    assert failures(database, ON_SERVERS) == {}


def test_no_order_of_steps_parts_them_on_mariadb(maria: MariaDbServer) -> None:
    database = MariaDb(maria.socket, maria.new_database())
    prepare(database)
    assert failures(database, ON_SERVERS) == {}


def reads_only(family: SqlFamily, key: str) -> Steps[Outcome]:
    """What is written by hand: no row, so it was rolled back."""
    rows = yield SqlStep(tables.select_outcome(key), is_read=True)
    return Outcome.COMMIT if rows else Outcome.ROLLBACK


def forgets_the_second_look(family: SqlFamily, key: str) -> Steps[Outcome]:
    from escrowmq.integrations.outbox.steps import StepFailed

    rows = yield SqlStep(tables.select_outcome(key), is_read=True)
    if rows:
        return Outcome.COMMIT if rows[0][0] == verdict.COMMIT else Outcome.ROLLBACK
    try:
        yield SqlStep(tables.insert_outcome(family, key, verdict.ROLLBACK))
    except StepFailed:
        return Outcome.ROLLBACK
    return Outcome.ROLLBACK


@pytest.mark.parametrize("judge", [reads_only, forgets_the_second_look])
def test_the_runs_find_a_check_that_guesses(sqlite: Sqlite, judge: object) -> None:
    assert failures(sqlite, range(100), judge)  # type: ignore[arg-type]
