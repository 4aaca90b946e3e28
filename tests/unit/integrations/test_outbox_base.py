"""Against SQLite in memory, and a producer that only listens."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any, cast

import pytest

from escrowmq.client.core.message import ReceivedMessage
from escrowmq.client.core.sending import Outcome
from escrowmq.integrations.outbox import tables
from escrowmq.integrations.outbox.steps import Rows, SqlStep, StepFailed
from escrowmq.integrations.outbox.tables import SqlFamily
from escrowmq.integrations.outbox_base import AsyncKeeper, Keeper

from .outbox.scripted import LITE, Base

KEY = "0A" * 16


class Database(Base):
    name = ""
    family = LITE


class AwaitedDatabase:
    """The same, awaited."""

    name = ""

    def __init__(self, base: Base) -> None:
        self._base = base

    async def find_family(self) -> SqlFamily:
        return LITE

    async def execute(self, step: SqlStep) -> Rows:
        return self._base.execute(step)


class Listener:
    """What stands for a producer: who answers its checks, and what brokers may ask for."""

    def __init__(self) -> None:
        self.checks: list[Any] = []

    def answer_from(self, check: Any) -> None:
        self.checks.append(check)

    def unsettled_keys(self) -> set[str]:
        return {KEY}


class AwaitedListener(Listener):
    async def unsettled_keys(self) -> set[str]:  # type: ignore[override]
        return {KEY}


def asked(database: str) -> ReceivedMessage:
    return ReceivedMessage("T", b"x", system={"escrowMarker": f"{database}:{KEY}"})


def test_a_keeper_answers_makes_and_forgets() -> None:
    base, listener = Database(), Listener()
    keeper = Keeper(cast("Any", listener), base)
    keeper.create_tables()
    assert keeper.find_name() == base.name != ""
    (check,) = listener.checks
    assert check(asked(base.name)) is Outcome.ROLLBACK
    assert check(asked("other")) is None
    assert keeper.forget_markers() == 0
    with base.connection:
        base.connection.execute("update escrowmq_markers set made_ms = 0")
    assert keeper.forget_markers() == 0, "a broker may ask for it"
    assert keeper.forget_handled(keep=dt.timedelta(0)) == 0
    base.failing.append("select")
    assert check(asked(base.name)) is Outcome.UNKNOWN
    base.name = ""
    with pytest.raises(StepFailed):
        keeper.find_name()


def test_checks_ask_for_the_databases_name_once() -> None:
    """It never changes, and was asked for with each check that a process answered."""
    base, listener = Database(), Listener()
    Keeper(cast("Any", listener), base)
    base.put(tables.NAME_ID, "shop")
    base.put(KEY, "commit")
    (check,) = listener.checks
    found = [check(asked("shop")) for _ in range(3)]
    assert found == [Outcome.COMMIT] * 3
    assert base.steps == ["select"] * 4


def test_checks_that_are_awaited_ask_for_it_once_too() -> None:
    async def go() -> None:
        base, listener = Base(), AwaitedListener()
        AsyncKeeper(cast("Any", listener), AwaitedDatabase(base))
        base.put(tables.NAME_ID, "shop")
        base.put(KEY, "commit")
        (check,) = listener.checks
        found = [await check(asked("shop")) for _ in range(3)]
        assert found == [Outcome.COMMIT] * 3
        assert base.steps == ["select"] * 4

    asyncio.run(go())


def test_one_that_is_awaited_does_the_same() -> None:
    async def go() -> None:
        base, listener = Base(), AwaitedListener()
        database = AwaitedDatabase(base)
        keeper = AsyncKeeper(cast("Any", listener), database)
        await keeper.create_tables()
        assert await keeper.find_name() == database.name != ""
        (check,) = listener.checks
        assert await check(asked(database.name)) is Outcome.ROLLBACK
        assert await check(asked("other")) is None
        assert await keeper.forget_markers() == 0
        assert await keeper.forget_handled(keep=dt.timedelta(0)) == 0
        base.failing.append("select")
        assert await check(asked(database.name)) is Outcome.UNKNOWN

    asyncio.run(go())
