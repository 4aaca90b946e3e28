"""The outbox for asyncio connections: psycopg's, asyncpg's and aiosqlite's."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar, Unpack

from escrowmq.client.core.message import Message
from escrowmq.client.outbox_messages import MarkedMessages
from escrowmq.client.producer import Producer
from escrowmq.client.producer_settings import MessageFields, make_message
from escrowmq.errors import UsageError
from escrowmq.integrations.dbapi import blocks
from escrowmq.integrations.dbapi.drivers import (
    AWAITED,
    begin_transaction_awaited,
    execute_on_awaited,
    find_driver,
    refuse_autocommit,
)
from escrowmq.integrations.dbapi.finishing import finish
from escrowmq.integrations.outbox import marking, tables
from escrowmq.integrations.outbox.circuit import KEPT_MAX_DEFAULT
from escrowmq.integrations.outbox.failures import (
    block_ended_error,
    marker_not_written_error,
    outbox_closed_error,
)
from escrowmq.integrations.outbox.hand_over import AsyncHandOver
from escrowmq.integrations.outbox.steps import Rows, SqlStep, Steps, run_steps_async, to_step_failed
from escrowmq.integrations.outbox.tables import SqlFamily, Statement
from escrowmq.integrations.outbox.unsent_messages import UnsentMessages
from escrowmq.integrations.outbox_base import AsyncOutboxBase, make_circuit, new_database_name

Connect = Callable[[], Awaitable[Any]]
T = TypeVar("T")


class ConnectionTransaction(Protocol):
    """The current transaction of one connection."""

    async def begin(self) -> None:
        """Begin a transaction, unless one is open."""

    async def execute(self, statement: Statement) -> None:
        """Run a statement."""

    async def fetch_rows(self, statement: Statement) -> Rows:
        """Run a statement and return its rows."""

    async def count_changed(self, statement: Statement) -> int:
        """Run a statement and return the number of changed rows."""

    async def commit(self) -> None:
        """Commit the transaction."""

    async def rollback(self) -> None:
        """Roll the transaction back."""


class _CursorTransaction:
    """A transaction of psycopg or aiosqlite."""

    def __init__(self, connection: Any) -> None:  # noqa: ANN401
        self._connection = connection
        self._driver = find_driver(connection, AWAITED)[1]

    async def begin(self) -> None:
        await begin_transaction_awaited(self._connection, self._driver)

    async def execute(self, statement: Statement) -> None:
        await self._run(statement)

    async def fetch_rows(self, statement: Statement) -> Rows:
        cursor = await self._run(statement)
        return [tuple(row) for row in await cursor.fetchall()]

    async def count_changed(self, statement: Statement) -> int:
        return int((await self._run(statement)).rowcount)

    async def commit(self) -> None:
        await self._connection.commit()

    async def rollback(self) -> None:
        await self._connection.rollback()

    async def _run(self, statement: Statement) -> Any:  # noqa: ANN401
        return await execute_on_awaited(self._connection, self._driver, statement)


class _AsyncpgTransaction:
    """A transaction of asyncpg, where transactions are objects. If the connection has an open
    transaction, `begin` refuses: its owner would commit it, and no message could be sent after
    that."""

    def __init__(self, connection: Any) -> None:  # noqa: ANN401
        self._connection = connection
        self._transaction: Any = None

    async def begin(self) -> None:
        if self._connection.is_in_transaction():
            raise blocks.owned_by_another_error()
        self._transaction = self._connection.transaction()
        await self._transaction.start()

    async def execute(self, statement: Statement) -> None:
        await self._connection.execute(statement.in_paramstyle("numeric_dollar"), *statement.values)

    async def fetch_rows(self, statement: Statement) -> Rows:
        text = statement.in_paramstyle("numeric_dollar")
        return [tuple(row) for row in await self._connection.fetch(text, *statement.values)]

    async def count_changed(self, statement: Statement) -> int:
        text = statement.in_paramstyle("numeric_dollar")
        status = await self._connection.execute(text, *statement.values)
        return int(status.rpartition(" ")[2]) if status[-1:].isdigit() else 0  # "INSERT 0 1"

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        with contextlib.suppress(Exception):
            await self._transaction.rollback()
        if self._connection.is_in_transaction():  # asyncpg refuses that after a cancelled COMMIT
            await self._connection.execute("rollback")


def transaction_on(connection: object) -> ConnectionTransaction:
    """Return the object for the transaction of a connection."""
    name, _ = find_driver(connection, AWAITED)
    return _AsyncpgTransaction(connection) if name == "asyncpg" else _CursorTransaction(connection)


class _BlockTransaction:
    """The transaction of a connection during an outbox's block."""

    def __init__(self, connection: Any, unsent: UnsentMessages) -> None:  # noqa: ANN401
        self._connection = connection
        self._unsent = unsent
        self.work = transaction_on(connection)

    async def begin(self) -> None:
        """Begin a transaction, unless one is open. If this is cancelled, none stays open."""
        try:
            await finish(self._begin())
        except asyncio.CancelledError as error:
            self.restore_methods()
            await self.roll_back(error)
            raise

    async def _begin(self) -> None:
        """Do what `begin` does."""

    async def wait_for_listener(self) -> None:
        """Wait until the effects of all statements so far are known."""

    async def savepoint(self, name: str) -> None:
        """Make a savepoint."""
        self._unsent.add_savepoint(name)
        await self.work.execute(Statement(f"savepoint {name}"))

    async def roll_back_to(self, name: str) -> None:
        """Roll a savepoint back; its name is not used again."""
        self._unsent.roll_back_to(name)
        self._unsent.release_savepoint(name)
        await self.work.execute(Statement(f"rollback to savepoint {name}"))

    async def release(self, name: str) -> None:
        """Release a savepoint."""
        await self.work.execute(Statement(f"release savepoint {name}"))
        self._unsent.release_savepoint(name)

    async def check_not_ended(self) -> None:
        """Raise UsageError if the user's code has ended the transaction."""

    async def commit(self) -> None:
        """Commit the transaction."""
        await self.work.commit()

    async def roll_back(self, error: BaseException) -> None:
        """Roll the transaction back after an error, even if the caller is cancelled again: the next
        transaction of the connection would commit what this one has done. An error of the
        rollback itself is suppressed, because the connection is then lost anyway."""
        await finish(self._roll_back(error))

    async def _roll_back(self, error: BaseException) -> None:
        """Do what `roll_back` does."""
        with contextlib.suppress(Exception):
            await self.work.rollback()

    def restore_methods(self) -> None:
        """Restore the connection's methods."""


