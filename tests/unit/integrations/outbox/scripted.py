"""A database that a list stands for."""

from __future__ import annotations

import sqlite3
import weakref

from escrowmq.integrations.outbox import schema, tables
from escrowmq.integrations.outbox.steps import Rows, SqlStep
from escrowmq.integrations.outbox.tables import SqlFamily

LITE = SqlFamily.SQLITE


class Base:
    """SQLite in memory. `failing` are steps that fail, by the beginning of their text."""

    def __init__(self, *, has_tables: bool = True) -> None:
        self.connection = sqlite3.connect(":memory:", check_same_thread=False)
        weakref.finalize(self, self.connection.close)  # which Python asks for from 3.13 on
        self.failing: list[str] = []
        self.steps: list[str] = []
        for statement in schema.create_statements(LITE) if has_tables else ():
            self.connection.execute(statement.text)

    def execute(self, step: SqlStep) -> Rows:
        text = step.statement.text
        self.steps.append(text.split()[0])
        for front in self.failing:
            if text.startswith(front):
                raise sqlite3.OperationalError("planted")
        with self.connection:
            cursor = self.connection.execute(text, step.statement.values)
            return cursor.fetchall() if step.is_read else [(cursor.rowcount,)]

    def put(self, key: str, says: str, *, made_ms: int = 0) -> None:
        with self.connection:
            self.connection.execute(
                f"insert into {tables.MARKERS} values (?, ?, ?)", (key, says, made_ms)
            )

    def all(self, table: str = tables.MARKERS) -> dict[str, str]:
        rows = self.connection.execute(f"select * from {table}")
        return {row[0]: row[1] for row in rows}
