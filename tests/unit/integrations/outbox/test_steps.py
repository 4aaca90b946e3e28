from __future__ import annotations

import asyncio
import traceback

import pytest

from escrowmq.integrations.outbox.steps import (
    Rows,
    SqlStep,
    StepFailed,
    Steps,
    run_steps,
    run_steps_async,
    to_step_failed,
)
from escrowmq.integrations.outbox.tables import Statement

ONE = SqlStep(Statement("one"), is_read=True)


def conversation() -> Steps[str]:
    rows = yield ONE
    try:
        yield SqlStep(Statement("two"))
    except StepFailed as error:
        return f"{rows} {error}"
    return f"{rows}"


def execute(step: SqlStep) -> Rows:
    if step is ONE:
        return [(1,)]
    raise KeyError("planted")


def test_rows_and_failures_go_back_into_the_conversation() -> None:
    told = run_steps(conversation(), execute)
    assert told.startswith("[(1,)] KeyError: 'planted'; if a table")

    async def awaited(step: SqlStep) -> Rows:
        return execute(step)

    assert asyncio.run(run_steps_async(conversation(), awaited)) == told


def test_a_cancellation_is_no_answer_of_the_database() -> None:
    async def cancelled(step: SqlStep) -> Rows:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run_steps_async(conversation(), cancelled))


def test_a_step_is_put_into_a_schema() -> None:
    step = SqlStep(Statement("select 1 from escrowmq_markers"), is_read=True)
    assert step.in_schema("") is step
    found = step.in_schema('"sales"')
    assert found.is_read
    assert found.statement.text == 'select 1 from "sales".escrowmq_markers'


def test_an_error_of_sqlalchemy_is_told_without_the_values_of_its_statement() -> None:
    """They are the bodies and properties of messages."""
    sa = pytest.importorskip("sqlalchemy")
    engine, card = sa.create_engine("sqlite://"), " ".join(["4111"] * 4)
    with engine.connect() as connection, pytest.raises(sa.exc.OperationalError) as raised:
        connection.exec_driver_sql("insert into nowhere values (?)", (card,))
    told = to_step_failed(raised.value)
    assert str(told).startswith("OperationalError: no such table: nowhere; if a table")
    assert card not in "".join(traceback.format_exception(told))
    engine.dispose()
