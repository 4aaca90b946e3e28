"""Sequences of database steps, written as generators: they yield steps, and get the rows back.

The owner of a connection runs them with `run_steps` or `run_steps_async`; a test may interleave any
number of them. Each step is a transaction of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import NamedTuple, TypeVar

from escrowmq.errors import EscrowMQError
from escrowmq.integrations.outbox.tables import Statement

Rows = list[tuple[object, ...]]
T = TypeVar("T")


class SqlStep(NamedTuple):
    """One database transaction: `statement` between other statements. Its result is the rows of
    `statement`, or the number of rows that it changed. The statements in `after` restore the
    connection, and run even after a failure."""

    statement: Statement
    before: tuple[Statement, ...] = ()
    after: tuple[Statement, ...] = ()
    is_read: bool = False
    """Whether the result is the selected rows. Otherwise it is one row with the number of changed
    rows."""
    is_apart: bool = False
    """Whether the step must run in a separate transaction, even if the others run inside one."""

    def in_schema(self, quoted: str) -> SqlStep:
        """Return this step for tables in a schema."""
        return self._replace(statement=self.statement.in_schema(quoted)) if quoted else self


class StepFailed(EscrowMQError):
    """Raised if the database failed to execute a step; the cause says why."""


Steps = Generator[SqlStep, Rows, T]


def run_steps(steps: Steps[T], execute: Callable[[SqlStep], Rows]) -> T:
    """Run the steps with a blocking function; return their result."""
    try:
        step = next(steps)
        while True:
            try:
                rows = execute(step)
            except Exception as error:  # noqa: BLE001 - each driver has errors of its own
                step = steps.throw(to_step_failed(error))
            else:
                step = steps.send(rows)
    except StopIteration as end:
        found: T = end.value
        return found


async def run_steps_async(steps: Steps[T], execute: Callable[[SqlStep], Awaitable[Rows]]) -> T:
    """Run the steps with a coroutine function; return their result."""
    try:
        step = next(steps)
        while True:
            try:
                rows = await execute(step)
            except Exception as error:  # noqa: BLE001 - each driver has errors of its own
                step = steps.throw(to_step_failed(error))
            else:
                step = steps.send(rows)
    except StopIteration as end:
        found: T = end.value
        return found


def to_step_failed(error: Exception) -> StepFailed:
    """Convert a driver's error to StepFailed, the only database error that steps handle."""
    failure = StepFailed(
        f"{type(error).__name__}: {error_line(error)}; if a table escrowmq_... is "
        f"missing, create it by the migration or with create_tables() (docs/outbox.md)"
    )
    failure.__cause__ = error
    return failure


def error_line(error: Exception) -> str:
    """Return a database's error in one line, without the statement's values: these are bodies and
    properties of messages."""
    if hasattr(error, "hide_parameters"):  # SQLAlchemy's, also where a traceback shows it
        error.hide_parameters = True
    own = getattr(error, "orig", None)
    return " ".join(str(own if isinstance(own, BaseException) else error).split())
