"""Conversations with a database as generators: each step is handed out, its rows come back.

Whoever has a connection runs them with `run` or `run_async`; a test may run any number of them
interleaved as it likes. A step is a transaction of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import NamedTuple, TypeVar

from escrowmq.errors import EscrowMQError
from escrowmq.integrations.outbox.tables import Statement

Rows = list[tuple[object, ...]]
T = TypeVar("T")


class SqlStep(NamedTuple):
    """One transaction: `statement`, whose rows (or number of changed ones) are wanted, between
    others. Those of `after` are for the connection, and run whether or not it went well."""

    statement: Statement
    before: tuple[Statement, ...] = ()
    after: tuple[Statement, ...] = ()
    is_read: bool = False
    """Its answer has rows; else it is a change, and the one row has the number of rows changed."""
    is_apart: bool = False
    """In a conversation inside a transaction: not in that, but in one of its own."""

    def in_schema(self, quoted: str) -> SqlStep:
        """The same about the tables of one schema."""
        return self._replace(statement=self.statement.in_schema(quoted)) if quoted else self


class StepFailed(EscrowMQError):
    """The database did not do a step; the cause says why."""


Steps = Generator[SqlStep, Rows, T]


def run(steps: Steps[T], execute: Callable[[SqlStep], Rows]) -> T:
    """What the steps lead to."""
    try:
        step = next(steps)
        while True:
            try:
                rows = execute(step)
            except Exception as error:  # noqa: BLE001 - each driver has errors of its own
                step = steps.throw(failed(error))
            else:
                step = steps.send(rows)
    except StopIteration as end:
        found: T = end.value
        return found


async def run_async(steps: Steps[T], execute: Callable[[SqlStep], Awaitable[Rows]]) -> T:
    """What the steps lead to."""
    try:
        step = next(steps)
        while True:
            try:
                rows = await execute(step)
            except Exception as error:  # noqa: BLE001 - each driver has errors of its own
                step = steps.throw(failed(error))
            else:
                step = steps.send(rows)
    except StopIteration as end:
        found: T = end.value
        return found


def failed(error: Exception) -> StepFailed:
    """A driver's error as one that every conversation understands."""
    told = StepFailed(
        f"{type(error).__name__}: {' '.join(str(error).split())}; if a table escrowmq_... is "
        "missing, make it by the migration or with create_tables() (docs/outbox.md)"
    )
    told.__cause__ = error
    return told
