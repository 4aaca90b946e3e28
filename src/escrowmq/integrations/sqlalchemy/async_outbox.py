"""The outbox for SQLAlchemy's asyncio sessions and connections."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from typing import Any, Unpack

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
)
from sqlalchemy.orm import Session
from sqlalchemy.util import await_only, greenlet_spawn

from escrowmq.client.core.message import Message, snapshot_of
from escrowmq.client.outbox_messages import MarkedMessages
from escrowmq.client.producer import Producer
from escrowmq.client.producer_settings import MessageFields, make_message
from escrowmq.errors import UsageError
from escrowmq.integrations.dbapi.finishing import finish
from escrowmq.integrations.outbox.circuit import KEPT_MAX_DEFAULT
from escrowmq.integrations.outbox.failures import block_ended_error
from escrowmq.integrations.outbox.hand_over import HandOver
from escrowmq.integrations.outbox.steps import Rows, SqlStep
from escrowmq.integrations.outbox.tables import SqlFamily
from escrowmq.integrations.outbox_base import AsyncOutboxBase, make_circuit, new_database_name
from escrowmq.integrations.sqlalchemy.hooks import (
    ConnectionHooks,
    OpenBlock,
    enter_block,
    leave_block,
)


class _GreenletMessages:
    """Messages that are being stored, for listeners of SQLAlchemy's events: these run in a
    greenlet, in which a plain function may await."""

    def __init__(self, inner: MarkedMessages) -> None:
        self._inner = inner
        self.key = inner.key
        self.validate = inner.validate
        self.leave_to_marker = inner.leave_to_marker
        self.report_commit = inner.report_commit
        self.abandon = inner.abandon

    @property
    def broker_names(self) -> Collection[str]:
        return self._inner.broker_names

    def start_storing(self, messages: Sequence[Message]) -> None:
        self._inner.start_storing(messages)

    def wait_until_stored(self) -> None:
        await_only(self._inner.wait_until_stored())


class _AsyncDatabase:
    """A database that is reached through an asyncio engine. If the caller is cancelled during a
    step, the step is finished: SQLAlchemy would close the connection in the middle, and aiosqlite,
    closed so on a busy machine, can keep `asyncio.run` from ever ending."""

    def __init__(self, engine: AsyncEngine, hooks: ConnectionHooks) -> None:
        self._engine = engine
        self._hooks = hooks

    async def find_family(self) -> SqlFamily:
        return self._hooks.family

    async def execute(self, step: SqlStep) -> Rows:
        return await finish(greenlet_spawn(self._hooks.execute, step))

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Callable[[SqlStep], Awaitable[Rows]]]:
        async with self._engine.connect() as connection:
            await finish(connection.run_sync(self._hooks.begin_own_transaction))
            yield lambda step: finish(connection.run_sync(self._hooks.execute_in_transaction, step))
            await finish(connection.commit())


class AsyncTransaction:
    """Made by `AsyncOutbox.transaction`; its block commits, or rolls back when it raises."""

    def __init__(self, outbox: AsyncOutbox, work: AsyncSession | AsyncConnection) -> None:
        self._outbox = outbox
        self._work = work
        self._is_over = False

    async def send(
        self, topic: str | Message, body: bytes = b"", **fields: Unpack[MessageFields]
    ) -> None:
        """Send a message when the transaction commits. If a savepoint is rolled back, its messages
        are not sent."""
        if self._is_over:
            raise block_ended_error()
        await self._outbox.send(self._work, topic, body, **fields)

    def end_sends(self) -> None:
        """Refuse further sends."""
        self._is_over = True


class AsyncOutbox(AsyncOutboxBase):
    """An `Outbox` for an `escrowmq.aio.Producer` and an `AsyncEngine`."""

    def __init__(
        self,
        producer: Producer,
        engine: AsyncEngine,
        *,
        schema: str = "",
        when_away: str = "refuse",
        kept_max: int = KEPT_MAX_DEFAULT,
    ) -> None:
        seen: tuple[object, object] = producer, engine
        if not isinstance(seen[0], Producer) or not isinstance(seen[1], AsyncEngine):
            raise UsageError(
                f"AsyncOutbox({type(producer).__name__}, {type(engine).__name__}): an "
                "escrowmq.aio.Producer and an AsyncEngine are expected; Outbox takes "
                "blocking ones"
            )
        circuit = make_circuit(when_away, kept_max)
        course = HandOver(
            self._make_messages,
            new_name=new_database_name,
            way_out=circuit,
            on_kept=self._wake_relay,
        )
        self._hooks = ConnectionHooks(engine.sync_engine, course, schema=schema)
        try:
            super().__init__(producer, _AsyncDatabase(engine, self._hooks), circuit)
        except BaseException:
            self._hooks.close()
            raise

    @contextlib.asynccontextmanager
    async def transaction(
        self, work: AsyncSession | async_scoped_session[Any] | AsyncConnection
    ) -> AsyncIterator[AsyncTransaction]:
        """Return a block in which messages are sent with a session or a connection. It commits at
        its end, and rolls back when it raises. An `async_scoped_session` means the session that it
        has when the block begins."""
        work = _resolve_work(work)
        plain = _sync_object(work)
        block = OpenBlock(self._hooks)
        enter_block(plain, block)
        tx = AsyncTransaction(self, work)
        try:
            if isinstance(work, AsyncConnection):
                if not work.in_transaction():
                    await work.begin()
                await work.run_sync(self._hooks.check_connection)
            yield tx
            tx.end_sends()
            if isinstance(work, AsyncConnection):
                await work.run_sync(self._hooks.commit_block)
            else:
                await work.commit()
        except BaseException:
            with contextlib.suppress(Exception):  # the connection is lost; the exception matters
                await work.rollback()
            raise
        finally:
            tx.end_sends()
            leave_block(plain)

    def send(
        self,
        work: AsyncSession | async_scoped_session[Any] | AsyncConnection,
        topic: str | Message,
        body: bytes = b"",
        **fields: Unpack[MessageFields],
    ) -> Coroutine[Any, Any, None]:
        """Send a message when the transaction of the session or the connection commits, whichever
        code commits it; await it. The commit is reported to the brokers immediately. For a
        connection outside a block of `transaction`, it is reported when the connection is
        closed."""
        # Not a coroutine function: if it is not awaited, the error would not be reported.
        found = _resolve_work(work)
        return found.run_sync(self._add_message, snapshot_of(make_message(topic, body, fields)))

    def send_nowait(
        self,
        work: Session | Connection,
        topic: str | Message,
        body: bytes = b"",
        **fields: Unpack[MessageFields],
    ) -> None:
        """Send a message like `send`, where awaiting is impossible: in listeners of SQLAlchemy's
        events, and in functions run by `run_sync`. They get the synchronous session, or connection,
        inside the asyncio one."""
        seen: object = work
        if not isinstance(seen, Session | Connection):
            raise UsageError(
                f"send_nowait was given a {type(seen).__name__}; a listener's Session, or "
                "Connection, is expected. For those of asyncio, await send()"
            )
        self._add_message(work, make_message(topic, body, fields))

    def _refuse_sends(self) -> None:
        self._hooks.close()

    def _make_messages(self, database: str) -> _GreenletMessages:
        return _GreenletMessages(self._producer.marked_messages(database))

    def _add_message(self, work: Session | Connection, message: Message) -> None:
        connection = self._hooks.connection_of(work) if isinstance(work, Session) else work
        self._hooks.add_message(connection, message)


def _resolve_work(
    work: AsyncSession | async_scoped_session[Any] | AsyncConnection,
) -> AsyncSession | AsyncConnection:
    """Return the session or connection to use."""
    found: AsyncSession | AsyncConnection = (
        work() if isinstance(work, async_scoped_session) else work
    )
    seen: object = found
    if not isinstance(seen, AsyncSession | AsyncConnection):
        raise UsageError(
            f"the outbox was given a {type(seen).__name__}; an AsyncSession, an "
            "async_scoped_session or an AsyncConnection is expected. In a listener of "
            "SQLAlchemy's events, use send_nowait(session, ...); Outbox takes blocking ones"
        )
    return found


def _sync_object(work: AsyncSession | AsyncConnection) -> Session | Connection:
    if isinstance(work, AsyncSession):
        return work.sync_session
    if work.sync_connection is None:
        raise UsageError("the connection is not open; use it with `async with`, or await start()")
    return work.sync_connection