class _AsyncpgBlock(_BlockTransaction):
    async def _begin(self) -> None:
        await self.work.begin()
        self._listener = blocks.SavepointListener(self._unsent)
        self._connection.add_query_logger(self._listener)

    async def wait_for_listener(self) -> None:
        await asyncio.sleep(0)  # asyncpg calls its listeners in the loop's next turn

    # The listener notes all savepoints, these too, each in its turn.

    async def savepoint(self, name: str) -> None:
        await self.work.execute(Statement(f"savepoint {name}"))

    async def roll_back_to(self, name: str) -> None:
        await self.work.execute(Statement(f"rollback to savepoint {name}"))

    async def release(self, name: str) -> None:
        await self.work.execute(Statement(f"release savepoint {name}"))

    async def check_not_ended(self) -> None:
        await self.wait_for_listener()
        if not self._connection.is_in_transaction():
            raise blocks.ended_inside_error()

    def restore_methods(self) -> None:
        with contextlib.suppress(Exception):  # a pool's connection that was given back
            self._connection.remove_query_logger(self._listener)


class _SqliteBlock(_BlockTransaction):
    async def _begin(self) -> None:
        await self.work.begin()
        await self._connection.execute(blocks.BEGIN_WITNESS)

    async def check_not_ended(self) -> None:
        try:
            await self._connection.execute(blocks.END_WITNESS)
        except Exception as error:
            raise blocks.ended_inside_error() from error


