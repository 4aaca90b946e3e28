"""Listens to an engine. It keeps a transaction's messages until its COMMIT; right before that, it
writes the marker and stores the messages, invisible."""

from __future__ import annotations

import contextlib
import functools
import logging
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Connection, Engine, RootTransaction, event
from sqlalchemy.orm import Session
from sqlalchemy.pool import SingletonThreadPool, StaticPool

from escrowmq.client.core.message import Message
from escrowmq.errors import UsageError
from escrowmq.integrations.dbapi.drivers import (
    has_void_commit_awaited,
    is_connection_autocommit,
)
from escrowmq.integrations.outbox import marking, tables, verdict
from escrowmq.integrations.outbox.failures import marker_not_written_error, outbox_closed_error
from escrowmq.integrations.outbox.hand_over import HandOver
from escrowmq.integrations.outbox.staged_messages import StagedMessages
from escrowmq.integrations.outbox.steps import Rows, SqlStep, Steps, run_steps
from escrowmq.integrations.outbox.tables import SqlFamily, Statement
from escrowmq.integrations.outbox.unsent_messages import UnsentMessages
from escrowmq.integrations.sqlalchemy.engine_listener import engine_listener

T = TypeVar("T")
_log = logging.getLogger(__name__)

_SESSION_KEY: Final = "escrowmq.connections"
"""Key in a session's `info` for its connection, by outbox."""

_UNREPORTED_KEY: Final = "escrowmq.left"
"""Key in a connection's `info` for commits that may not have been reported to the brokers, by
outbox."""

_UNREPORTED_MAX: Final = 16
"""Limit of unreported commits per connection; beyond it, they are left to the brokers' checks."""

_in_blocks: weakref.WeakKeyDictionary[Session | Connection, weakref.ref[OpenBlock]] = (
    weakref.WeakKeyDictionary()
)
"""Sessions and connections with an open block. A block that an interrupt ended before it could say
so is gone."""


class OpenBlock:
    """An open block of an outbox; exists as long as the block is open."""

    def __init__(self, hooks: ConnectionHooks) -> None:
        self.hooks = hooks


class _UnreportedCommit(NamedTuple):
    """Messages that were stored right before a COMMIT, whose success is not reported yet."""

    sent: StagedMessages
    transaction: Callable[[], object]
    """Returns the transaction, or None if it no longer exists. This is a weak reference, because
    the transaction references its connection."""


class _TransactionMessages:
    """The messages of one transaction."""

    def __init__(self) -> None:
        self.unsent = UnsentMessages()
        self.sent: StagedMessages | None = None
        """The messages that belong to the marker, if the marker is written with the first message;
        None for databases where it is written before COMMIT."""


