"""Handlers that process each message once, even if it is delivered several times."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

from escrowmq.client.core.callables import is_coroutine
from escrowmq.client.delivery import HeldMessage
from escrowmq.integrations.dbapi import drivers
from escrowmq.integrations.dbapi.async_outbox import transaction_on
from escrowmq.integrations.dbapi.drivers import AWAITED, PLAIN, find_driver
from escrowmq.integrations.outbox import handled_once
from escrowmq.integrations.outbox.handled_once import Key, RecordOptions, message_id

_log = logging.getLogger(__name__)

Handler = Callable[[Any], Any]


def consume_once(
    connect: Callable[[], Any], *, key: Key = message_id, group: str = "", schema: str = ""
) -> Callable[[Callable[[Any, Any], Any]], Handler]:
    """Make a consumer's handler from a function that takes a message and a connection: a message
    that was handled before does not reach it. This is recorded in the connection's transaction,
    which commits when the function returns and rolls back when it raises. Do not commit in it.

    `connect` makes a connection, which is closed after the function; for a coroutine function, it
    is awaited. `key` returns the identity of a message, if its id is not enough: each send has an
    id of its own. `group` is the consumer group, if not the message's own. `schema` is the one
    given to the outbox for its tables. With `batch_max`, the function gets the list of new
    messages."""

    how = RecordOptions(key, group, schema)

    def decorate(work: Callable[[Any, Any], Any]) -> Handler:
        handled_once.check_function(work)
        if is_coroutine(work):

            async def handle_async(given: Any) -> None:  # noqa: ANN401
                with handled_once.AcksAfterCommit(given) as acks:
                    connection = await connect()
                    try:
                        await _run_once_async(connection, given, work, how)
                    finally:
                        await connection.close()
                await acks.acknowledge_async()

            return handled_once.with_name_of(handle_async, work)

        def handle(given: Any) -> None:  # noqa: ANN401
            with (
                handled_once.AcksAfterCommit(given) as acks,
                contextlib.closing(connect()) as connection,
            ):
                _run_once(connection, given, work, how)
            acks.acknowledge()

        return handled_once.with_name_of(handle, work)

    return decorate


async def _run_once_async(
    connection: Any,  # noqa: ANN401
    given: Any,  # noqa: ANN401
    work: Callable[[Any, Any], Any],
    how: RecordOptions,
) -> None:
    transaction = transaction_on(connection)
    await transaction.begin()
    family = find_driver(connection, AWAITED)[1].family
    fresh = []
    for each in _as_list(given):
        note = handled_once.record_handled(family, each, how)
        if _is_new(await transaction.count_changed(note), each):
            fresh.append(each)
    if fresh:
        await transaction.execute(handled_once.MAKE_SAVEPOINT)
        await work(fresh if isinstance(given, list) else fresh[0], connection)
        try:
            await transaction.execute(handled_once.RELEASE_SAVEPOINT)
        except Exception as error:
            raise handled_once.rolled_back_error() from error
    for statement in handled_once.forget_retried(family, fresh, how):
        await transaction.execute(statement)
    await transaction.commit()


def _run_once(
    connection: Any,  # noqa: ANN401
    given: Any,  # noqa: ANN401
    work: Callable[[Any, Any], Any],
    how: RecordOptions,
) -> None:
    _, driver = find_driver(connection, PLAIN)
    drivers.begin_transaction(connection, driver)
    fresh = []
    for each in _as_list(given):
        note = handled_once.record_handled(driver.family, each, how)
        if _is_new(drivers.execute_on(connection, driver, note).rowcount, each):
            fresh.append(each)
    if fresh:
        drivers.execute_on(connection, driver, handled_once.MAKE_SAVEPOINT)
        result = work(fresh if isinstance(given, list) else fresh[0], connection)
        handled_once.check_result(work, result)
        try:
            drivers.execute_on(connection, driver, handled_once.RELEASE_SAVEPOINT)
        except Exception as error:
            raise handled_once.rolled_back_error() from error
    for statement in handled_once.forget_retried(driver.family, fresh, how):
        drivers.execute_on(connection, driver, statement)
    connection.commit()


def _as_list(given: Any) -> list[HeldMessage]:  # noqa: ANN401
    return given if isinstance(given, list) else [given]


def _is_new(changed_count: int, message: HeldMessage) -> bool:
    if changed_count != 1:
        _log.info("message %s of %r was handled before", message.message_id, message.topic)
    return changed_count == 1
