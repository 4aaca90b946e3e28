"""The outbox for Django.

Django has no hook before a COMMIT. So the connection's own `commit` is replaced for a transaction
that has messages. They wait among the connection's on-commit callbacks, from which Django itself
removes those of inner `atomic` blocks that are rolled back. It does not know which callbacks were
registered behind a savepoint that the program made itself (`transaction.savepoint()`), so the
connection's savepoints are noted too."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar, Unpack

from django.db import DEFAULT_DB_ALIAS, connections

from escrowmq.client.blocking.producer import Producer
from escrowmq.client.core.message import Message
from escrowmq.client.producer_settings import MessageFields, make_message
from escrowmq.errors import UsageError
from escrowmq.integrations.outbox import marking, tables
from escrowmq.integrations.outbox.circuit import KEPT_MAX_DEFAULT
from escrowmq.integrations.outbox.failures import marker_not_written_error, outbox_closed_error
from escrowmq.integrations.outbox.hand_over import HandOver
from escrowmq.integrations.outbox.staged_messages import StagedMessages
from escrowmq.integrations.outbox.steps import Rows, SqlStep, Steps, run_steps
from escrowmq.integrations.outbox.tables import SqlFamily, Statement
from escrowmq.integrations.outbox.unsent_messages import Savepoints, UnsentMessages
from escrowmq.integrations.outbox_base import OutboxBase, make_circuit, new_database_name

_log = logging.getLogger(__name__)
T = TypeVar("T")


class DjangoDatabase:
    """One database of Django's setting DATABASES."""

    def __init__(self, using: str) -> None:
        self._using = using

    @property
    def family(self) -> SqlFamily:
        """Return the database's SQL dialect."""
        return tables.sql_family_of(connections[self._using].vendor)

    def execute(self, step: SqlStep) -> Rows:
        """Run one step on a separate connection, and close that immediately: the threads of checks
        belong to no request, so nothing else would close it."""
        connection = connections[self._using].copy()
        # If all of a pool's connections are held, their holders would wait for one more.
        connection.settings_dict.get("OPTIONS", {}).pop("pool", None)
        try:
            connection.set_autocommit(False)
            for each in step.before:
                execute_on(connection, each)
            rows = execute_on(connection, step.statement, is_read=step.is_read)
            connection.commit()
            return rows
        finally:
            connection.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Callable[[SqlStep], Rows]]:
        """Return a block that runs steps in one transaction, on a separate connection; it commits
        at the end."""
        connection = connections[self._using].copy()
        connection.settings_dict.get("OPTIONS", {}).pop("pool", None)
        try:
            connection.set_autocommit(False)
            if self.family is SqlFamily.SQLITE:
                connection.cursor().execute("begin immediate")
            yield lambda step: execute_on(connection, step.statement, is_read=step.is_read)
            connection.commit()
        finally:
            connection.close()


class _WaitingMessage:
    """A message among the connection's on-commit callbacks. Django calls it after the commit, and
    it reports the commit to the brokers."""

    def __init__(
        self,
        outbox: Outbox,
        message: Message,
        early: StagedMessages | None,
        *,
        transaction: _PatchedConnection,
    ) -> None:
        self.outbox = outbox
        self.message = message
        self.transaction = transaction
        self.number = transaction.next_number()
        """The message's number in its transaction; they grow in the order of sending."""
        self.early = early
        """The messages that belong to the marker, if the marker is written with the first message;
        None for databases where it is written later."""
        self.marked: StagedMessages | None = None
        """The messages that were sent to brokers; None if they are kept."""
        self.is_over = False
        """Whether the transaction has begun to commit."""
        self.is_first = False

    def __call__(self) -> None:
        if not self.is_over:
            self.outbox.on_call_without_commit(self.message)
        elif self.is_first and self.marked is not None and self.transaction.has_committed:
            self.marked.report_commit()