class ConnectionHooks:
    """Reacts to commits and rollbacks of its engine's connections, for one outbox. `course` hands
    over the messages."""

    def __init__(self, engine: Engine, course: HandOver, *, schema: str = "") -> None:
        _check_engine(engine)
        self.engine = engine
        self.family = tables.sql_family_of(engine.dialect.name)
        self._schema = tables.schema_prefix(self.family, schema)
        self._handover = course
        self._style = engine.dialect.paramstyle
        self._open: weakref.WeakKeyDictionary[Connection, _TransactionMessages] = (
            weakref.WeakKeyDictionary()
        )
        self._left: weakref.WeakKeyDictionary[Connection, _UnreportedCommit] = (
            weakref.WeakKeyDictionary()
        )
        self._is_closed = False
        self._listener = engine_listener(engine)
        self._listener.add_outbox(self)

    def close(self) -> None:
        """Accept no more messages. Transactions that already have messages may still commit
        them."""
        self._is_closed = True
        self._stop_when_idle()

    def commit_block(self, connection: Connection) -> None:
        """Commit a connection at the end of its block."""
        # Messages of a transaction that the block has prepared are of the one that ends now.
        self.forget_unreported(connection, except_of=connection.get_transaction())
        connection.commit()
        self.report_commit(connection)

    # -- gathering ---------------------------------------------------------------------------

    def add_message(self, connection: Connection, message: Message) -> None:
        """Keep a message until the connection commits."""
        gathered = self._open.get(connection)
        if gathered is None:
            if self._is_closed:
                raise outbox_closed_error()
            self.check_connection(connection)
            gathered = self._open[connection] = _TransactionMessages()
        is_first = not gathered.unsent.messages
        gathered.unsent.add(message)
        if is_first and marking.writes_marker_early(self.family):
            try:
                converse = functools.partial(self._run_steps, connection)
                gathered.sent = self._handover.write_marker(self.family, converse)
            except BaseException:
                gathered.unsent.messages.clear()
                raise

    def connection_of(self, session: Session) -> Connection:
        """Return the session's connection to this database, in its transaction."""
        bind = session.bind
        if bind is not None and bind.engine.pool is not self.engine.pool:
            raise _other_engine_error("session", bind.engine, self.engine)
        connection = session.connection(bind_arguments={"bind": bind or self.engine})
        session.info.setdefault(_SESSION_KEY, {})[self] = weakref.ref(connection)
        return connection

    def forget_unreported(
        self, connection: Connection, *, except_of: RootTransaction | None = None
    ) -> None:
        """Forget stored messages of an earlier transaction, before a commit that `report_commit`
        will report. Their own commit is not reported: the database may have refused it, which
        causes no event; the marker decides."""
        left = self._left.get(connection)
        if left is not None and (except_of is None or left.transaction() is not except_of):
            del self._left[connection]

    def report_commit(self, connection: Connection) -> None:
        """Report a successful commit to the brokers, if the connection had messages for it."""
        left = self._left.pop(connection, None)
        # Messages of a transaction that is still there are prepared, or its commit has failed.
        if left is not None and connection.get_transaction() is None:
            with contextlib.suppress(Exception):  # the connection is lost
                connection.info[_UNREPORTED_KEY][self].remove(left.sent)
            left.sent.report_commit()

    def check_connection(self, connection: Connection) -> None:
        """Raise UsageError unless messages can commit with the connection's transaction."""
        if connection.engine.pool is not self.engine.pool:
            raise _other_engine_error("connection", connection.engine, self.engine)
        if not self._listener.listens_to(connection):
            raise UsageError(
                "the outbox is not notified of this connection's commits; make the outbox "
                "with the connection's engine"
            )
        if not connection.in_transaction():
            raise UsageError(
                "the connection has no transaction that the message could wait for; send inside "
                "`with outbox.transaction(connection) as tx`, or begin one"
            )
        refuse_autocommit(connection)

    # -- what the engine tells ---------------------------------------------------------------

    def before_commit(self, connection: Connection) -> None:
        """Send the transaction's messages."""
        self.forget_unreported(connection)
        try:
            self._hand_over(connection)
        except BaseException:
            # SQLAlchemy regards a transaction whose commit has raised as ended, and rolls nothing
            # back: the next one on this connection would commit its changes.
            _roll_back_quietly(connection)
            raise
        finally:
            self._stop_when_idle()

    def _hand_over(self, connection: Connection, *, is_long: bool = False) -> None:
        gathered = self._open.pop(connection, None)
        if gathered is None or not gathered.unsent.messages:
            return
        refuse_autocommit(connection)
        sent = self._handover.send_or_keep(
            self.family,
            functools.partial(self._run_steps, connection),
            gathered.unsent.messages,
            early=gathered.sent,
            is_long=is_long,
        )
        if sent is None:
            return
        transaction = connection.get_transaction()
        assert transaction is not None
        self._left[connection] = _UnreportedCommit(sent, weakref.ref(transaction))
        left = connection.info.setdefault(_UNREPORTED_KEY, {}).setdefault(self, [])
        left.append(sent)
        del left[:-_UNREPORTED_MAX]

    def before_prepare(self, connection: Connection) -> None:
        """Send the transaction's messages; if it raises, the transaction can still be rolled
        back."""
        self.forget_unreported(connection)
        self._hand_over(connection, is_long=True)

    def before_commit_unprepared(self, connection: Connection) -> None:
        """Send the messages of a two-phase transaction that was not prepared. If that fails, close
        the connection, because nothing else rolls the transaction back."""
        self.forget_unreported(connection)
        try:
            self._hand_over(connection)
        except BaseException:
            connection.invalidate()
            raise

    def after_rollback(self, connection: Connection) -> None:
        """Drop the transaction's messages."""
        self._open.pop(connection, None)
        self.forget_unreported(connection)
        self._stop_when_idle()

    def on_savepoint(self, connection: Connection, name: str) -> None:
        """Remember the messages sent so far."""
        gathered = self._open.get(connection)
        if gathered is not None:
            gathered.unsent.add_savepoint(name)
        if self.family is SqlFamily.SQLITE:
            # Python's driver begins a transaction before a change, and not before a savepoint;
            # SQLite then takes the savepoint's release for a commit.
            driver: Any = connection.connection.driver_connection
            if not driver.in_transaction:
                connection.exec_driver_sql("BEGIN")

    def on_rollback_to(self, connection: Connection, name: str) -> None:
        """Drop the messages sent since the savepoint."""
        gathered = self._open.get(connection)
        if gathered is not None:
            gathered.unsent.roll_back_to(name)
            gathered.unsent.release_savepoint(
                name
            )  # SQLAlchemy gives no name twice, and releases none

    def on_release(self, connection: Connection, name: str) -> None:
        """Forget the savepoint."""
        gathered = self._open.get(connection)
        if gathered is not None:
            gathered.unsent.release_savepoint(name)

    def on_checkin(self, driver_connection: Any, info: dict[Any, Any]) -> None:  # noqa: ANN401
        """Report commits that were made without a session or a block, when the connection returns
        to the pool. It is not known whether the database accepted them, so their markers are read
        first."""
        left = info[_UNREPORTED_KEY].pop(self, None) if _UNREPORTED_KEY in info else None
        if not left or driver_connection is None:
            return
        try:
            for sent in left:
                read = self._in_paramstyle(tables.select_outcome(sent.key))
                cursor = driver_connection.cursor()
                cursor.execute(*read)
                if [tuple(row) for row in cursor.fetchall()] == [(verdict.COMMIT,)]:
                    sent.report_commit()
                cursor.close()
            self.engine.dialect.do_rollback(driver_connection)
        except Exception as error:  # noqa: BLE001 - the connection is lost, or asyncio has no part
            _log.info("a commit was not reported to the brokers, which will ask: %s", error)

    def _stop_when_idle(self) -> None:
        if self._is_closed and not self._open:
            self._listener.remove_outbox(self)

    # -- the database ------------------------------------------------------------------------

    def _run_steps(self, connection: Connection, steps: Steps[T]) -> T:
        try:
            return run_steps(steps, lambda step: self.execute_in_transaction(connection, step))
        except Exception as error:
            raise marker_not_written_error(error) from error

    def execute_in_transaction(self, connection: Connection, step: SqlStep) -> Rows:
        """Run a step inside a transaction."""
        if step.is_apart:
            return self._execute_outside_pool(step)
        result = self._execute_on(connection, step.statement)
        return [tuple(row) for row in result] if step.is_read else [(result.rowcount,)]

    def _execute_outside_pool(self, step: SqlStep) -> Rows:
        """Run one step on a connection outside the pool. Callers that hold all of the pool's
        connections would otherwise wait for one more."""
        pool = self.engine.pool.recreate()
        try:
            connection = pool.connect()
            try:
                cursor = connection.cursor()
                cursor.execute(*self._in_paramstyle(step.statement))
                rows: Rows = [(cursor.rowcount,)]
                if step.is_read:
                    rows = [tuple(row) for row in cursor.fetchall()]
                cursor.close()
                connection.commit()
                return rows
            finally:
                connection.close()
        finally:
            pool.dispose()

    def _execute_on(self, connection: Connection, statement: Statement) -> Any:  # noqa: ANN401
        return connection.exec_driver_sql(*self._in_paramstyle(statement))

    def _in_paramstyle(self, statement: Statement) -> tuple[str, tuple[str | int | bytes, ...]]:
        return statement.in_schema(self._schema).in_paramstyle(self._style), statement.values

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Callable[[SqlStep], Rows]]:
        """Return a block that runs steps in one transaction, on a separate connection; it commits
        at the end."""
        with self.engine.connect() as connection:
            self.begin_own_transaction(connection)
            yield functools.partial(self.execute_in_transaction, connection)
            connection.commit()

    def begin_own_transaction(self, connection: Connection) -> None:
        """Begin a transaction for the outbox itself."""
        self._set_isolation_level(connection)
        if self.family is SqlFamily.SQLITE:
            connection.exec_driver_sql("begin immediate")

    def _set_isolation_level(self, connection: Connection) -> None:
        if _is_autocommit(connection):  # in which no lock wait could be set for a transaction
            is_lite = self.family is SqlFamily.SQLITE
            level = "SERIALIZABLE" if is_lite else "READ COMMITTED"
            connection.execution_options(isolation_level=level)

    def execute(self, step: SqlStep) -> Rows:
        """Run one step on a separate connection."""
        with self.engine.connect() as connection:
            self._set_isolation_level(connection)
            try:
                for each in step.before:
                    self._execute_on(connection, each)
                result = self._execute_on(connection, step.statement)
                rows: Rows = [(result.rowcount,)]
                if step.is_read:
                    rows = [tuple(row) for row in result]
                connection.commit()
                return rows
            finally:
                # The pool gives this connection to others, who must not get our lock timeout with
                # it.
                if step.after:
                    connection.rollback()
                    for each in step.after:
                        self._execute_on(connection, each)
                    connection.commit()


