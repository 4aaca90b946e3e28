"""Steps of an outbox on SQLAlchemy's asyncio whose task is cancelled."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import create_async_engine

from escrowmq.integrations.outbox.hand_over import HandOver
from escrowmq.integrations.outbox.steps import SqlStep
from escrowmq.integrations.outbox.tables import Statement
from escrowmq.integrations.outbox_base import new_database_name
from escrowmq.integrations.sqlalchemy.async_outbox import _AsyncDatabase
from escrowmq.integrations.sqlalchemy.hooks import ConnectionHooks

WITHIN_S = 60
SLOW = Statement("select slow()")


def _no_messages(name: str) -> Any:
    raise AssertionError(name)


@pytest.mark.parametrize("is_in_transaction", [False, True])
def test_a_cancelled_step_ends_before_its_task_and_keeps_its_connection(
    tmp_path: Path, *, is_in_transaction: bool
) -> None:
    """SQLAlchemy closed the connection in the middle, and aiosqlite, closed so, could keep the
    program from ever ending."""
    begun, may_end = threading.Event(), threading.Event()
    invalidated: list[object] = []

    def slow() -> int:
        begun.set()
        assert may_end.wait(WITHIN_S)
        return 1

    async def go() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'shop.db'}")
        event.listen(engine.sync_engine, "invalidate", lambda *given: invalidated.append(given))
        event.listen(
            engine.sync_engine, "connect", lambda made, _: made.create_function("slow", 0, slow)
        )
        course = HandOver(_no_messages, new_name=new_database_name)
        database = _AsyncDatabase(engine, ConnectionHooks(engine.sync_engine, course))
        step = SqlStep(SLOW, is_read=True)

        async def work() -> None:
            if not is_in_transaction:
                await database.execute(step)
                return
            async with database.transaction() as run:
                await run(step)

        task = asyncio.create_task(work())
        await asyncio.to_thread(begun.wait, WITHIN_S)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=0.05)
        assert not done
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        await engine.dispose()

    asyncio.run(go())
    assert invalidated == []
