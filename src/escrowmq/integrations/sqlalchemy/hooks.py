"""Listens to an engine: what was sent in a transaction is kept until its COMMIT, right before which
the marker is written and the messages are stored, invisible."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import Connection, Engine, event
from sqlalchemy.orm import Session
from sqlalchemy.pool import SingletonThreadPool, StaticPool

from escrowmq.client.core.message import Message
from escrowmq.errors import UsageError
from escrowmq.integrations.outbox import tables, verdict
from escrowmq.integrations.outbox.handing_over import OnTheirWay, not_written
from escrowmq.integrations.outbox.steps import Rows, SqlStep, run
from escrowmq.integrations.outbox.tables import SqlFamily, Statement
from escrowmq.integrations.outbox.unsent_messages import UnsentMessages
from escrowmq.integrations.outbox_base import new_name

_SLOT: Final = "escrowmq.connections"
"""In a session's `info`: its connection, by outbox."""

_in_blocks: weakref.WeakSet[Session | Connection] = weakref.WeakSet()
"""Those that a block of an outbox is open on."""


class Hooks:
    """What an outbox does when its engine's connections commit and roll back. `begin` makes the
    messages of one transaction, given the database's name."""

    def __init__(self, engine: Engine, begin: Callable[[str], OnTheirWay]) -> None:
        _check_engine(engine)
        self.engine = engine
        self.family = tables.family_of(engine.dialect.name)
        self.name = ""
        """The database's; empty before it is known."""
        self._begin = begin
        self._style = engine.dialect.paramstyle
        self._open: weakref.WeakKeyDictionary[Connection, UnsentMessages] = (
            weakref.WeakKeyDictionary()
        )
        self._left: weakref.WeakKeyDictionary[Connection, OnTheirWay] = weakref.WeakKeyDictionary()
        listeners: dict[str, Callable[..., None]] = {
            "commit": self._before_commit,
            "prepare_twophase": self._before_prepare,
            "commit_twophase": self._before_commit_twophase,
            "rollback": self._after_rollback,
            "rollback_twophase": self._after_rollback_twophase,
            "savepoint": self._savepoint,
            "rollback_savepoint": self._rollback_savepoint,
        }
        for moment, listener in listeners.items():
            event.listen(engine, moment, listener)

    # -- gathering ---------------------------------------------------------------------------

    def add(self, connection: Connection, message: Message) -> None:
        """Keep a message until the connection commits."""
        gathered = self._open.get(connection)
        if gathered is None:
            self._check_connection(connection)
            gathered = self._open[connection] = UnsentMessages()
        gathered.add(message)

    def connection_of(self, session: Session) -> Connection:
        """The session's connection to this database, in its transaction."""
        bind = session.bind
        if bind is not None and bind.engine.pool is not self.engine.pool:
            raise _other_engine("session", bind.engine, self.engine)
        connection = session.connection(bind_arguments={"bind": bind or self.engine})
        session.info.setdefault(_SLOT, {})[self] = weakref.ref(connection)
        return connection

    def finish(self, connection: Connection) -> None:
        """If the connection has committed messages, tell the brokers."""
        sent = self._left.pop(connection, None)
        if sent is not None:
            sent.committed()

    def _check_connection(self, connection: Connection) -> None:
        if connection.engine.pool is not self.engine.pool:
            raise _other_engine("connection", connection.engine, self.engine)
        if not connection.in_transaction():
            raise UsageError(
                "the connection has no transaction that the message could wait for; send inside "
                "`with outbox.transaction(connection) as tx`, or begin one"
            )
        if _is_autocommit(connection):
            raise UsageError(
                "the connection commits each statement by itself (AUTOCOMMIT), so that nothing "
                "can happen both or neither; use another isolation level for this transaction"
            )

    # -- what the engine tells ---------------------------------------------------------------

    def _before_commit(self, connection: Connection) -> None:
        # Of an earlier transaction, whose COMMIT the database may have refused: no event says so.
        self._left.pop(connection, None)
        try:
            self._hand_over(connection)
        except BaseException:
            # SQLAlchemy takes a transaction for over whose commit has raised, and rolls nothing
            # back: the next one on this connection would commit what this one has changed.
            _roll_back(connection)
            raise

    def _hand_over(self, connection: Connection) -> None:
        gathered = self._open.pop(connection, None)
        if gathered is None or not gathered.messages:
            return
        try:
            sent = self._begin(self._known_name(connection))
            self.execute_on(connection, tables.mark(self.family, sent.key, verdict.COMMIT))
        except Exception as error:
            raise not_written(error) from error
        sent.send(gathered.messages)
        sent.leave()
        self._left[connection] = sent

    def _before_prepare(self, connection: Connection, xid: object) -> None:
        self._left.pop(connection, None)
        self._hand_over(connection)  # when it raises, the transaction can still be rolled back

    def _before_commit_twophase(
        self, connection: Connection, xid: object, is_prepared: bool
    ) -> None:
        if is_prepared:
            return  # all was handed over
        self._left.pop(connection, None)
        try:
            self._hand_over(connection)
        except BaseException:
            connection.invalidate()  # with which the database rolls it back
            raise

    def _after_rollback(self, connection: Connection) -> None:
        self._open.pop(connection, None)
        self._left.pop(connection, None)  # its marker tells what became of it

    def _after_rollback_twophase(
        self, connection: Connection, xid: object, is_prepared: bool
    ) -> None:
        self._after_rollback(connection)

    def _savepoint(self, connection: Connection, name: str | None) -> None:
        gathered = self._open.get(connection)
        if gathered is not None:
            gathered.savepoint(name or _next_savepoint(connection))
        if self.family is SqlFamily.SQLITE:
            # Python's driver begins a transaction before a change, and not before a savepoint;
            # SQLite then takes the savepoint's release for a commit.
            driver: Any = connection.connection.driver_connection
            if not driver.in_transaction:
                connection.exec_driver_sql("BEGIN")

    def _rollback_savepoint(self, connection: Connection, name: str, context: object) -> None:
        gathered = self._open.get(connection)
        if gathered is not None:
            gathered.rolled_back_to(name)

    # -- the database ------------------------------------------------------------------------

    def _known_name(self, connection: Connection) -> str:
        if not self.name:
            rows = self.execute_on(connection, tables.read(tables.NAME_ID)).fetchall()
            if rows:
                self.name = str(rows[0][0])
            elif self.family is SqlFamily.SQLITE:  # whose only lock the transaction has
                name = new_name()
                self.execute_on(connection, tables.mark(self.family, tables.NAME_ID, name))
                return name  # and is not kept: a rollback takes it back
            else:
                self.name = run(verdict.name(self.family, new_name=new_name()), self.execute)
        return self.name

    def execute_on(self, connection: Connection, statement: Statement) -> Any:  # noqa: ANN401
        """Run one statement."""
        return connection.exec_driver_sql(statement.in_style(self._style), statement.values)

    def execute(self, step: SqlStep) -> Rows:
        """Run one step on a connection of its own."""
        with self.engine.connect() as connection:
            try:
                for each in step.before:
                    self.execute_on(connection, each)
                result = self.execute_on(connection, step.statement)
                rows: Rows = [(result.rowcount,)]
                if step.is_read:
                    rows = [tuple(row) for row in result]
                connection.commit()
                return rows
            finally:
                # The pool gives this connection to others, who must not find our lock wait on it.
                if step.after:
                    connection.rollback()
                    for each in step.after:
                        self.execute_on(connection, each)
                    connection.commit()


