"""Handlers that process each message once, even if it is delivered several times."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from escrowmq.client.core.callables import is_coroutine
from escrowmq.client.delivery import HeldMessage
from escrowmq.errors import UsageError
from escrowmq.integrations.outbox import handled_once, tables
from escrowmq.integrations.outbox.handled_once import Key, RecordOptions, message_id
from escrowmq.integrations.sqlalchemy.hooks import refuse_autocommit

_log = logging.getLogger(__name__)

Handler = Callable[[Any], Any]


def consume_once(
    sessions: Callable[[], Any], *, key: Key = message_id, group: str = "", schema: str = ""
) -> Callable[[Callable[[Any, Any], Any]], Handler]:
    """Make a consumer's handler from a function that takes a message and a session: a message that
    was handled before does not reach it. This is recorded in the session's transaction, which
    commits when the function returns and rolls back when it raises.

    `sessions` makes sessions (a `sessionmaker`); for a coroutine function, asynchronous ones. `key`
    returns the identity of a message, if its id is not enough: each send has an id of its own.
    `group` is the consumer group, if not the message's own. `schema` is the one given to the outbox
    for its tables. With `batch_max`, the function gets the list of new messages."""

    how = RecordOptions(key, group, schema)

    def decorate(work: Callable[[Any, Any], Any]) -> Handler:
        handled_once.check_function(work)
        if is_coroutine(work):

            async def handle_async(given: Any) -> None:  # noqa: ANN401
                with handled_once.AcksAfterCommit(given) as acks:
                    async with sessions() as session, session.begin():
                        fresh = await session.run_sync(_new_messages, given, how)
                        if fresh:
                            await work(fresh, session)
                            await session.run_sync(_forget_retried, fresh, how)
                await acks.acknowledge_async()

            return handled_once.with_name_of(handle_async, work)

        def handle(given: Any) -> None:  # noqa: ANN401
            acks = handled_once.AcksAfterCommit(given)
            with acks, sessions() as session, session.begin():
                fresh = _new_messages(session, given, how)
                if fresh:
                    handled_once.check_result(work, work(fresh, session))
                    _forget_retried(session, fresh, how)
            acks.acknowledge()

        return handled_once.with_name_of(handle, work)

    return decorate


def _new_messages(session: Session, given: Any, how: RecordOptions) -> Any:  # noqa: ANN401
    """Return those of the given messages that were not handled before, and record them."""
    if not isinstance(session, Session):
        raise UsageError(
            f"consume_once was given a maker of {type(session).__name__}; a sessionmaker is "
            "expected, and an async_sessionmaker for a coroutine function"
        )
    connection = session.connection()
    refuse_autocommit(connection)
    found: Any = None
    if isinstance(given, list):
        found = [each for each in given if _is_new(connection, each, how)]
    elif _is_new(connection, given, how):
        found = given
    if found:
        connection.exec_driver_sql(handled_once.MAKE_SAVEPOINT.text)
    return found


def _forget_retried(session: Session, fresh: Any, how: RecordOptions) -> None:  # noqa: ANN401
    """Remove the records of messages that the work retried or rejected."""
    messages = fresh if isinstance(fresh, list) else [fresh]
    try:
        connection = session.connection()
        connection.exec_driver_sql(handled_once.RELEASE_SAVEPOINT.text)
    except SQLAlchemyError as error:  # of a session, too, whose transaction has ended
        raise handled_once.rolled_back_error() from error
    family = tables.sql_family_of(connection.dialect.name)
    for statement in handled_once.forget_retried(family, messages, how):
        text = statement.in_paramstyle(connection.dialect.paramstyle)
        connection.exec_driver_sql(text, statement.values)


def _is_new(connection: Connection, message: HeldMessage, how: RecordOptions) -> bool:
    dialect = connection.dialect
    statement = handled_once.record_handled(tables.sql_family_of(dialect.name), message, how)
    text = statement.in_paramstyle(dialect.paramstyle)
    is_new = connection.exec_driver_sql(text, statement.values).rowcount == 1
    if not is_new:
        _log.info("message %s of %r was handled before", message.message_id, message.topic)
    return is_new
