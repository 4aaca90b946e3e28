"""The outbox for SQLAlchemy's sessions and connections, in blocking code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Unpack

from sqlalchemy import Connection, Engine
from sqlalchemy.orm import Session, scoped_session

from escrowmq.client.blocking.producer import Producer
from escrowmq.client.core.message import Message
from escrowmq.client.producer_settings import MessageFields, make_message
from escrowmq.errors import UsageError
from escrowmq.integrations.outbox.circuit import KEPT_MAX_DEFAULT
from escrowmq.integrations.outbox.failures import block_ended_error
from escrowmq.integrations.outbox.hand_over import HandOver
from escrowmq.integrations.outbox_base import OutboxBase, make_circuit, new_database_name
from escrowmq.integrations.sqlalchemy.hooks import (
    ConnectionHooks,
    OpenBlock,
    enter_block,
    leave_block,
)


class Transaction:
    """Made by `Outbox.transaction`; its block commits, or rolls back when it raises."""

    def __init__(self, outbox: Outbox, work: Session | Connection) -> None:
        self._outbox = outbox
        self._work = work
        self._is_over = False

    def send(
        self, topic: str | Message, body: bytes = b"", **fields: Unpack[MessageFields]
    ) -> None:
        """Send a message when the transaction commits. If a savepoint is rolled back, its messages
        are not sent."""
        if self._is_over:
            raise block_ended_error()
        self._outbox.send(self._work, topic, body, **fields)

    def end_sends(self) -> None:
        """Refuse further sends."""
        self._is_over = True


class Outbox(OutboxBase):
    """Sends messages with the transactions of an engine, and answers checks from its database: you
    need not write a check. Make one per process, right after the producer; every process of the
    producer's group needs one.

    `engine` is the one that your sessions use, not that of a read replica. Checks borrow a
    connection from it for a moment. `schema` is that of both tables, if connections would not find
    them by their names alone, or would find several."""

    def __init__(
        self,
        producer: Producer,
        engine: Engine,
        *,
        schema: str = "",
        when_away: str = "refuse",
        kept_max: int = KEPT_MAX_DEFAULT,
    ) -> None:
        seen: tuple[object, object] = producer, engine
        if not isinstance(seen[0], Producer) or not isinstance(seen[1], Engine):
            raise UsageError(
                f"Outbox({type(producer).__name__}, {type(engine).__name__}): an escrowmq.Producer "
                "and an Engine are expected; AsyncOutbox takes those for asyncio"
            )
        circuit = make_circuit(when_away, kept_max)
        course = HandOver(
            producer.marked_messages,
            new_name=new_database_name,
            way_out=circuit,
            on_kept=self._wake_relay,
        )
        self._hooks = ConnectionHooks(engine, course, schema=schema)
        try:
            super().__init__(producer, self._hooks, circuit)
        except BaseException:
            self._hooks.close()
            raise

    @contextlib.contextmanager
    def transaction(
        self, work: Session | scoped_session[Any] | Connection
    ) -> Iterator[Transaction]:
        """Return a block in which messages are sent with a session or a connection. It commits at
        its end, and rolls back when it raises. A `scoped_session` means the session that it has
        when the block begins."""
        work = _resolve_work(work)
        block = OpenBlock(self._hooks)
        enter_block(work, block)
        tx = Transaction(self, work)
        try:
            if isinstance(work, Connection):
                if not work.in_transaction():
                    work.begin()
                self._hooks.check_connection(work)
            yield tx
            tx.end_sends()
            if isinstance(work, Connection):
                self._hooks.commit_block(work)
            else:
                work.commit()
        except BaseException:
            with contextlib.suppress(Exception):  # the connection is lost; the exception matters
                work.rollback()
            raise
        finally:
            tx.end_sends()
            leave_block(work)

    def send(
        self,
        work: Session | scoped_session[Any] | Connection,
        topic: str | Message,
        body: bytes = b"",
        **fields: Unpack[MessageFields],
    ) -> None:
        """Send a message when the transaction of the session or the connection commits, whichever
        code commits it. The commit is reported to the brokers immediately. For a connection outside
        a block of `transaction`, it is reported when the connection is closed."""
        message = make_message(topic, body, fields)
        work = _resolve_work(work)
        connection = self._hooks.connection_of(work) if isinstance(work, Session) else work
        self._hooks.add_message(connection, message)

    def _refuse_sends(self) -> None:
        self._hooks.close()


def _resolve_work(work: Session | scoped_session[Any] | Connection) -> Session | Connection:
    """Return the session or connection to use."""
    found: Session | Connection = work() if isinstance(work, scoped_session) else work
    seen: object = found
    if not isinstance(seen, Session | Connection):
        raise UsageError(
            f"the outbox was given a {type(seen).__name__}; a Session, a scoped_session or a "
            "Connection is expected, and AsyncOutbox takes those of asyncio"
        )
    return found
