"""The outbox of Django.

Django has no hook in front of a COMMIT. So the connection's own `commit` is replaced for the one
transaction that has messages. They wait in the connection's list of what is to be done on commit,
which Django itself keeps in step with savepoints.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Unpack

from django.db import DEFAULT_DB_ALIAS, connections

from escrowmq.client.blocking.outbox_messages import Marked
from escrowmq.client.blocking.producer import Producer
from escrowmq.client.core.message import Message
from escrowmq.client.producer_settings import MessageFields, message_of
from escrowmq.errors import UsageError
from escrowmq.integrations.outbox import tables, verdict
from escrowmq.integrations.outbox.handing_over import not_written
from escrowmq.integrations.outbox.steps import Rows, SqlStep, run
from escrowmq.integrations.outbox.tables import SqlFamily, Statement
from escrowmq.integrations.outbox.unsent_messages import UnsentMessages
from escrowmq.integrations.outbox_base import Keeper, new_name

_log = logging.getLogger(__name__)


class DjangoDatabase:
    """One of the settings' DATABASES."""

    def __init__(self, using: str) -> None:
        self._using = using
        self.name = ""

    @property
    def family(self) -> SqlFamily:
        """Its SQL."""
        return tables.family_of(connections[self._using].vendor)

    def execute(self, step: SqlStep) -> Rows:
        """Run one step on a connection of its own, which is closed at once: the threads of checks
        belong to no request, so that nobody else would."""
        connection = connections[self._using].copy()
        try:
            connection.set_autocommit(False)
            for each in step.before:
                execute_on(connection, each)
            rows = execute_on(connection, step.statement, is_read=step.is_read)
            connection.commit()
            return rows
        finally:
            connection.close()

    def known_name(self, connection: Any) -> str:  # noqa: ANN401
        """The database's name, looked up in a transaction that is under way."""
        if not self.name:
            rows = execute_on(connection, tables.read(tables.NAME_ID), is_read=True)
            if rows:
                self.name = str(rows[0][0])
            elif self.family is SqlFamily.SQLITE:  # whose only lock the transaction has
                name = new_name()
                execute_on(connection, tables.mark(self.family, tables.NAME_ID, name))
                return name  # and is not kept: a rollback takes it back
            else:
                self.name = run(verdict.name(self.family, new_name=new_name()), self.execute)
        return self.name


class _Waiting:
    """A message among what is to be done on commit. Called, it tells the brokers."""

    def __init__(self, outbox: Outbox, message: Message) -> None:
        self.outbox = outbox
        self.message = message
        self.marked: Marked | None = None
        self.is_first = False

    def __call__(self) -> None:
        if self.marked is None:
            _log.warning(
                "the message to %r is not sent: what is done on commit was called, and nothing was "
                "committed. In tests, use TransactionTestCase", self.message.topic,
            )  # fmt: skip
        elif self.is_first:
            self.marked.committed()


class Outbox(Keeper):
    """Sends messages with the transactions of Django's database `using`, which is the primary, and
    answers from it what became of them: no check is to be written. Make one for the whole process,
    right behind the producer; every process of the producer's group has to have it."""

    def __init__(self, producer: Producer, using: str = DEFAULT_DB_ALIAS) -> None:
        seen: object = producer
        if not isinstance(seen, Producer):
            raise UsageError(
                f"Outbox({type(producer).__name__}): an escrowmq.Producer is expected, whose calls "
                "are not awaited, as Django's transactions are not"
            )
        self._using = using
        self._base = DjangoDatabase(using)
        super().__init__(producer, self._base)

    def send(
        self, topic: str | Message, body: bytes = b"", **fields: Unpack[MessageFields]
    ) -> None:
        """Send a message when the outermost `transaction.atomic` commits. A savepoint that is
        rolled back (an inner `atomic` that raises) takes back what was sent in it."""
        message = message_of(topic, body, fields)
        connection = connections[self._using]
        if not connection.in_atomic_block:
            raise UsageError(
                f"there is no transaction of {self._using!r} that the message could wait for; send "
                "inside `with transaction.atomic():`"
            )
        unsent = UnsentMessages()  # for its bounds
        unsent.messages = [each.message for each in _waiting(connection) if each.outbox is self]
        unsent.add(message)
        connection.on_commit(_Waiting(self, message))
        _listen(connection)

    def hand_over(self, connection: Any, waiting: list[_Waiting]) -> None:  # noqa: ANN401
        """For this module: write the marker and store the messages."""
        try:
            marked = self._producer.marked(self._base.known_name(connection))
            mark = tables.mark(self._base.family, marked.key, verdict.COMMIT)
            execute_on(connection, mark)
        except Exception as error:
            raise not_written(error) from error
        marked.send([each.message for each in waiting])
        marked.leave()
        waiting[0].is_first = True
        for each in waiting:
            each.marked = marked


def execute_on(connection: Any, statement: Statement, *, is_read: bool = False) -> Rows:  # noqa: ANN401
    """Run one statement; its rows, or how many it changed."""
    with connection.cursor() as cursor:
        cursor.execute(statement.in_style("format"), statement.values)
        return [tuple(row) for row in cursor.fetchall()] if is_read else [(cursor.rowcount,)]


def _listen(connection: Any) -> None:  # noqa: ANN401
    """Be asked before this transaction commits."""
    if "commit" in vars(connection):
        return

    def commit() -> None:
        del connection.commit
        # Django's commit asks this too, but by then the messages would be stored.
        connection.validate_no_atomic_block()
        try:
            by_outbox: dict[Outbox, list[_Waiting]] = {}
            for each in _waiting(connection):
                by_outbox.setdefault(each.outbox, []).append(each)
            for outbox, waiting in by_outbox.items():
                outbox.hand_over(connection, waiting)
        except BaseException:
            # Django rolls back for the database's errors alone, and some drivers commit what is
            # open when it turns autocommit on behind this.
            _roll_back(connection)
            raise
        connection.commit()

    connection.commit = commit


def _roll_back(connection: Any) -> None:  # noqa: ANN401
    try:
        connection.rollback()
    except Exception:  # noqa: BLE001 - it is lost; what was raised before matters
        connection.close()


def _waiting(connection: Any) -> Iterator[_Waiting]:  # noqa: ANN401
    for entry in connection.run_on_commit:
        if isinstance(entry[1], _Waiting):
            yield entry[1]