@event.listens_for(Session, "before_commit")
def _before_commit(session: Session) -> None:
    for hooks, connection in _connections_of(session):
        hooks.forget_unreported(connection)


@event.listens_for(Session, "after_commit")
def _after_commit(session: Session) -> None:
    for hooks, connection in _connections_of(session):
        hooks.report_commit(connection)


def _connections_of(session: Session) -> Iterator[tuple[ConnectionHooks, Connection]]:
    for hooks, connection in session.info.get(_SESSION_KEY, {}).items():
        found = connection()
        if found is not None:
            yield hooks, found


@event.listens_for(Session, "after_begin")
def _after_begin(session: Session, _transaction: object, connection: Connection) -> None:
    # Before the first statement: a statement that commits by itself could not be undone.
    block = _open_block_of(session)
    if block is not None and connection.engine.pool is block.hooks.engine.pool:
        refuse_autocommit(connection)


def _open_block_of(work: Session | Connection) -> OpenBlock | None:
    found = _in_blocks.get(work)
    return None if found is None else found()


def enter_block(work: Session | Connection, block: OpenBlock) -> None:
    """Record that a block of an outbox begins. Raises UsageError if another one is open."""
    if _open_block_of(work) is not None:
        raise UsageError(
            "this session or connection already has an open block of the outbox, which "
            "commits its whole transaction; send inside that block, and use begin_nested() "
            "for work that may be rolled back alone"
        )
    _in_blocks[work] = weakref.ref(block)


