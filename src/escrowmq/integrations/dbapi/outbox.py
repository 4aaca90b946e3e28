"""The outbox for blocking connections."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, Unpack

from escrowmq.client.blocking.producer import Producer
from escrowmq.client.core.message import Message
from escrowmq.client.producer_settings import MessageFields, make_message
from escrowmq.errors import UsageError
from escrowmq.integrations.dbapi import blocks, drivers
from escrowmq.integrations.dbapi.drivers import PLAIN, Driver, find_driver
from escrowmq.integrations.outbox import marking, tables
from escrowmq.integrations.outbox.circuit import KEPT_MAX_DEFAULT
from escrowmq.integrations.outbox.failures import (
    block_ended_error,
    marker_not_written_error,
    outbox_closed_error,
)
from escrowmq.integrations.outbox.hand_over import HandOver
from escrowmq.integrations.outbox.staged_messages import StagedMessages
from escrowmq.integrations.outbox.steps import Rows, SqlStep, Steps, run_steps, to_step_failed
from escrowmq.integrations.outbox.tables import SqlFamily, Statement
from escrowmq.integrations.outbox.unsent_messages import UnsentMessages
from escrowmq.integrations.outbox_base import OutboxBase, make_circuit, new_database_name

Connect = Callable[[], Any]
T = TypeVar("T")


class BlockingDatabase:
    """A database reached through blocking connections, which `connect` makes."""

    def __init__(self, connect: Connect, *, schema: str = "") -> None:
        self._connect = connect
        self._family: SqlFamily | None = None
        self.schema = schema

    @property
    def family(self) -> SqlFamily:
        """Return the database's SQL dialect, determined with the first connection."""
        if self._family is None:
            try:
                connection = self._connect()
            except Exception as error:
                raise to_step_failed(error) from error
            with contextlib.closing(connection):
                self._family = find_driver(connection, PLAIN)[1].family
        return self._family

    def execute(self, step: SqlStep) -> Rows:
        """Run one step on a connection of its own."""
        with contextlib.closing(self._connect()) as connection:
            driver = find_driver(connection, PLAIN)[1]
            return drivers.execute_step(connection, driver, step.in_schema(self.schema_of(driver)))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Callable[[SqlStep], Rows]]:
        """Return a block that runs steps in one transaction, on a separate connection; it commits
        at the end."""
        with contextlib.closing(self._connect()) as connection:
            driver = find_driver(connection, PLAIN)[1]
            drivers.begin_transaction(connection, driver)
            try:
                yield lambda step: self.execute_in_transaction(connection, driver, step)
                connection.commit()
            except BaseException:
                with contextlib.suppress(Exception):  # it is lost
                    connection.rollback()
                raise

    def execute_in_transaction(self, connection: object, driver: Driver, step: SqlStep) -> Rows:
        """Run one step in an open transaction."""
        if step.is_apart:
            return self.execute(step)
        statement = step.statement.in_schema(self.schema_of(driver))
        cursor = drivers.execute_on(connection, driver, statement)
        return [tuple(row) for row in cursor.fetchall()] if step.is_read else [(cursor.rowcount,)]

    def schema_of(self, driver: Driver) -> str:
        """Return the schema, quoted as a prefix of a table's name."""
        return tables.schema_prefix(driver.family, self.schema)


class _BlockTransaction:
    """The transaction of a connection during an outbox's block."""

    def __init__(self, connection: Any, driver: Driver) -> None:  # noqa: ANN401
        self._connection = connection
        self._driver = driver
        self._end_guard: Callable[[], None] = lambda: None

    def begin(self) -> None:
        """Begin a transaction, unless one is open."""
        drivers.begin_transaction(self._connection, self._driver)
        if self._driver.family is SqlFamily.SQLITE:
            self._connection.execute(blocks.BEGIN_WITNESS)
        self._end_guard = blocks.forbid_ending(self._connection)

    def check_not_ended(self) -> None:
        """Raise UsageError if the user's code has ended the transaction."""
        self._end_guard()
        if self._driver.family is SqlFamily.SQLITE:
            try:
                self._connection.execute(blocks.END_WITNESS)
            except Exception as error:
                raise blocks.ended_inside_error() from error

    def commit(self) -> None:
        """Commit the transaction."""
        self._connection.commit()

    def roll_back(self, error: BaseException) -> None:
        """Roll the transaction back after an error. An error of the rollback itself is suppressed,
        because the connection is then lost anyway."""
        self._end_guard()
        with contextlib.suppress(Exception):
            self._connection.rollback()

    def restore_methods(self) -> None:
        """Restore the connection's methods."""
        self._end_guard()


class _PsycopgBlock(_BlockTransaction):
    """The block of a psycopg connection. psycopg begins a transaction with the first statement, and
    treats an earlier `transaction()` as the outermost one; so this class begins one first."""

    def __init__(self, connection: Any, driver: Driver, unsent: UnsentMessages) -> None:  # noqa: ANN401
        super().__init__(connection, driver)
        self._unsent = unsent
        self._own: Any = None

    def begin(self) -> None:
        connection = self._connection
        drivers.refuse_autocommit(connection, self._driver)
        if blocks.is_nested_psycopg(connection):
            raise blocks.owned_by_another_error()
        if not connection.info.transaction_status:  # idle
            self._own = connection.transaction()
            self._own.__enter__()
        else:
            self._end_guard = blocks.forbid_ending(connection)
        connection.transaction = blocks.NestedTransactions(connection, self._unsent)

    def commit(self) -> None:
        if self._own is None:
            self._connection.commit()
        else:
            self._own.__exit__(None, None, None)

    def roll_back(self, error: BaseException) -> None:
        if self._own is not None:
            with contextlib.suppress(Exception):
                self._own.__exit__(*blocks.exit_arguments(error))
        super().roll_back(error)

    def restore_methods(self) -> None:
        super().restore_methods()
        del self._connection.transaction


