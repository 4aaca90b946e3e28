"""Handlers that process each message once, even if it is delivered several times."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

from django.db import DEFAULT_DB_ALIAS, close_old_connections, connections, transaction

from escrowmq.client.core.callables import is_coroutine
from escrowmq.client.delivery import HeldMessage
from escrowmq.errors import UsageError
from escrowmq.integrations.django.outbox import execute_on
from escrowmq.integrations.outbox import handled_once, tables
from escrowmq.integrations.outbox.handled_once import Key, RecordOptions, message_id

_log = logging.getLogger(__name__)

Handler = Callable[[Any], Any]


def consume_once(
    *, using: str = DEFAULT_DB_ALIAS, key: Key = message_id, group: str = ""
) -> Callable[[Callable[[Any], Any]], Handler]:
    """Make a consumer's handler from a function that takes a message: one that was handled before
    does not reach it. This is recorded in the transaction (`atomic`) in which the function runs.
    Connections that the database has cut are replaced before and after it, as Django does for
    requests.

    `key` returns the identity of a message, if its id is not enough: each send has an id of its
    own. `group` is the consumer group, if not the message's own. With `batch_max`, the function
    gets the list of new messages."""

    how = RecordOptions(key, group)

    def decorate(work: Callable[[Any], Any]) -> Handler:
        handled_once.check_function(work)
        if is_coroutine(work):
            raise UsageError(
                f"{work!r} is a coroutine function, and Django's transactions are not "
                "awaited; make it a plain function, for an escrowmq.Consumer"
            )

        def handle(given: Any) -> None:  # noqa: ANN401
            close_old_connections()
            try:
                with handled_once.AcksAfterCommit(given) as acks, transaction.atomic(using=using):
                    messages = given if isinstance(given, list) else [given]
                    fresh = [each for each in messages if _is_new(each, using, how)]
                    if fresh:
                        with _require_same_transaction(using):
                            result = work(fresh if isinstance(given, list) else fresh[0])
                            handled_once.check_result(work, result)
                    family = tables.sql_family_of(connections[using].vendor)
                    for statement in handled_once.forget_retried(family, fresh, how):
                        execute_on(connections[using], statement)
                acks.acknowledge()
            finally:
                close_old_connections()

        return handled_once.with_name_of(handle, work)

    return decorate


@contextlib.contextmanager
def _require_same_transaction(using: str) -> Iterator[None]:
    """Raise MarkerNotWritten if the transaction in which this block begins ends inside it."""
    execute_on(connections[using], handled_once.MAKE_SAVEPOINT)
    yield
    try:
        execute_on(connections[using], handled_once.RELEASE_SAVEPOINT)
    except Exception as error:
        raise handled_once.rolled_back_error() from error


def _is_new(message: HeldMessage, using: str, how: RecordOptions) -> bool:
    connection = connections[using]
    family = tables.sql_family_of(connection.vendor)
    ((changed_count,),) = execute_on(connection, handled_once.record_handled(family, message, how))
    if changed_count != 1:
        _log.info("message %s of %r was handled before", message.message_id, message.topic)
    return changed_count == 1
