"""Checks that race commits, in an order that a seed chooses: transactions, their deaths, checks and
ENDs take turns over one real database, and a broker that is only a table keeps the first outcome.

    python -m tests.outbox.races --seeds 10000
    python -m tests.outbox.races --seeds 1000 --on postgresql    # or mariadb

The database is real, and the run's own, because its locks and its visibility are what is in
question; all else is single steps in one thread, so that a seed says everything. PostgreSQL's locks
are waited for 5 ms, MariaDB's not at all.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sqlite3
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pymysql

from escrowmq.client.core.sending import Outcome
from escrowmq.integrations.outbox import schema, tables, verdict
from escrowmq.integrations.outbox.steps import SqlStep, StepFailed, Steps
from escrowmq.integrations.outbox.tables import SqlFamily, Statement
from tests.compensation.services import PostgresServer
from tests.outbox.mariadb import MariaDbServer

Turns = Generator[None, None, None]
Verdict = Callable[[SqlFamily, str], Steps[Outcome]]

ORDERS = "create table if not exists orders (id varchar(64) primary key)"
STEPS_MAX = 2_000
MARK_TRIES = 3
CHECKS_MAX = 3


class Database(Protocol):
    """Connections to one database, and what its family is."""

    family: SqlFamily
    proof: str

    @property
    def errors(self) -> tuple[type[Exception], ...]: ...

    def connect(self) -> Any: ...

    def style(self) -> str: ...


class Sqlite:
    family = SqlFamily.SQLITE
    errors = (sqlite3.Error,)
    proof = ""

    def __init__(self, file: Path) -> None:
        self._file = file

    def connect(self) -> Any:
        connection = sqlite3.connect(self._file, timeout=0)
        connection.execute("pragma synchronous = off")
        return connection

    def style(self) -> str:
        return "qmark"


class Postgres:
    family = SqlFamily.POSTGRESQL
    errors = (psycopg.Error,)
    proof = ""

    def __init__(self, address: str) -> None:
        self._address = address

    def connect(self) -> Any:
        connection = psycopg.connect(self._address)
        connection.execute("set lock_timeout = 5")
        connection.commit()
        return connection

    def style(self) -> str:
        return "format"


class MariaDb:
    family = SqlFamily.MYSQL
    errors = (pymysql.Error,)
    proof = ""

    def __init__(self, socket: str, name: str) -> None:
        self._socket = socket
        self._name = name

    def connect(self) -> Any:
        connection = pymysql.connect(unix_socket=self._socket, user="root", database=self._name)
        connection.cursor().execute("set innodb_lock_wait_timeout = 0")
        return connection

    def style(self) -> str:
        return "format"


class Broker:
    """Halves by key: None while pending. The first outcome stays."""

    def __init__(self) -> None:
        self.halves: dict[str, Outcome | None] = {}
        self.contradictions: list[str] = []

    def end(self, key: str, outcome: Outcome) -> None:
        if outcome is Outcome.UNKNOWN:
            return
        known = self.halves.get(key)
        if known not in (None, outcome):
            self.contradictions.append(f"{key}: {known} and then {outcome}")
        self.halves[key] = known or outcome


class World:
    """One run: `run` returns what went wrong."""

    def __init__(self, database: Database, chance: random.Random, judge: Verdict) -> None:
        self._database = database
        self._chance = chance
        self._judge = judge
        self._broker = Broker()
        self._idle: list[Any] = []

    def run(self, *, transactions_count: int) -> list[str]:
        keys = [f"{self._chance.getrandbits(64):016X}" for _ in range(transactions_count)]
        turns: list[Turns] = [self._transaction(key) for key in keys]
        turns += [self._checks(key) for key in keys for _ in range(2)]
        for _ in range(STEPS_MAX):
            if not turns:
                break
            each = self._chance.choice(turns)
            try:
                next(each)
            except StopIteration:
                turns.remove(each)
        assert not turns, "the run has no end"
        self._settle_all()
        return self._judged(keys)

    # -- those that take turns ---------------------------------------------------------------

    def _transaction(self, key: str) -> Turns:
        """One that commits, is rolled back, or dies at any step; its END may be lost."""
        chance, connection = self._chance, self._take()
        yield
        dies_at = chance.choice([0, 1, 2, 3, 4, 5, 6, 6, 6])
        try:
            if dies_at == 1:
                return
            if not (yield from self._tried(connection, _order(key))):
                return
            if dies_at == 2:
                return
            mark = tables.insert_outcome_if_here(
                self._database.family, key, verdict.COMMIT, proof=self._database.proof
            )
            if not (yield from self._tried(connection, mark)):
                return
            if dies_at == 3:
                return
            yield
            self._broker.halves[key] = None
            yield
            if dies_at == 4:
                return
            if dies_at == 5:
                connection.rollback()
                self._broker.end(key, Outcome.ROLLBACK)
                return
            try:
                connection.commit()
            except self._database.errors:
                return
            yield
            if chance.random() < 0.5:
                self._broker.end(key, Outcome.COMMIT)
        finally:
            self._give_back(connection)

    def _tried(self, connection: Any, statement: Statement) -> Generator[None, None, bool]:
        """SQLite has one lock for all: a real program waits for it, this one comes again."""
        for _ in range(MARK_TRIES):
            try:
                self._execute(connection, statement)
            except self._database.errors:
                if self._database.family is not SqlFamily.SQLITE:
                    return False
                yield
            else:
                yield
                return True
        return False

    def _checks(self, key: str) -> Turns:
        for _ in range(CHECKS_MAX):
            while key not in self._broker.halves:
                yield
                if self._chance.random() < 0.05:
                    return
            outcome = yield from self._check(key)
            yield
            self._broker.end(key, outcome)

    def _check(self, key: str) -> Generator[None, None, Outcome]:
        steps = self._judge(self._database.family, key)
        connection = self._take()
        try:
            step = next(steps)
            while True:
                yield
                try:
                    rows = yield from self._step(connection, step)
                except self._database.errors as error:
                    connection.rollback()
                    step = steps.throw(StepFailed(str(error)))
                else:
                    step = steps.send(rows)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome
        except StepFailed:
            return Outcome.UNKNOWN
        finally:
            self._give_back(connection)

    def _step(self, connection: Any, step: SqlStep) -> Generator[None, None, list[Any]]:
        for each in step.before:
            if "timeout" not in each.text:  # which is that of the connection here
                self._execute(connection, each)
        cursor = self._execute(connection, step.statement)
        rows = cursor.fetchall() if step.is_read else [(cursor.rowcount,)]
        yield
        connection.commit()
        return rows

    # -- inside ------------------------------------------------------------------------------

    def _execute(self, connection: Any, statement: Statement) -> Any:
        cursor = connection.cursor()
        cursor.execute(statement.in_paramstyle(self._database.style()), statement.values)
        return cursor

    def _take(self) -> Any:
        return self._idle.pop() if self._idle else self._database.connect()

    def _give_back(self, connection: Any) -> None:
        connection.rollback()  # as a server does with a connection that is lost
        self._idle.append(connection)

    def _settle_all(self) -> None:
        """All transactions are over: now each check has an answer."""
        for key, outcome in self._broker.halves.items():
            if outcome is None:
                check = self._check(key)
                try:
                    while True:
                        next(check)
                except StopIteration as end:
                    self._broker.end(key, end.value)

    def _judged(self, keys: list[str]) -> list[str]:
        connection = self._take()
        orders = {row[0] for row in self._execute(connection, Statement("select id from orders"))}
        connection.rollback()
        for each in [*self._idle, connection]:
            each.close()
        wrong = list(self._broker.contradictions)
        for key in keys:
            outcome = self._broker.halves.get(key)
            if key in self._broker.halves and outcome is None:
                wrong.append(f"{key}: nobody knows")
            elif (key in orders) is not (outcome is Outcome.COMMIT):
                wrong.append(f"{key}: order {key in orders}, message {outcome}")
        return wrong


def _order(key: str) -> Statement:
    return Statement("insert into orders (id) values (?)", (key,))


def prepare(database: Database) -> None:
    """Make the tables."""
    connection = database.connect()
    for statement in [*schema.create_statements(database.family), Statement(ORDERS)]:
        connection.cursor().execute(statement.text)
    name = tables.insert_outcome(database.family, tables.NAME_ID, "races")
    cursor = connection.cursor()
    cursor.execute(name.in_paramstyle(database.style()), name.values)
    cursor.execute(tables.select_marker_table(database.family).text)
    database.proof = cursor.fetchone()[1]
    connection.commit()
    connection.close()


def judged(family: SqlFamily, key: str) -> Steps[Outcome]:
    """As an outbox does it that has never looked."""
    found = yield from verdict.answer_check(family, f"races:{key}", place=None, new_name="never")
    assert found.outcome is not None
    return found.outcome


def failures(
    database: Database, seeds: Iterator[int] | range, judge: Verdict = judged
) -> dict[int, list[str]]:
    """What went wrong, by seed."""
    found = {}
    for seed in seeds:
        wrong = World(database, random.Random(seed), judge).run(transactions_count=3)
        if wrong:
            found[seed] = wrong
    return found


@contextlib.contextmanager
def opened(kind: str, folder: Path) -> Iterator[Database]:
    """An empty database of a kind, inside the block."""
    if kind == "sqlite":
        yield Sqlite(folder / "races.db")
    elif kind == "postgresql":
        postgres = PostgresServer(folder)
        yield Postgres(postgres.new_database())
        postgres.stop()
    else:
        maria = MariaDbServer(folder)
        yield MariaDb(maria.socket, maria.new_database())
        maria.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--on", choices=("sqlite", "postgresql", "mariadb"), default="sqlite")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    with tempfile.TemporaryDirectory() as folder:
        with opened(arguments.on, Path(folder)) as database:
            prepare(database)
            found = failures(database, seeds)
    for seed, wrong in found.items():
        print(f"seed {seed}: {'; '.join(wrong)}")
    print(f"{arguments.seeds} runs on {arguments.on}, {len(found)} went wrong")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