class _PsycopgBlock(_BlockTransaction):
    """The block of an asyncio connection of psycopg. psycopg begins a transaction with the first
    statement, and treats an earlier `transaction()` as the outermost one; so this class begins one
    first."""

    _own: Any = None
    _end_guard: Callable[[], None] = staticmethod(lambda: None)

    async def begin(self) -> None:
        connection = self._connection
        refuse_autocommit(connection, AWAITED["psycopg"])
        if blocks.is_nested_psycopg(connection):
            raise blocks.owned_by_another_error()
        if not connection.info.transaction_status:  # idle
            self._own = connection.transaction()
            await self._own.__aenter__()
        else:  # then psycopg itself refuses neither commit() nor rollback()
            self._end_guard = blocks.forbid_ending(connection)
        connection.transaction = blocks.NestedTransactionsAsync(connection, self._unsent)

    async def check_not_ended(self) -> None:
        self._end_guard()

    async def commit(self) -> None:
        if self._own is None:
            await self._connection.commit()
        else:
            await self._own.__aexit__(None, None, None)

    async def _roll_back(self, error: BaseException) -> None:
        self._end_guard()
        if self._own is not None:
            with contextlib.suppress(Exception):
                await self._own.__aexit__(*blocks.exit_arguments(error))
        await super()._roll_back(error)

    def restore_methods(self) -> None:
        self._end_guard()
        del self._connection.transaction


_BLOCKS: Final[dict[str, type[_BlockTransaction]]] = {
    "psycopg": _PsycopgBlock, "asyncpg": _AsyncpgBlock, "aiosqlite": _SqliteBlock,
}  # fmt: skip


class AsyncDatabase:
    """A database reached through asyncio; `connect` opens a connection for each transaction."""

    def __init__(self, connect: Connect, *, schema: str = "") -> None:
        self._connect = connect
        self._family: SqlFamily | None = None
        self._schema = schema

    async def find_family(self) -> SqlFamily:
        """Return the database's SQL dialect, determined with the first connection."""
        if self._family is None:
            try:
                connection = await self._connect()
            except Exception as error:
                raise to_step_failed(error) from error
            try:
                self._family = find_driver(connection, AWAITED)[1].family
            finally:
                await connection.close()
        return self._family

    async def execute(self, step: SqlStep) -> Rows:
        """Run one step on a connection of its own."""
        connection = await self._connect()
        try:
            work = transaction_on(connection)
            await work.begin()
            for each in step.before:
                await work.execute(each)
            rows = await self._execute_statements(
                work, find_driver(connection, AWAITED)[1].family, step
            )
            await work.commit()
            return rows
        finally:  # the transaction and its settings end with the connection
            await connection.close()

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Callable[[SqlStep], Awaitable[Rows]]]:
        """Return a block that runs steps in one transaction, on a separate connection; it commits
        at the end."""
        connection = await self._connect()
        try:
            work = transaction_on(connection)
            await work.begin()
            family = find_driver(connection, AWAITED)[1].family
            yield lambda step: self.execute_in_transaction(work, family, step)
            await work.commit()
        finally:  # the transaction ends with the connection
            await connection.close()

    async def execute_in_transaction(
        self, work: ConnectionTransaction, family: SqlFamily, step: SqlStep
    ) -> Rows:
        """Run one step in an open transaction."""
        if step.is_apart:
            return await self.execute(step)
        return await self._execute_statements(work, family, step)

    async def _execute_statements(
        self, work: ConnectionTransaction, family: SqlFamily, step: SqlStep
    ) -> Rows:
        statement = step.statement.in_schema(tables.schema_prefix(family, self._schema))
        if step.is_read:
            return await work.fetch_rows(statement)
        return [(await work.count_changed(statement),)]


