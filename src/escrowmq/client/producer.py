"""The asyncio producer."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Self, Unpack

import msgspec

from escrowmq.base.codes import Request
from escrowmq.base.message import Property
from escrowmq.client.checking import CheckAnswerer, DatabaseCheck
from escrowmq.client.client_settings import ClientOptions, parse_client_options
from escrowmq.client.closing import CloseTask
from escrowmq.client.core.message import Message, ReceivedMessage, snapshot_of
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.sending import Outcome, SendResult
from escrowmq.client.core.validation import check_group, check_topic
from escrowmq.client.core.verdicts import KnownOutcomes
from escrowmq.client.end_sender import EndSender
from escrowmq.client.ends_in_background import UnconfirmedEnds
from escrowmq.client.help_and_completion import KeywordOnly, SettingsSignature, TidyCompletion
from escrowmq.client.instance import ClientInstance
from escrowmq.client.producer_settings import (
    Listener,
    MessageFields,
    ProducerOptions,
    ProducerSettings,
    make_message,
    split_producer_settings,
)
from escrowmq.client.request_reply import WaitingRequests
from escrowmq.client.send_flow import SendDispatch
from escrowmq.client.tracing import Tracer, trace_topic
from escrowmq.client.transaction import Transaction
from escrowmq.client.unsettled_transactions import UnsettledTransactions, find_unsettled
from escrowmq.codec.recall_handle import decode_recall_handle
from escrowmq.errors import ClientClosed, EscrowMQError, UsageError

if TYPE_CHECKING:
    from types import TracebackType

    from escrowmq.client.lingering import LingeringSends
    from escrowmq.client.outbox_messages import MarkedMessages
    from escrowmq.client.portal import FinishCallback

_log = logging.getLogger(__name__)

INNER_GROUP: Final = "CLIENT_INNER_PRODUCER"
"""The group under which RocketMQ's clients always register; a broker uses it to find the client to
which it pushes a reply."""


class Producer(KeywordOnly, TidyCompletion):
    """Sends messages, alone or in transactions. Open it with `async with`, or await `open()`.

    >>> async def main():
    ...     async with escrowmq.aio.Producer(nameserver, group="orders") as producer:
    ...         sent = await producer.send("paid", b"order 1", tag="card", keys=["o-1"])
    ...         return sent.status.name
    >>> asyncio.run(main())
    'OK'

    `name_servers` is `host:port`, several separated by `;`; None means the environment variable
    NAMESRV_ADDR. All processes of one service share one `group`. Settings are those of
    `ProducerOptions` and `ClientOptions`."""

    __signature__ = SettingsSignature(ProducerOptions, ClientOptions)
    _INTERNAL = frozenset({
        "check_open", "dispatch", "instance", "lingering", "listener", "options", "settler",
        "try_send", "verdicts", "track_end", "wire_group",
    })  # fmt: skip

    unconfirmed_count = 0
    """Number of ENDs that no broker confirmed, whether the error was raised or only logged."""

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        group: str,
        instance: ClientInstance | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        check_group(group)
        self.options, connection = split_producer_settings(settings)
        self.group = group
        self._is_owner = instance is None
        self.instance = instance or ClientInstance(parse_client_options(name_servers, connection))
        self.wire_group = self.instance.options.with_namespace(group)
        self.dispatch = SendDispatch(self.instance, self.options, group=self.wire_group)
        watch = self.dispatch.interceptor_calls
        self.settler = EndSender(self.instance, timeout_ms=self.options.timeout_ms, watch=watch)
        self._replies = WaitingRequests(self.instance)
        self.verdicts = KnownOutcomes()
        """Known outcomes of transactions that brokers may ask about."""
        self._checks = CheckAnswerer(
            self.instance,
            self.options,
            group=self.wire_group,
            watch=watch,
            verdicts=self.verdicts,
        )
        if topic := trace_topic(self.options.trace):
            watch.tracer = Tracer(self.instance, topic, group=self.wire_group, role="PRODUCE")
        self.lingering = self._get_lingering()
        self._ends = UnconfirmedEnds()
        self._ending = CloseTask(self._close)
        self._has_checks = self.options.has_checks
        self._has_warned = False
        self._is_open = False
        self._is_closed = False

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open" if self._is_open else "not open yet"
        return f"<aio.Producer of group {self.group!r}, {state}>"

    # -- life --------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Open the producer. If it has checks, its group is registered at brokers now, so that they
        can send checks immediately. Servers that cannot be reached are retried in the
        background."""
        if self._is_closed:
            raise ClientClosed("the producer is closed; make a new one")
        if self._is_open:
            return self
        self._is_open = True
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise
        return self

    async def _open(self) -> None:
        instance = self.instance
        for name in self._groups_to_register():
            self._register_group(name)
        for topic in self.options.topics:
            instance.watch_topic(instance.options.with_namespace(topic))
        self._checks.open()
        self._replies.open()
        if self._is_owner:
            await instance.open()
        else:
            await instance.heartbeats.send_to_all()
        if self.dispatch.interceptor_calls.tracer is not None:
            self.dispatch.interceptor_calls.tracer.open()

    async def close(self) -> None:
        """Close the producer: send lingering messages, fail other calls in flight, unregister at
        the brokers. Calling it again does nothing, or waits for an earlier call."""
        self._is_closed = True
        await self._ending.wait()

    async def _close(self) -> None:
        if self.lingering is not None and self._is_open:
            await self.lingering.flush()
        await self._ends.wait_for_all()
        self._checks.close()
        self._replies.close()
        try:
            if self.dispatch.interceptor_calls.tracer is not None:
                await self.dispatch.interceptor_calls.tracer.close()
        finally:
            if self._is_owner:
                await self.instance.close()
        if not self._is_owner and self._is_open:
            for name in self._groups_to_register():
                await self.instance.heartbeats.remove_producer(name)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # -- sending -----------------------------------------------------------------------------

    async def send(
        self,
        topic: str | Message,
        body: bytes = b"",
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendResult:
        """Store one message; return where and how safely it is stored.

        Messages with the same `order_key` go to one queue, in the order in which they are awaited.
        `delay` and `deliver_at` (or `delay_level`) deliver later. Raises InvalidMessage before
        anything is sent; ResponseError if all brokers refuse; RequestTimeout when the time is over;
        SendFailed when every attempt failed; RouteMissing or NoNameServer if there is no broker to
        send to."""
        self.check_open()
        message = make_message(topic, body, fields)
        if self.lingering is not None:
            return await self.lingering.send(message, queue=queue, timeout_ms=timeout_ms)
        out = self.dispatch.prepare(message)
        _, result = await self.dispatch.send_prepared(
            message, out, queue=queue, timeout_ms=timeout_ms
        )
        return result

    def try_send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None,
        timeout_ms: int | None,
        finish: FinishCallback[SendResult],
    ) -> bool:
        """Start a send without a coroutine, if only the answer must be awaited; for blocking code.
        Return False, having done nothing, if that is impossible."""
        self.check_open()
        way = self.lingering or self.dispatch
        return way.try_send(message, queue=queue, timeout_ms=timeout_ms, finish=finish)

    async def flush(self) -> None:
        """Send lingering messages (`linger_ms`) now. Return when all of them are stored or have
        failed, and when the commits of outboxes so far are confirmed or have failed."""
        self.check_open()
        if self.lingering is not None:
            await self.lingering.flush()
        await self._ends.wait_for_all()

    async def send_many(
        self, messages: Sequence[Message], *, timeout_ms: int | None = None
    ) -> list[SendResult]:
        """Store many messages with few requests; the results are in the order of the messages.

        Messages with the same topic and order key are sent and stored together, up to
        `body_size_max` bytes at a time. Send delayed messages one by one."""
        self.check_open()
        return await self.dispatch.send_many(messages, timeout_ms)

    async def send_one_way(
        self, topic: str | Message, body: bytes = b"", **fields: Unpack[MessageFields]
    ) -> str:
        """Write a message to the network without waiting for an answer; return its id. It may be
        lost unnoticed. Raises RequestTimeout if the broker takes no data, and much waits for it."""
        self.check_open()
        return await self.dispatch.send_one_way(make_message(topic, body, fields))

    async def recall(self, topic: str, handle: str) -> str:
        """Cancel a delayed message before its time; return its id. The handle is the send result's
        `recall_handle`. The broker must allow it (recallMessageEnable)."""
        self.check_open()
        check_topic(topic)
        broker_name = decode_recall_handle(handle).broker_name
        wire_topic = self.instance.options.with_namespace(topic)
        await self.instance.queues_to_write(wire_topic)
        fields = {"producerGroup": self.wire_group, "topic": wire_topic, "recallHandle": handle}
        reply = await self.instance.ask(
            self.instance.address_of(broker_name),
            Request.RECALL_MESSAGE,
            fields,
            timeout_ms=self.options.timeout_ms,
        )
        return (reply.ext or {}).get("msgId", "")

    async def request(
        self,
        topic: str | Message,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> ReceivedMessage:
        """Send a message and wait for a consumer's reply. Raises ReplyTimeout if none comes in
        time, although the message is stored."""
        self.check_open()
        message = make_message(topic, body, fields)
        timeout_ms = timeout_ms or self.options.timeout_ms
        deadline = self.instance.now() + timeout_ms / 1000
        with self._replies.expect_reply() as waiting:
            extra = {
                Property.CORRELATION_ID: waiting.correlation_id,
                Property.REPLY_TO_CLIENT: self.instance.client_id,
                Property.TTL: str(timeout_ms),
            }
            out = self.dispatch.prepare(message, extra)
            await self.dispatch.send_prepared(message, out, timeout_ms=timeout_ms)
            left_s = deadline - self.instance.now()
            return await waiting.await_reply(left_s, topic=message.topic, timeout_ms=timeout_ms)

    async def reply(
        self, request: ReceivedMessage, body: bytes, **fields: Unpack[MessageFields]
    ) -> SendResult:
        """Reply to a message that was sent with `request`."""
        self.check_open()
        topic, extra = self._replies.reply_target(request)
        message = make_message(topic, body, fields)
        out = self.dispatch.prepare(message, extra, is_wrapped=True)
        _, result = await self.dispatch.send_prepared(message, out)
        return result

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
        """Return a transaction for `async with`: it commits when the block ends and rolls back when
        the block raises. Exceptions after `tx.database_decides()` leave it to the check-back.

        With a topic, its one message is stored, invisible, when the block begins. Without, send any
        number of messages inside with `tx.send`: all of them appear or none (EscrowMQ's brokers
        only). `checker` names the one of the producer's `checkers` that answers for it.
        `check_after` (seconds, or a timedelta) delays the first check: use it if the transaction
        takes longer than the brokers' transactionTimeOut (6 s)."""
        message = snapshot_of(make_message(topic, body, fields)) if topic is not None else None
        self._warn_without_check()
        return Transaction(self, message, checker=checker, check_after=check_after)

    async def send_in_transaction(self, message: Message, arg: object = None) -> SendResult:
        """Send with the producer's `listener`: its `execute(message, arg)` runs between the two
        phases, on another thread unless it is a coroutine function, and returns the outcome. If it
        raises, the outcome is unknown and the broker will ask."""
        listener = self.listener()
        tx = self.transaction(message)
        await tx.begin()
        try:
            outcome = Outcome(await self._checks.run_user_code(listener.execute, message, arg))
        except Exception:  # noqa: BLE001 - the user's code; logged, and the broker asks later
            _log.exception("the listener's execute() failed; the broker will ask for the outcome")
            outcome = Outcome.UNKNOWN
        await tx.settle(outcome)
        return msgspec.structs.replace(tx.results[0], outcome=outcome)

    async def commit(self, transaction_id: str) -> None:
        """Commit a detached transaction, of this or another process."""
        self.check_open()
        await self.settler.settle_by_id(transaction_id, Outcome.COMMIT)

    async def rollback(self, transaction_id: str) -> None:
        """Roll back a detached transaction, of this or another process."""
        self.check_open()
        await self.settler.settle_by_id(transaction_id, Outcome.ROLLBACK)

    def _get_lingering(self) -> LingeringSends | None:
        """Return the lingering sends, if the producer uses them."""
        if not self.options.linger_ms:
            return None
        from escrowmq.client.lingering import LingeringSends

        return LingeringSends(self.instance, self.dispatch, self.options)

    def _warn_without_check(self) -> None:
        if not self._has_checks and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "producer group %r has transactions and no check: if this process dies "
                    "during one, its outcome stays unknown; pass check= to the producer",
                self.group,
            )  # fmt: skip

    def _register_group(self, group: str) -> None:
        """Register the group at brokers with the next heartbeat."""
        self.instance.heartbeats.add_producer(group)
        if self._has_checks and not self.options.topics:
            self.instance.wants_all_brokers = True

    def _groups_to_register(self) -> list[str]:
        """Return the groups to register. A producer without checks does not register its group: a
        broker that asked it would wait for an answer that never comes, and count the check."""
        return [INNER_GROUP, self.wire_group] if self._has_checks else [INNER_GROUP]

    # -- for integrations --------------------------------------------------------------------

    @property
    def account(self) -> str:
        """The account that owns the messages, for brokers with access control; empty without
        credentials."""
        found = self.instance.options.credentials
        return found.access_key if found is not None else ""

    def add_database_check(
        self, check: DatabaseCheck, *, on_close: Callable[[], object] | None = None
    ) -> None:
        """Register a database that answers the checks of messages that have a marker. `check` gets
        the message and returns the outcome, or None if the marker belongs to another database.
        `on_close` is called when the producer is closed."""
        self._checks.databases[check] = on_close
        is_news = not self._has_checks
        self._has_checks = True
        if is_news and self._is_open:
            self._register_group(self.wire_group)
            self.instance.spawn(self._send_heartbeats())

    def remove_database_check(self, check: DatabaseCheck) -> None:
        """Unregister a database that was registered with `add_database_check`."""
        self._checks.databases.pop(check, None)

    def marked_messages(self, database: str) -> MarkedMessages:
        """Make messages whose outcome is decided by a row in a database. Callable from any
        thread."""
        from escrowmq.client.outbox_messages import MarkedMessages  # which few programs need

        if self._is_closed:
            raise ClientClosed("the producer is closed; make a new one")
        return MarkedMessages(self, database=database, key=self.dispatch.new_id())

    def track_end(self, future: asyncio.Future[None]) -> asyncio.Future[None]:
        """Make `flush` and closing the producer wait for an END of an outbox's transaction. Returns
        its argument."""
        return self._ends.add(future)

    async def unsettled(self) -> UnsettledTransactions:
        """Return the transactions that brokers may still ask about, also after an operator resumes
        them, and the brokers asked: all masters that the name server knows. Raises if one of them
        cannot be asked. RocketMQ's brokers cannot list their pending transactions."""
        return await find_unsettled(self.instance, self.group)

    async def unsettled_keys(self) -> set[str]:
        """Return the keys of this group's transactions that a broker may still ask about, also
        after an operator resumes them. RocketMQ's brokers cannot list theirs."""
        return (await self.unsettled()).keys

    async def _send_heartbeats(self) -> None:
        try:
            await self.instance.refresh_brokers()
            await self.instance.heartbeats.send_to_all()
        except EscrowMQError as error:
            _log.info(
                "brokers learn only with the next heartbeat that this producer answers checks: %s",
                error,
            )

    # -- for this room -----------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise ClientClosed, ClientForked or WrongThread if the producer cannot be used by the
        caller."""
        if self._is_closed:
            raise ClientClosed("the producer is closed; make a new one")
        if not self._is_open:
            raise ClientClosed("the producer is not open; use `async with`, or await its open()")
        self.instance.check_usable()

    def listener(self) -> Listener:
        """Return the listener; raises UsageError if there is none."""
        if self.options.listener is None:
            raise UsageError("the producer has no listener; pass listener= to its constructor")
        return self.options.listener