def leave_block(work: Session | Connection) -> None:
    """Record that the block has ended."""
    _in_blocks.pop(work, None)


def _roll_back_quietly(connection: Connection) -> None:
    try:
        connection.dialect.do_rollback(connection.connection)
    except Exception:  # noqa: BLE001 - it is lost; what was raised before matters
        connection.invalidate()


def _check_engine(engine: Engine) -> None:
    if engine.dialect.name == "sqlite" and isinstance(
        engine.pool, StaticPool | SingletonThreadPool
    ):
        raise UsageError(
            "a SQLite database in memory has one connection, or one for each thread, so "
            "checks cannot read it; use a file"
        )


def _is_autocommit(connection: Connection) -> bool:
    level = connection.get_execution_options().get("isolation_level")
    # The arguments of create_engine; SQLAlchemy has no public name for them.
    level = level or getattr(connection.dialect, "_on_connect_isolation_level", None)
    return level == "AUTOCOMMIT"


def refuse_autocommit(connection: Connection) -> None:
    """Raise UsageError if the connection commits each statement."""
    if _is_autocommit(connection) or _is_driver_autocommit(connection):
        raise UsageError(
            "the connection commits each statement by itself (AUTOCOMMIT, or autocommit of its "
            "driver), so neither messages nor the records of handled ones can commit with it; use "
            "another isolation level for this transaction, or leave autocommit out of connect_args"
        )


def _is_driver_autocommit(connection: Connection) -> bool:
    driver = connection.connection.driver_connection
    if is_connection_autocommit(driver):
        return True
    adapted: Any = connection.connection.dbapi_connection
    is_aiosqlite = connection.dialect.driver == "aiosqlite"
    return is_aiosqlite and bool(adapted.run_async(has_void_commit_awaited))


def _other_engine_error(what: str, seen: Engine, expected: Engine) -> UsageError:
    return UsageError(
        f"the {what} works on {seen!r} and the outbox on {expected!r}, whose transactions are not "
        f"the same; make the outbox with the {what}'s engine"
    )