class Outbox(OutboxBase):
    """Sends messages with the transactions of Django's database `using`, which must be the primary,
    and answers checks from it: you need not write a check. Make one per process, right after the
    producer; every process of the producer's group needs one.

    `sends_in_test_case` is for tests: inside Django's `TestCase`, which never commits,
    `captureOnCommitCallbacks(execute=True)` sends the messages. Elsewhere it has no effect."""

    def __init__(
        self,
        producer: Producer,
        using: str = DEFAULT_DB_ALIAS,
        *,
        when_away: str = "refuse",
        kept_max: int = KEPT_MAX_DEFAULT,
        sends_in_test_case: bool = False,
    ) -> None:
        seen: object = producer
        if not isinstance(seen, Producer):
            raise UsageError(
                f"Outbox({type(producer).__name__}): an escrowmq.Producer is expected, whose calls "
                "are not awaited, as Django's transactions are not"
            )
        self._producer = producer
        self._sends_in_test_case = sends_in_test_case
        self._using = using
        self._base = DjangoDatabase(using)
        circuit = make_circuit(when_away, kept_max)
        self._handover = HandOver(
            producer.marked_messages,
            new_name=new_database_name,
            way_out=circuit,
            on_kept=self._wake_relay,
        )
        self._is_closed = False
        super().__init__(producer, self._base, circuit)

    def send(
        self, topic: str | Message, body: bytes = b"", **fields: Unpack[MessageFields]
    ) -> None:
        """Send a message when the outermost `transaction.atomic` commits. If a savepoint is rolled
        back (an inner `atomic` that raises, `transaction.savepoint_rollback`), its messages are
        not sent."""
        message = make_message(topic, body, fields)
        connection = connections[self._using]
        if not connection.in_atomic_block:
            raise UsageError(
                f"there is no transaction of {self._using!r} that the message could wait for; send "
                "inside `with transaction.atomic():`"
            )
        if self._is_closed:
            raise outbox_closed_error()
        listener = _patch_connection(connection)
        waiting = [each for each in listener.waiting_messages() if each.outbox is self]
        unsent = UnsentMessages()  # for its bounds
        unsent.messages = [each.message for each in waiting]
        message = unsent.add(message)
        early = waiting[0].early if waiting else None
        if early is None and marking.writes_marker_early(self._base.family):
            converse = functools.partial(self._run_steps, connection)
            early = self._handover.write_marker(self._base.family, converse)
        connection.on_commit(_WaitingMessage(self, message, early, transaction=listener))

    def hand_over(self, connection: Any, waiting: list[_WaitingMessage]) -> None:  # noqa: ANN401
        """Write the marker and store the messages; only this module uses it."""
        marked = self._handover.send_or_keep(
            self._base.family,
            functools.partial(self._run_steps, connection),
            [each.message for each in waiting],
            early=waiting[0].early,
        )
        waiting[0].is_first = True
        for each in waiting:
            each.marked, each.is_over = marked, True

    def on_call_without_commit(self, message: Message) -> None:
        """Handle a message whose callback was called without a commit: log it, or send it inside a
        TestCase if that was allowed. Only this module uses it."""
        if self._sends_in_test_case and _is_test_case(connections[self._using]):
            self._producer.send(message)  # no marker will say what became of it: at once
            return
        _log.warning(
            "the message to %r is not sent: the on-commit callbacks were called without a commit. "
            "In tests, use TransactionTestCase, or TestCase with "
            "captureOnCommitCallbacks(execute=True) and Outbox(..., sends_in_test_case=True)",
            message.topic,
        )

    def _run_steps(self, connection: Any, steps: Steps[T]) -> T:  # noqa: ANN401
        def execute(step: SqlStep) -> Rows:
            if step.is_apart:
                return self._base.execute(step)
            return execute_on(connection, step.statement, is_read=step.is_read)

        try:
            return run_steps(steps, execute)
        except Exception as error:
            raise marker_not_written_error(error) from error

    def _refuse_sends(self) -> None:
        self._is_closed = True


def execute_on(connection: Any, statement: Statement, *, is_read: bool = False) -> Rows:  # noqa: ANN401
    """Run one statement; return its rows, or the number of rows that it changed."""
    with connection.cursor() as cursor:
        cursor.execute(statement.in_paramstyle("format"), statement.values)
        return [tuple(row) for row in cursor.fetchall()] if is_read else [(cursor.rowcount,)]