def _block_on(connection: object, unsent: UnsentMessages) -> _BlockTransaction:
    name, driver = find_driver(connection, PLAIN)
    if name == "psycopg":
        return _PsycopgBlock(connection, driver, unsent)
    return _BlockTransaction(connection, driver)


class Transaction:
    """Made by `Outbox.transaction`; its block commits, or rolls back when it raises."""

    def __init__(
        self,
        outbox: Outbox,
        connection: Any,  # noqa: ANN401
        driver: Driver,
        unsent: UnsentMessages,
    ) -> None:
        self._outbox = outbox
        self._connection = connection
        self._driver = driver
        self._savepoints_count = 0
        self._is_over = False
        self.unsent = unsent
        self.marked: StagedMessages | None = None
        """The messages that belong to the marker, if the marker is written with the first message;
        None for databases where it is written later."""

    def send(
        self, topic: str | Message, body: bytes = b"", **fields: Unpack[MessageFields]
    ) -> None:
        """Send a message when the transaction commits."""
        if self._is_over:
            raise block_ended_error()
        is_first = not self.unsent.messages
        self.unsent.add(make_message(topic, body, fields))
        if is_first and marking.writes_marker_early(self._driver.family):
            try:
                self.marked = self._outbox.write_marker(self._connection, self._driver)
            except BaseException:
                self.unsent.messages.clear()
                raise

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        """Return a block that can be rolled back on its own: if it raises, its changes and messages
        are undone. A block of psycopg's `connection.transaction()` does the same. Savepoints
        written in SQL are not noticed: their messages would be sent even after a rollback."""
        self._savepoints_count += 1
        name = f"escrowmq_{self._savepoints_count}"
        self.unsent.add_savepoint(name)
        self._execute(f"savepoint {name}")
        try:
            yield
        except BaseException:
            self.unsent.roll_back_to(name)
            self.unsent.release_savepoint(name)  # nobody knows its name
            self._execute(f"rollback to savepoint {name}")
            raise
        self._execute(f"release savepoint {name}")
        self.unsent.release_savepoint(name)

    def end_sends(self) -> list[Message]:
        """Refuse further sends; return the messages that were sent."""
        self._is_over = True
        return self.unsent.messages

    def _execute(self, text: str) -> None:
        drivers.execute_on(self._connection, self._driver, Statement(text))


class Outbox(OutboxBase):
    """Sends messages with the transactions of connections, and answers checks from their database:
    you need not write a check. Make one per process, right after the producer; every process of the
    producer's group needs one.

    `connect` makes a connection to the same database, not to a read replica; checks use it.
    `schema` is that of both tables, if connections would not find them by their names alone, or
    would find several."""

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
                f"Outbox({type(producer).__name__}): an escrowmq.Producer is expected; AsyncOutbox "
                "takes one of escrowmq.aio"
            )
        self._base = BlockingDatabase(connect, schema=schema)
        circuit = make_circuit(when_away, kept_max)
        self._handover = HandOver(
            producer.marked_messages,
            new_name=new_database_name,
            way_out=circuit,
            on_kept=self._wake_relay,
        )
        self._is_closed = False
        super().__init__(producer, self._base, circuit)

    @contextlib.contextmanager
    def transaction(self, connection: Any) -> Iterator[Transaction]:  # noqa: ANN401
        """Return a block that commits the connection's transaction, and rolls it back when it
        raises. Do not commit or roll back inside it: the connection's own commit() and rollback()
        raise there."""
        _, driver = find_driver(connection, PLAIN)
        if self._is_closed:
            raise outbox_closed_error()
        unsent = UnsentMessages()
        block = _block_on(connection, unsent)
        blocks.enter_block(connection, block)
        try:
            block.begin()
        except BaseException:
            blocks.leave_block(connection)
            raise
        tx = Transaction(self, connection, driver, unsent)
        try:
            yield tx
            block.check_not_ended()
            marked = self._hand_over(connection, driver, tx)
            block.commit()
        except BaseException as error:
            block.roll_back(error)
            raise
        finally:
            tx.end_sends()
            blocks.leave_block(connection)
            block.restore_methods()
        if marked is not None:
            marked.report_commit()

    def write_marker(self, connection: object, driver: Driver) -> StagedMessages:
        """Write a marker in an open transaction; only this module uses it."""
        converse = functools.partial(self._run_steps, connection, driver)
        return self._handover.write_marker(driver.family, converse)

    def _hand_over(
        self, connection: object, driver: Driver, tx: Transaction
    ) -> StagedMessages | None:
        messages = tx.end_sends()
        if not messages:
            return None
        converse = functools.partial(self._run_steps, connection, driver)
        return self._handover.send_or_keep(driver.family, converse, messages, early=tx.marked)

    def _run_steps(self, connection: object, driver: Driver, steps: Steps[T]) -> T:
        try:
            return run_steps(
                steps, lambda step: self._base.execute_in_transaction(connection, driver, step)
            )
        except Exception as error:
            raise marker_not_written_error(error) from error

    def _refuse_sends(self) -> None:
        self._is_closed = True