@event.listens_for(Session, "after_commit")
def _after_commit(session: Session) -> None:
    for hooks, connection in session.info.get(_SLOT, {}).items():
        found = connection()
        if found is not None:
            hooks.finish(found)


def enter(work: Session | Connection) -> None:
    """A block of an outbox begins. UsageError when another one is open."""
    if work in _in_blocks:
        raise UsageError(
            "a block of the outbox is open on this already, and commits all of it; send inside "
            "that one, and use begin_nested() for what may be rolled back alone"
        )
    _in_blocks.add(work)


def leave(work: Session | Connection) -> None:
    """It is over."""
    _in_blocks.discard(work)


def _next_savepoint(connection: Connection) -> str:
    """The name that a savepoint is about to get: the event comes before SQLAlchemy makes it."""
    number: int = getattr(connection, "_Connection__savepoint_seq")  # noqa: B009 - mangled
    return f"sa_savepoint_{number + 1}"


def _roll_back(connection: Connection) -> None:
    try:
        connection.dialect.do_rollback(connection.connection)
    except Exception:  # noqa: BLE001 - it is lost; what was raised before matters
        connection.invalidate()


def _check_engine(engine: Engine) -> None:
    if engine.dialect.name == "sqlite" and isinstance(
        engine.pool, StaticPool | SingletonThreadPool
    ):
        raise UsageError(
            "a SQLite database in memory has one connection, or one for each thread, so that no "
            "check can look into it; use a file"
        )


def _is_autocommit(connection: Connection) -> bool:
    level = connection.get_execution_options().get("isolation_level")
    # What create_engine was given; SQLAlchemy has no public name for it.
    level = level or getattr(connection.dialect, "_on_connect_isolation_level", None)
    return level == "AUTOCOMMIT"


def _other_engine(what: str, seen: Engine, expected: Engine) -> UsageError:
    return UsageError(
        f"the {what} works on {seen!r} and the outbox on {expected!r}, whose transactions are not "
        f"the same; make the outbox with the {what}'s engine"
    )
