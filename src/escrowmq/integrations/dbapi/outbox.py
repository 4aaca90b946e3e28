"""The outbox for plain connections."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Unpack

from escrowmq.client.blocking.outbox_messages import Marked
from escrowmq.client.blocking.producer import Producer
from escrowmq.client.core.message import Message
from escrowmq.client.producer_settings import MessageFields, message_of
from escrowmq.errors import UsageError
from escrowmq.integrations.dbapi import drivers
from escrowmq.integrations.dbapi.drivers import PLAIN, Driver, driver_of
from escrowmq.integrations.outbox import tables, verdict
from escrowmq.integrations.outbox.handing_over import block_is_over, not_written
from escrowmq.integrations.outbox.steps import Rows, SqlStep, failed, run
from escrowmq.integrations.outbox.tables import SqlFamily, Statement
from escrowmq.integrations.outbox.unsent_messages import UnsentMessages
from escrowmq.integrations.outbox_base import Keeper, new_name

Connect = Callable[[], Any]


class PlainDatabase:
    """A database that `connect` makes connections to."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._family: SqlFamily | None = None
        self.name = ""

    @property
    def family(self) -> SqlFamily:
        """Its SQL; found out with the first connection."""
        if self._family is None:
            try:
                connection = self._connect()
            except Exception as error:
                raise failed(error) from error
            with contextlib.closing(connection):
                self._family = driver_of(connection, PLAIN)[1].family
        return self._family

    def execute(self, step: SqlStep) -> Rows:
        """Run one step."""
        with contextlib.closing(self._connect()) as connection:
            return drivers.execute_step(connection, driver_of(connection, PLAIN)[1], step)

    def known_name(self, connection: object, driver: Driver) -> str:
        """The database's name, looked up in a transaction that is under way."""
        if not self.name:
            cursor = drivers.execute_on(connection, driver, tables.read(tables.NAME_ID))
            rows = cursor.fetchall()
            if rows:
                self.name = str(next(iter(tuple(rows[0]))))
            elif driver.family is SqlFamily.SQLITE:  # whose only lock the transaction has
                name = new_name()
                mark = tables.mark(driver.family, tables.NAME_ID, name)
                drivers.execute_on(connection, driver, mark)
                return name  # and is not kept: a rollback takes it back
            else:
                # On a connection of its own: in this transaction, others would wait for the row.
                self.name = run(verdict.name(self.family, new_name=new_name()), self.execute)
        return self.name


class Transaction:
    """Made by `Outbox.transaction`; its block commits, or rolls back when it raises."""

    def __init__(self, connection: Any, driver: Driver) -> None:  # noqa: ANN401
        self._connection = connection
        self._driver = driver
        self._unsent = UnsentMessages()
        self._savepoints_count = 0
        self._is_over = False

    def send(
        self, topic: str | Message, body: bytes = b"", **fields: Unpack[MessageFields]
    ) -> None:
        """Send a message when the transaction commits."""
        if self._is_over:
            raise block_is_over()
        self._unsent.add(message_of(topic, body, fields))

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        """A part that is taken back alone when it raises: what it changed and what it sent. What a
        savepoint of your own SQL takes back is not known here, and would be sent."""
        self._savepoints_count += 1
        name = f"escrowmq_{self._savepoints_count}"
        self._unsent.savepoint(name)
        self._execute(f"savepoint {name}")
        try:
            yield
        except BaseException:
            self._unsent.rolled_back_to(name)
            self._execute(f"rollback to savepoint {name}")
            raise
        self._execute(f"release savepoint {name}")

    def end(self) -> list[Message]:
        """Nothing can be sent in it any more; what was."""
        self._is_over = True
        return self._unsent.messages

    def _execute(self, text: str) -> None:
        drivers.execute_on(self._connection, self._driver, Statement(text))


class Outbox(Keeper):
    """Sends messages with the transactions of connections, and answers from their database what
    became of them: no check is to be written. Make one for the whole process, right behind the
    producer; every process of the producer's group has to have it.

    `connect` makes a connection to the same database, and not to a read replica; checks use it.
    """

    def __init__(self, producer: Producer, connect: Connect) -> None:
        seen: object = producer
        if not isinstance(seen, Producer):
            raise UsageError(
                f"Outbox({type(producer).__name__}): an escrowmq.Producer is expected; AsyncOutbox "
                "takes one of escrowmq.aio"
            )
        self._base = PlainDatabase(connect)
        self._in_blocks: set[int] = set()
        super().__init__(producer, self._base)

    @contextlib.contextmanager
    def transaction(self, connection: Any) -> Iterator[Transaction]:  # noqa: ANN401
        """A block that commits the connection, and rolls it back when it raises. Do not commit in
        it: what was changed until then would stand without its messages."""
        _, driver = driver_of(connection, PLAIN)
        drivers.begin(connection, driver)
        if id(connection) in self._in_blocks:
            raise UsageError(
                "a block of the outbox is open on this connection already, and commits all of it; "
                "send inside that one, and use its savepoint() for what may be taken back alone"
            )
        self._in_blocks.add(id(connection))
        tx = Transaction(connection, driver)
        try:
            yield tx
            marked = self._hand_over(connection, driver, tx.end())
            connection.commit()
        except BaseException:
            with contextlib.suppress(Exception):  # the connection is lost; what was raised matters
                connection.rollback()
            raise
        finally:
            tx.end()
            self._in_blocks.discard(id(connection))
        if marked is not None:
            marked.committed()

    def _hand_over(
        self, connection: object, driver: Driver, messages: list[Message]
    ) -> Marked | None:
        if not messages:
            return None
        try:
            marked = self._producer.marked(self._base.known_name(connection, driver))
            mark = tables.mark(driver.family, marked.key, verdict.COMMIT)
            drivers.execute_on(connection, driver, mark)
        except Exception as error:
            raise not_written(error) from error
        marked.send(messages)
        marked.leave()
        return marked