class AsyncTransaction:
    """Made by `AsyncOutbox.transaction`; its block commits, or rolls back when it raises."""

    def __init__(
        self,
        outbox: AsyncOutbox,
        block: _BlockTransaction,
        family: SqlFamily,
        unsent: UnsentMessages,
    ) -> None:
        self._outbox = outbox
        self._block = block
        self._family = family
        self._savepoints_count = 0
        self._is_over = False
        self.unsent = unsent
        self.marked: MarkedMessages | None = None
        """The messages that belong to the marker, if the marker is written with the first message;
        None for databases where it is written later."""

    async def send(
        self, topic: str | Message, body: bytes = b"", **fields: Unpack[MessageFields]
    ) -> None:
        """Send a message when the transaction commits."""
        if self._is_over:
            raise block_ended_error()
        await self._block.wait_for_listener()
        is_first = not self.unsent.messages
        self.unsent.add(make_message(topic, body, fields))
        if is_first and marking.writes_marker_early(self._family):
            try:
                self.marked = await self._outbox.write_marker(self._block.work, self._family)
            except BaseException:
                self.unsent.messages.clear()
                raise

    @contextlib.asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        """Return a block whose changes and messages are rolled back on their own if it raises. A
        block of the driver's own `connection.transaction()` does the same."""
        self._savepoints_count += 1
        name = f"escrowmq_{self._savepoints_count}"
        await self._block.savepoint(name)
        try:
            yield
        except BaseException:
            await self._block.roll_back_to(name)
            raise
        await self._block.release(name)

    def end_sends(self) -> list[Message]:
        """Refuse further sends; return the messages that were sent."""
        self._is_over = True
        return self.unsent.messages


class AsyncOutbox(AsyncOutboxBase):
    """An `Outbox` for an `escrowmq.aio.Producer` and asyncio connections. `connect` returns an
    awaitable connection: `lambda: asyncpg.connect(address)`."""

    def __init__(
        self,
        producer: Producer,
        connect: Connect,
        *,
        schema: str = "",
        when_away: str = "refuse",
        kept_max: int = KEPT_MAX_DEFAULT,
    ) -> None:
        seen: object = producer
        if not isinstance(seen, Producer):
            raise UsageError(
                f"AsyncOutbox({type(producer).__name__}): an escrowmq.aio.Producer is "
                "expected; Outbox takes a blocking one"
            )
        self._base = AsyncDatabase(connect, schema=schema)
        circuit = make_circuit(when_away, kept_max)
        self._handover = AsyncHandOver(
            producer.marked_messages,
            new_name=new_database_name,
            way_out=circuit,
            on_kept=self._wake_relay,
        )
        self._is_closed = False
        super().__init__(producer, self._base, circuit)

    @contextlib.asynccontextmanager
    async def transaction(self, connection: Any) -> AsyncIterator[AsyncTransaction]:  # noqa: ANN401
        """Return a block that begins a transaction, commits it, and rolls it back when it raises.
        Do not commit or roll back inside it."""
        name, driver = find_driver(connection, AWAITED)
        if self._is_closed:
            raise outbox_closed_error()
        unsent = UnsentMessages()
        block = _BLOCKS[name](connection, unsent)
        blocks.enter_block(connection, block)
        try:
            await block.begin()
        except BaseException:
            blocks.leave_block(connection)
            raise
        tx = AsyncTransaction(self, block, driver.family, unsent)
        try:
            yield tx
            await block.check_not_ended()
            marked = await self._hand_over(block.work, driver.family, tx)
            await block.commit()
        except BaseException as error:
            await block.roll_back(error)
            raise
        finally:
            tx.end_sends()
            blocks.leave_block(connection)
            block.restore_methods()
        if marked is not None:
            marked.report_commit()

    async def write_marker(self, work: ConnectionTransaction, family: SqlFamily) -> MarkedMessages:
        """Write a marker in an open transaction; only this module uses it."""
        return await self._handover.write_marker(
            family, functools.partial(self._run_steps, work, family)
        )

    async def _hand_over(
        self, work: ConnectionTransaction, family: SqlFamily, tx: AsyncTransaction
    ) -> MarkedMessages | None:
        messages = tx.end_sends()
        tx.unsent.check_tracked()
        if not messages:
            return None
        converse = functools.partial(self._run_steps, work, family)
        return await self._handover.send_or_keep(family, converse, messages, early=tx.marked)

    async def _run_steps(
        self, work: ConnectionTransaction, family: SqlFamily, steps: Steps[T]
    ) -> T:
        try:
            return await run_steps_async(
                steps, lambda step: self._base.execute_in_transaction(work, family, step)
            )
        except Exception as error:
            raise marker_not_written_error(error) from error

    def _refuse_sends(self) -> None:
        self._is_closed = True
