"""What every outbox does with its database besides sending: answer checks, make the tables, forget
what is old."""

from __future__ import annotations

import datetime as dt
import secrets
from typing import Protocol

from escrowmq.base.own_properties import MARKER
from escrowmq.client import producer as engine
from escrowmq.client.blocking.producer import Producer
from escrowmq.client.core.message import ReceivedMessage
from escrowmq.client.core.sending import Outcome
from escrowmq.integrations.outbox import expiry, schema, verdict
from escrowmq.integrations.outbox.expiry import KEEP_DEFAULT, span_ms
from escrowmq.integrations.outbox.handing_over import not_known
from escrowmq.integrations.outbox.steps import Rows, SqlStep, StepFailed, run, run_async
from escrowmq.integrations.outbox.tables import SqlFamily
from escrowmq.net.clock import SystemClock


class Database(Protocol):
    """The primary, and not a copy for reading. `execute` runs a step on a connection of its own."""

    name: str
    """Empty before it is known."""

    @property
    def family(self) -> SqlFamily:
        """Its SQL."""

    def execute(self, step: SqlStep) -> Rows:
        """Run one step."""


class AsyncDatabase(Protocol):
    """The same, awaited."""

    name: str
    """Empty before it is known."""

    async def find_family(self) -> SqlFamily:
        """Its SQL; perhaps a connection has to be opened for that."""

    async def execute(self, step: SqlStep) -> Rows:
        """Run one step."""


def new_name() -> str:
    """For a database that has none yet."""
    return secrets.token_hex(16)


class Keeper:
    """The part of an outbox that is the same for all plain databases."""

    def __init__(self, producer: Producer, database: Database) -> None:
        self._producer = producer
        self._database = database
        producer.answer_from(self._check)

    def create_tables(self) -> None:
        """Make the tables, where they are not there yet, for those who have no migrations."""
        database = self._database
        steps = schema.create(database.family, new_name=new_name())
        database.name = run(steps, database.execute)

    def find_name(self) -> str:
        """The database's name, which markers carry. StepFailed when it cannot be asked, or the
        tables are missing."""
        database = self._database
        if not database.name:
            steps = verdict.name(database.family, new_name=new_name())
            database.name = run(steps, database.execute)
        return database.name

    def forget_markers(self, *, keep: dt.timedelta = KEEP_DEFAULT) -> int:
        """Delete markers that are older and that no broker can ask for; how many went. Once a day
        is often enough."""
        steps = expiry.forget_markers(
            self._database.family,
            keep_ms=span_ms(keep),
            now_ms=SystemClock().now_ms(),
            needed=self._producer.unsettled_keys(),
        )
        return run(steps, self._database.execute)

    def forget_handled(self, *, keep: dt.timedelta = KEEP_DEFAULT) -> int:
        """Delete what consumers handled longer ago than that; how many rows went."""
        now_ms = SystemClock().now_ms()
        steps = expiry.forget_handled(self._database.family, keep_ms=span_ms(keep), now_ms=now_ms)
        return run(steps, self._database.execute)

    def _check(self, message: ReceivedMessage) -> Outcome | None:
        database = self._database
        try:
            name = self.find_name()
            steps = verdict.answer(database.family, message.system[MARKER], name=name)
            return run(steps, database.execute)
        except StepFailed as error:
            return not_known(message, error)


class AsyncKeeper:
    """The part of an outbox that is the same for all databases that are awaited."""

    def __init__(self, producer: engine.Producer, database: AsyncDatabase) -> None:
        self._producer = producer
        self._database = database
        producer.answer_from(self._check)

    async def create_tables(self) -> None:
        """Make the tables, where they are not there yet, for those who have no migrations."""
        database = self._database
        steps = schema.create(await database.find_family(), new_name=new_name())
        database.name = await run_async(steps, database.execute)

    async def find_name(self) -> str:
        """The database's name, which markers carry. StepFailed when it cannot be asked, or the
        tables are missing."""
        database = self._database
        if not database.name:
            steps = verdict.name(await database.find_family(), new_name=new_name())
            database.name = await run_async(steps, database.execute)
        return database.name

    async def forget_markers(self, *, keep: dt.timedelta = KEEP_DEFAULT) -> int:
        """Delete markers that are older and that no broker can ask for; how many went. Once a day
        is often enough."""
        steps = expiry.forget_markers(
            await self._database.find_family(),
            keep_ms=span_ms(keep),
            now_ms=SystemClock().now_ms(),
            needed=await self._producer.unsettled_keys(),
        )
        return await run_async(steps, self._database.execute)

    async def forget_handled(self, *, keep: dt.timedelta = KEEP_DEFAULT) -> int:
        """Delete what consumers handled longer ago than that; how many rows went."""
        now_ms = SystemClock().now_ms()
        family = await self._database.find_family()
        steps = expiry.forget_handled(family, keep_ms=span_ms(keep), now_ms=now_ms)
        return await run_async(steps, self._database.execute)

    async def _check(self, message: ReceivedMessage) -> Outcome | None:
        database = self._database
        try:
            name = await self.find_name()
            family = await database.find_family()
            steps = verdict.answer(family, message.system[MARKER], name=name)
            return await run_async(steps, database.execute)
        except StepFailed as error:
            return not_known(message, error)
