"""The blocking producer."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Unpack

import msgspec

from escrowmq.client import producer as engine
from escrowmq.client.blocking.face import BlockingClient, shorten_tracebacks
from escrowmq.client.blocking.transaction import Transaction
from escrowmq.client.checking import DatabaseCheck
from escrowmq.client.client_settings import ClientOptions
from escrowmq.client.core.message import Message, ReceivedMessage
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.sending import Outcome, SendResult
from escrowmq.client.help_and_completion import KeywordOnly, SettingsSignature
from escrowmq.client.portal import FinishCallback
from escrowmq.client.producer_settings import (
    MessageFields,
    ProducerOptions,
    ProducerSettings,
    make_message,
)
from escrowmq.client.unsettled_transactions import UnsettledTransactions
from escrowmq.errors import EscrowMQError

if TYPE_CHECKING:
    from escrowmq.client.blocking.outbox_messages import MarkedMessages

_log = logging.getLogger(__name__)


@shorten_tracebacks(but={"send"})
class Producer(KeywordOnly, BlockingClient[engine.Producer]):
    """Sends messages, alone or in transactions, from any thread. It is open once it is made; close
    it, or use it with `with`.

    >>> with escrowmq.Producer(nameserver, group="orders") as producer:
    ...     sent = producer.send("paid", b"order 1", tag="card", keys=["o-1"])
    >>> sent.status
    <SendStatus.OK: 0>

    `name_servers` is `host:port`, several separated by `;`; None means the environment variable
    NAMESRV_ADDR. All processes of one service share one `group`. Settings are those of
    `ProducerOptions` and `ClientOptions`. Checks that are plain functions run on threads; coroutine
    functions and interceptors run on the client's own event loop, which they must not block."""

    __signature__ = SettingsSignature(ProducerOptions, ClientOptions)

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        group: str,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        self._inner = engine.Producer(name_servers, group=group, **settings)
        self.group = group
        self._is_closed = False
        self._portal = self._join_event_loop()
        try:
            self._portal.call(self._inner.open())
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<Producer of group {self.group!r}, {'closed' if self._is_closed else 'open'}>"

    @property
    def unconfirmed_count(self) -> int:
        """Number of ENDs that no broker confirmed, whether the error was raised or only logged."""
        return self._inner.unconfirmed_count

    # -- sending -----------------------------------------------------------------------------

    def send(
        self,
        topic: str | Message,
        body: bytes = b"",
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendResult:
        """Store one message; return where and how safely it is stored.

        Messages with the same `order_key` go to one queue, in the order in which they are sent.
        `delay` and `deliver_at` (or `delay_level`) deliver later. Raises InvalidMessage before
        anything is sent; ResponseError if all brokers refuse; RequestTimeout when the time is over;
        SendFailed when every attempt failed; RouteMissing or NoNameServer if there is no broker to
        send to.

        >>> producer.send("paid", b"order 2", order_key="customer 7").queue.topic
        'paid'
        """
        inner = self._inner

        def try_send(finish: FinishCallback[SendResult]) -> bool:
            return inner.try_send(message, queue=queue, timeout_ms=timeout_ms, finish=finish)

        try:
            message = make_message(topic, body, fields)
            return self._portal.call_without_task(
                try_send, lambda: inner.send(message, queue=queue, timeout_ms=timeout_ms)
            )
        except EscrowMQError as error:
            raise error.with_traceback(None)  # noqa: B904 - itself, without what is inside

    def flush(self) -> None:
        """Send lingering messages (`linger_ms`) now. Return when all of them are stored or have
        failed, and when the commits of outboxes so far are confirmed or have failed.

        >>> with escrowmq.Producer(nameserver, group="orders", linger_ms=20) as lingering:
        ...     lingering.flush()
        """
        self._portal.call(self._inner.flush())

    def send_many(
        self, messages: Sequence[Message], *, timeout_ms: int | None = None
    ) -> list[SendResult]:
        """Store many messages with few requests; the results are in the order of the messages.

        Messages with the same topic and order key are sent and stored together, up to
        `body_size_max` bytes at a time. Send delayed messages one by one.

        >>> orders = [escrowmq.Message("paid", f"order {n}".encode()) for n in range(3)]
        >>> len(producer.send_many(orders))
        3
        """
        return self._portal.call(self._inner.send_many(messages, timeout_ms=timeout_ms))

    def send_one_way(
        self, topic: str | Message, body: bytes = b"", **fields: Unpack[MessageFields]
    ) -> str:
        """Write a message to the network without waiting for an answer; return its id. It may be
        lost unnoticed. Raises RequestTimeout if the broker takes no data, and much waits for it."""
        return self._portal.call(self._inner.send_one_way(topic, body, **fields))

    def recall(self, topic: str, handle: str) -> str:
        """Cancel a delayed message before its time; return its id. The handle is the send result's
        `recall_handle`. The broker must allow it (recallMessageEnable)."""
        return self._portal.call(self._inner.recall(topic, handle))

    def request(
        self,
        topic: str | Message,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> ReceivedMessage:
        """Send a message and wait for a consumer's reply. Raises ReplyTimeout if none comes in
        time, although the message is stored."""
        return self._portal.call(self._inner.request(topic, body, timeout_ms=timeout_ms, **fields))

    def reply(
        self, request: ReceivedMessage, body: bytes, **fields: Unpack[MessageFields]
    ) -> SendResult:
        """Reply to a message that was sent with `request`."""
        return self._portal.call(self._inner.reply(request, body, **fields))

    # -- transactions ------------------------------------------------------------------------

    def transaction(
        self,
        topic: str | Message | None = None,
        body: bytes = b"",
        *,
        checker: str = "",
        check_after: dt.timedelta | float | None = None,
        **fields: Unpack[MessageFields],
    ) -> Transaction:
        """Return a transaction for `with`: it commits when the block ends and rolls back when the
        block raises. Exceptions after `tx.database_decides()` leave it to the check-back.

        With a topic, its one message is stored, invisible, when the block begins. Without, send any
        number of messages inside with `tx.send`: all of them appear or none (EscrowMQ's brokers
        only). `checker` names the one of the producer's `checkers` that answers for it.
        `check_after` (seconds, or a timedelta) delays the first check: use it if the transaction
        takes longer than the brokers' transactionTimeOut (6 s).

        >>> with producer.transaction("paid", b"order 3", keys=["o-3"], check_after=60) as tx:
        ...     pass  # change the database here
        ...     tx.database_decides()
        ...     pass  # commit it here
        >>> with producer.transaction() as tx:
        ...     sent = tx.send("paid", b"order 4")
        ...     sent = tx.send("stock", b"one less")
        """
        inner = self._inner.transaction(
            topic, body, checker=checker, check_after=check_after, **fields
        )
        return Transaction(self._portal, inner)

    def send_in_transaction(self, message: Message, arg: object = None) -> SendResult:
        """Send with the producer's `listener`: its `execute(message, arg)` runs here, between the
        two phases, and returns the outcome. If it raises, the outcome is unknown and the broker
        will ask."""
        listener = self._inner.listener()
        tx = self.transaction(message).begin()
        try:
            outcome = Outcome(listener.execute(message, arg))
        except Exception:  # noqa: BLE001 - the user's code; logged, and the broker asks later
            _log.exception("the listener's execute() failed; the broker will ask for the outcome")
            outcome = Outcome.UNKNOWN
        tx.settle(outcome)
        return msgspec.structs.replace(tx.results[0], outcome=outcome)

    def commit(self, transaction_id: str) -> None:
        """Commit a detached transaction, of this or another process.

        >>> with producer.transaction("paid", b"order 5") as tx:
        ...     transaction_id = tx.detach()
        >>> producer.commit(transaction_id)
        """
        self._portal.call(self._inner.commit(transaction_id))

    def rollback(self, transaction_id: str) -> None:
        """Roll back a detached transaction, of this or another process."""
        self._portal.call(self._inner.rollback(transaction_id))

    # -- for integrations --------------------------------------------------------------------

    @property
    def account(self) -> str:
        """The account that owns the messages, for brokers with access control; empty without
        credentials."""
        return self._inner.account

    def add_database_check(
        self, check: DatabaseCheck, *, on_close: Callable[[], object] | None = None
    ) -> None:
        """Register a database that answers the checks of messages that have a marker; plain
        functions run on threads of their own. `on_close` is called when the producer is closed."""

        async def register() -> None:
            self._inner.add_database_check(check, on_close=on_close)

        self._portal.call(register())

    def remove_database_check(self, check: DatabaseCheck) -> None:
        """Unregister a database that was registered with `add_database_check`."""
        if not self._is_closed:
            self._portal.post(lambda: self._inner.remove_database_check(check))

    def marked_messages(self, database: str) -> MarkedMessages:
        """Make messages whose outcome is decided by a row in a database."""
        from escrowmq.client.blocking.outbox_messages import (
            MarkedMessages,  # which few programs need
        )

        return MarkedMessages(self._portal, self._inner.marked_messages(database))

    def unsettled(self) -> UnsettledTransactions:
        """Return the transactions that brokers may still ask about, and those brokers."""
        return self._portal.call(self._inner.unsettled())

    def unsettled_keys(self) -> set[str]:
        """Return the keys of this group's transactions that a broker may still ask about."""
        return self._portal.call(self._inner.unsettled_keys())
