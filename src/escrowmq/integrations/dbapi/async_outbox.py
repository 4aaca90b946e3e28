"""The outbox for connections that are awaited: psycopg's, asyncpg's and aiosqlite's."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol, Unpack

from escrowmq.client.core.message import Message
from escrowmq.client.outbox_messages import Marked
from escrowmq.client.producer import Producer
from escrowmq.client.producer_settings import MessageFields, message_of
from escrowmq.errors import UsageError
from escrowmq.integrations.dbapi.drivers import AWAITED, driver_of, refuse_autocommit
from escrowmq.integrations.outbox import tables, verdict
from escrowmq.integrations.outbox.handing_over import block_is_over, not_written
from escrowmq.integrations.outbox.steps import Rows, SqlStep, failed, run_async
from escrowmq.integrations.outbox.tables import SqlFamily, Statement
from escrowmq.integrations.outbox.unsent_messages import UnsentMessages
from escrowmq.integrations.outbox_base import AsyncKeeper, new_name

Connect = Callable[[], Awaitable[Any]]


class Work(Protocol):
    """One connection's transaction."""

    async def begin(self) -> None:
        """Begin it, unless one is under way."""

    async def execute(self, statement: Statement) -> None:
        """Run a statement."""

    async def rows(self, statement: Statement) -> Rows:
        """Run one that has rows."""

    async def changed(self, statement: Statement) -> int:
        """Run one that changes rows; how many."""

    async def commit(self) -> None:
        """Commit it."""

    async def rollback(self) -> None:
        """Roll it back."""


class _CursorWork:
    """Of psycopg and aiosqlite."""

    def __init__(self, connection: Any) -> None:  # noqa: ANN401
        self._connection = connection
        self._name, self._driver = driver_of(connection, AWAITED)

    async def begin(self) -> None:
        if self._name == "aiosqlite" and not self._connection.in_transaction:
            await self._connection.execute("begin")
        refuse_autocommit(self._connection, self._driver)

    async def execute(self, statement: Statement) -> None:
        await self._run(statement)

    async def rows(self, statement: Statement) -> Rows:
        cursor = await self._run(statement)
        return [tuple(row) for row in await cursor.fetchall()]

    async def changed(self, statement: Statement) -> int:
        return int((await self._run(statement)).rowcount)

    async def commit(self) -> None:
        await self._connection.commit()

    async def rollback(self) -> None:
        await self._connection.rollback()

    async def _run(self, statement: Statement) -> Any:  # noqa: ANN401
        text = statement.in_style(self._driver.style)
        return await self._connection.execute(text, statement.values)


class _AsyncpgWork:
    """Of asyncpg, whose transactions are objects. One that is under way already is its owner's to
    commit, behind which no message could follow."""

    def __init__(self, connection: Any) -> None:  # noqa: ANN401
        self._connection = connection
        self._transaction: Any = None

    async def begin(self) -> None:
        if self._connection.is_in_transaction():
            raise UsageError(
                "the connection is in a transaction already, whose own end would commit it; let "
                "outbox.transaction(connection) begin it, in the place of connection.transaction()"
            )
        self._transaction = self._connection.transaction()
        await self._transaction.start()

    async def execute(self, statement: Statement) -> None:
        await self._connection.execute(statement.in_style("numeric_dollar"), *statement.values)

    async def rows(self, statement: Statement) -> Rows:
        text = statement.in_style("numeric_dollar")
        return [tuple(row) for row in await self._connection.fetch(text, *statement.values)]

    async def changed(self, statement: Statement) -> int:
        text = statement.in_style("numeric_dollar")
        told = await self._connection.execute(text, *statement.values)
        return int(told.rpartition(" ")[2]) if told[-1:].isdigit() else 0  # "INSERT 0 1"

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()


def work_on(connection: object) -> Work:
    """The transaction of a connection."""
    name, _ = driver_of(connection, AWAITED)
    return _AsyncpgWork(connection) if name == "asyncpg" else _CursorWork(connection)