def _is_test_case(connection: Any) -> bool:  # noqa: ANN401
    """Whether the connection is in the block that Django's TestCase rolls back. Django marks only
    these blocks, so in production no message is sent without its transaction."""
    return any(block._from_testcase for block in connection.atomic_blocks)  # noqa: SLF001


class _PatchedConnection:
    """Replaces methods of a connection until its transaction ends, so that messages are sent before
    a commit and dropped after a rollback."""

    def __init__(self, connection: Any) -> None:  # noqa: ANN401
        self._connection = connection
        self._count = 0
        self._savepoints = Savepoints()
        self.has_committed = False
        # Methods that another tool may have replaced before.
        self._replaced = {name: vars(connection).get(name) for name in _REPLACED}
        self._own = {name: getattr(connection, name) for name in _REPLACED}
        for name in _REPLACED:
            setattr(connection, name, getattr(self, name))
        setattr(connection, _LISTENER, self)

    def restore_methods(self) -> None:
        """Restore the connection's own methods."""
        delattr(self._connection, _LISTENER)
        for name, method in self._replaced.items():
            if method is None:
                delattr(self._connection, name)
            else:
                setattr(self._connection, name, method)

    def waiting_messages(self) -> Iterator[_WaitingMessage]:
        """The messages of this transaction that wait for its commit."""
        for entry in self._connection.run_on_commit:
            if isinstance(entry[1], _WaitingMessage) and entry[1].transaction is self:
                yield entry[1]

    def next_number(self) -> int:
        """Return the number of a message that is sent now."""
        self._count += 1
        return self._count

    # -- what Django calls -------------------------------------------------------------------

    def commit(self) -> None:
        """Hand the messages over, then commit."""
        connection = self._connection
        self.restore_methods()
        # Django's own commit checks this too, but only after the messages would have been stored.
        connection.validate_no_atomic_block()
        try:
            by_outbox: dict[Outbox, list[_WaitingMessage]] = {}
            for each in self.waiting_messages():
                by_outbox.setdefault(each.outbox, []).append(each)
            for outbox, waiting in by_outbox.items():
                outbox.hand_over(connection, waiting)
            connection.commit()
        except BaseException:
            # Django rolls back, and drops what is to be done on commit, only for the database's
            # errors. After an interrupt the next transaction on this connection would send these
            # messages, and some drivers commit this one when autocommit is turned on.
            _roll_back_quietly(connection)
            raise
        self.has_committed = True

    def rollback(self) -> None:
        """Roll back; Django itself drops the messages."""
        self.restore_methods()
        self._connection.rollback()

    def savepoint(self) -> Any:  # noqa: ANN401
        """Make a savepoint; return its id."""
        sid = self._own["savepoint"]()
        self._savepoints.add(str(sid), self._count)
        return sid

    def savepoint_rollback(self, sid: object) -> None:
        """Roll back to a savepoint, and drop the messages that were sent after it."""
        self._own["savepoint_rollback"](sid)
        sent = self._savepoints.roll_back(str(sid))
        if sent is None:  # it was made before the transaction's first message
            self._savepoints.clear()
        self._connection.run_on_commit = [
            entry
            for entry in self._connection.run_on_commit
            if not isinstance(entry[1], _WaitingMessage) or entry[1].number <= (sent or 0)
        ]

    def savepoint_commit(self, sid: object) -> None:
        """Release a savepoint; its messages stay."""
        self._own["savepoint_commit"](sid)
        self._savepoints.release(str(sid))


_REPLACED: Final = ("commit", "rollback", "savepoint", "savepoint_rollback", "savepoint_commit")
_LISTENER: Final = "_escrowmq_listener"


def _patch_connection(connection: Any) -> _PatchedConnection:  # noqa: ANN401
    """Replace methods of the connection for the rest of its transaction, unless that was done;
    return the listener."""
    return vars(connection).get(_LISTENER) or _PatchedConnection(connection)


def _roll_back_quietly(connection: Any) -> None:  # noqa: ANN401
    try:
        connection.rollback()
    except Exception:  # noqa: BLE001 - it is lost; what was raised before matters
        connection.close()
