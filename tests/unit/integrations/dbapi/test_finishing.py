"""What is finished although its caller is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from escrowmq.integrations.dbapi import finishing
from escrowmq.integrations.dbapi.finishing import finish


def test_work_is_finished_although_its_caller_is_cancelled() -> None:
    async def go() -> None:
        event, done = asyncio.Event(), []

        async def work() -> None:
            await event.wait()
            done.append(1)

        task = asyncio.create_task(finish(work()))
        for _ in range(3):
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        event.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == [1]

    asyncio.run(go())


def test_work_that_takes_too_long_is_cancelled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finishing, "_PATIENCE_S", 0.01)

    async def go() -> None:
        ended = asyncio.Event()

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        task = asyncio.create_task(finish(work()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(ended.wait(), 10)

    asyncio.run(go())


def test_work_that_takes_too_long_ends_although_its_caller_is_cancelled_without_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cancelled scope of anyio does that; a rollback that hung kept the loop busy for ever."""
    monkeypatch.setattr(finishing, "_PATIENCE_S", 0.01)

    async def go() -> None:
        task = asyncio.create_task(finish(asyncio.sleep(1_000)))
        loop = asyncio.get_running_loop()
        end_s = loop.time() + 10
        while not task.done() and loop.time() < end_s:
            await asyncio.sleep(0)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert loop.time() < end_s

    asyncio.run(go())


def test_an_error_of_the_work_is_raised() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise KeyError

    async def go() -> None:
        with pytest.raises(KeyError):
            await finish(fail())
        task = asyncio.create_task(finish(fail()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