class AwaitedDatabase:
    """A database that `connect` makes connections to."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._family: SqlFamily | None = None
        self.name = ""

    async def find_family(self) -> SqlFamily:
        """Its SQL; found out with the first connection."""
        if self._family is None:
            try:
                connection = await self._connect()
            except Exception as error:
                raise failed(error) from error
            try:
                self._family = driver_of(connection, AWAITED)[1].family
            finally:
                await connection.close()
        return self._family

    async def execute(self, step: SqlStep) -> Rows:
        """Run one step."""
        connection = await self._connect()
        try:
            work = work_on(connection)
            await work.begin()
            for each in step.before:
                await work.execute(each)
            if step.is_read:
                rows = await work.rows(step.statement)
            else:
                rows = [(await work.changed(step.statement),)]
            await work.commit()
            return rows
        finally:  # what was begun ends with the connection, and what was set for it
            await connection.close()

    async def known_name(self, work: Work, family: SqlFamily) -> str:
        """The database's name, looked up in a transaction that is under way."""
        if not self.name:
            rows = await work.rows(tables.read(tables.NAME_ID))
            if rows:
                self.name = str(rows[0][0])
            elif family is SqlFamily.SQLITE:  # whose only lock the transaction has
                name = new_name()
                await work.execute(tables.mark(family, tables.NAME_ID, name))
                return name  # and is not kept: a rollback takes it back
            else:
                self.name = await run_async(verdict.name(family, new_name=new_name()), self.execute)
        return self.name


class AsyncTransaction:
    """Made by `AsyncOutbox.transaction`; its block commits, or rolls back when it raises."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._unsent = UnsentMessages()
        self._savepoints_count = 0
        self._is_over = False

    async def send(
        self, topic: str | Message, body: bytes = b"", **fields: Unpack[MessageFields]
    ) -> None:
        """Send a message when the transaction commits."""
        if self._is_over:
            raise block_is_over()
        self._unsent.add(message_of(topic, body, fields))

    @contextlib.asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        """A part that is taken back alone when it raises: what it changed and what it sent. What a
        savepoint of your own SQL takes back is not known here, and would be sent."""
        self._savepoints_count += 1
        name = f"escrowmq_{self._savepoints_count}"
        self._unsent.savepoint(name)
        await self._work.execute(Statement(f"savepoint {name}"))
        try:
            yield
        except BaseException:
            self._unsent.rolled_back_to(name)
            await self._work.execute(Statement(f"rollback to savepoint {name}"))
            raise
        await self._work.execute(Statement(f"release savepoint {name}"))

    def end(self) -> list[Message]:
        """Nothing can be sent in it any more; what was."""
        self._is_over = True
        return self._unsent.messages


class AsyncOutbox(AsyncKeeper):
    """The same as `Outbox`, for an `escrowmq.aio.Producer` and connections that are awaited.
    `connect` returns what makes one when it is awaited: `lambda: asyncpg.connect(address)`."""

    def __init__(self, producer: Producer, connect: Connect) -> None:
        seen: object = producer
        if not isinstance(seen, Producer):
            raise UsageError(
                f"AsyncOutbox({type(producer).__name__}): an escrowmq.aio.Producer is expected; "
                "Outbox takes one for plain code"
            )
        self._base = AwaitedDatabase(connect)
        self._in_blocks: set[int] = set()
        super().__init__(producer, self._base)

    @contextlib.asynccontextmanager
    async def transaction(self, connection: Any) -> AsyncIterator[AsyncTransaction]:  # noqa: ANN401
        """A block that begins a transaction, commits it, and rolls it back when it raises. Do not
        commit in it: what was changed until then would stand without its messages."""
        if id(connection) in self._in_blocks:
            raise UsageError(
                "a block of the outbox is open on this connection already, and commits all of it; "
                "send inside that one, and use its savepoint() for what may be taken back alone"
            )
        _, driver = driver_of(connection, AWAITED)
        work = work_on(connection)
        await work.begin()
        self._in_blocks.add(id(connection))
        tx = AsyncTransaction(work)
        try:
            yield tx
            marked = await self._hand_over(work, driver.family, tx.end())
            await work.commit()
        except BaseException:
            with contextlib.suppress(Exception):  # the connection is lost; what was raised matters
                await work.rollback()
            raise
        finally:
            tx.end()
            self._in_blocks.discard(id(connection))
        if marked is not None:
            marked.committed()

    async def _hand_over(
        self, work: Work, family: SqlFamily, messages: list[Message]
    ) -> Marked | None:
        if not messages:
            return None
        try:
            marked = self._producer.marked(await self._base.known_name(work, family))
            await work.execute(tables.mark(family, marked.key, verdict.COMMIT))
        except Exception as error:
            raise not_written(error) from error
        await marked.send(messages)
        marked.leave()
        return marked
