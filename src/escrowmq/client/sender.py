"""Sends one message: makes the attempts that `core/send_attempts` decides on."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Sequence

from escrowmq.base.codes import Response
from escrowmq.base.command import Command
from escrowmq.client.connection import Connection
from escrowmq.client.core.dialogue import Done
from escrowmq.client.core.queue_choice import BrokerFaults, QueueChooser, queue_of_key
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.send_attempts import SendAnswer, SendAttempts, SendRequest, SendRules
from escrowmq.client.core.send_retry import may_have_new_master
from escrowmq.client.core.sending import OutgoingMessage, send_fields
from escrowmq.client.inflight_limits import InflightLimits
from escrowmq.client.instance import ClientInstance
from escrowmq.errors import (
    ClientClosed,
    EscrowMQError,
    NoNameServer,
    RouteMissing,
    SendFailed,
    TransportError,
)

_log = logging.getLogger(__name__)

FirstAttempt = tuple[MessageQueue, Connection, float]
"""A first attempt that is in flight: its queue, address and start time (the event loop's clock)."""

AttemptResult = Command | TransportError
"""The result of an attempt: a reply, or an error."""


class AttemptSender:
    """Makes the attempts to send for one producer."""

    def __init__(self, instance: ClientInstance, rules: SendRules) -> None:
        self._instance = instance
        self._rules = rules
        self._faults = BrokerFaults() if rules.avoids_slow else None
        self._chooser = QueueChooser(instance.chance, self._faults)
        self._looking: set[str] = set()
        self._limits = InflightLimits(
            count_max=rules.inflight_max, size_max=rules.inflight_size_max
        )

    def _request_fields(self, message: OutgoingMessage, queue: MessageQueue) -> dict[str, str]:
        rules = self._rules
        return send_fields(message, queue, group=rules.group, asks_safety=rules.asks_safety)

    def begin_first_attempt(self, sending: SendRequest, done: Done) -> FirstAttempt | None:
        """Make the first attempt immediately. Return None, having done nothing, if it would have to
        wait for capacity, a route or a connection. `done` gets the answer; then call
        `end_first_attempt`."""
        message, queue, instance = sending.message, sending.queue, self._instance
        if self._faults is not None:
            return None
        if queue is None:
            queues = instance.book.write_queues(message.topic)
            if not queues:
                return None
            key = sending.order_key
            queue = queue_of_key(queues, key) if key else self._chooser.choose(queues)
        address = instance.book.address(queue.broker_name)
        connection = instance.pool.get_ready(address) if address is not None else None
        if connection is None or not self._limits.try_reserve(len(message.body)):
            if sending.queue is None and not sending.order_key:
                self._chooser.undo_choice(queue)
            return None
        started = instance.now()
        fields = self._request_fields(message, queue)
        timeout_s = sending.timeout_ms / 1000
        try:
            connection.request_with_callback(
                message.request_code, fields, message.body, timeout_s=timeout_s, done=done
            )
        except BaseException:
            self._limits.release(len(message.body))
            raise
        return queue, connection, started

    def end_first_attempt(
        self, sending: SendRequest, begun: FirstAttempt, answer: AttemptResult
    ) -> SendAnswer | None:
        """Finish a first attempt and return its answer. Return None if further attempts must
        follow; then await `continue_attempts`."""
        self._limits.release(len(sending.message.body))
        if isinstance(answer, Command) and answer.code == Response.SUCCESS:
            return SendAnswer(answer, begun[0], begun[1].address)
        return None

    async def send(self, sending: SendRequest) -> SendAnswer:
        """Send the message and return the answer of the broker that stored it."""
        future: asyncio.Future[AttemptResult] = self._instance.loop.create_future()
        begun = self.begin_first_attempt(sending, functools.partial(_set_answer, future))
        if begun is None:
            return await self.continue_attempts(sending)
        answer: AttemptResult | None = None
        try:
            answer = await future
        finally:
            if answer is None:  # this task was cancelled
                self._limits.release(len(sending.message.body))
        return self.end_first_attempt(sending, begun, answer) or await self.continue_attempts(
            sending, begun, answer
        )

    async def continue_attempts(
        self,
        sending: SendRequest,
        begun: FirstAttempt | None = None,
        answer: AttemptResult | None = None,
    ) -> SendAnswer:
        """Make all attempts. With `begun`, the first attempt was made and did not succeed, and only
        the others follow."""
        started = begun[2] if begun is not None else self._instance.now()
        attempts = SendAttempts(sending, self._rules, started=started)
        first: SendAnswer | TransportError | None = None
        if begun is not None and answer is not None:
            attempts.mark_sent()
            queue, address = attempts.record_target(begun[0]), begun[1].address
            first = SendAnswer(answer, queue, address) if isinstance(answer, Command) else answer
        size = len(sending.message.body)
        if not self._limits.try_reserve(size):
            try:
                async with asyncio.timeout_at(attempts.deadline):
                    await self._limits.reserve(size)
            except TimeoutError as error:
                raise attempts.timeout_error() from error
        try:
            return await self._make_attempts(sending.message, attempts, first)
        finally:
            self._limits.release(size)

    async def send_one_way(self, message: OutgoingMessage, queue: MessageQueue) -> None:
        """Write a message to the network, without waiting for an answer."""
        address = self._instance.address_of(queue.broker_name)
        fields = self._request_fields(message, queue)
        await self._instance.send_one_way(address, message.request_code, fields, message.body)

    def choose_queue(self, queues: Sequence[MessageQueue], *, avoid: str = "") -> MessageQueue:
        """Return the next queue in turn."""
        now_ms = self._instance.now() * 1000 if self._faults is not None else 0
        return self._chooser.choose(queues, avoid=avoid, now_ms=now_ms)

    # -- inside ------------------------------------------------------------------------------

    async def _make_attempts(
        self,
        message: OutgoingMessage,
        attempts: SendAttempts,
        came: SendAnswer | EscrowMQError | None,
    ) -> SendAnswer:
        instance = self._instance
        while True:
            if came is None:
                came = await self._attempt_send(message, attempts)
            if _may_have_new_master(came):
                self._refresh_route(message.topic)
            try:
                then = attempts.report_attempt(
                    came,
                    now=instance.now(),
                    names=functools.partial(self._broker_names, message.topic),
                    has_names=instance.names.has_answered,
                )
            except SendFailed as error:
                if instance.is_closed:  # which has cut the connection
                    raise _closed_error() from error
                raise
            if isinstance(then, SendAnswer):
                return then
            if then:
                await asyncio.sleep(then)
            came = None

    def _broker_names(self, topic: str) -> set[str]:
        """Return the names of the brokers to which a message can be sent."""
        return {queue.broker_name for queue in self._instance.book.write_queues(topic)}

    async def _attempt_send(
        self, message: OutgoingMessage, attempts: SendAttempts
    ) -> SendAnswer | EscrowMQError:
        """Make one attempt; return the broker's answer, or the error."""
        try:
            queue = await self._choose_target(message.topic, attempts)
            return await self._send_request(message, queue, attempts)
        except (RouteMissing, TransportError) as error:
            return error

    async def _choose_target(self, topic: str, attempts: SendAttempts) -> MessageQueue:
        given = attempts.queue
        if given is not None and self._instance.book.address(given.broker_name) is not None:
            return attempts.record_target(given)
        queues = await self._write_queues(
            topic, attempts
        )  # which says where a given queue's broker is
        now_ms = self._instance.now() * 1000 if self._faults is not None else 0
        return attempts.choose_target(queues, self._chooser, now_ms=now_ms)

    async def _send_request(
        self, message: OutgoingMessage, queue: MessageQueue, attempts: SendAttempts
    ) -> SendAnswer:
        instance = self._instance
        address = instance.address_of(queue.broker_name)
        started = instance.now()
        try:
            connection = instance.pool.get_ready(address)
            if connection is None:
                connection = await self._connect(address, attempts)
            left_s = attempts.left_s(instance.now())
            fields = self._request_fields(message, queue)
            attempts.mark_sent()
            reply = await connection.request(
                message.request_code, fields, message.body, timeout_s=left_s
            )
        except TransportError:
            if self._faults is not None:
                self._faults.record_failure(queue.broker_name, instance.now() * 1000)
            raise
        if self._faults is not None:
            now_ms = instance.now() * 1000
            took_ms = now_ms - started * 1000
            self._faults.record_answer(
                queue.broker_name, reply.code, took_ms=took_ms, now_ms=now_ms
            )
        return SendAnswer(reply, queue, address)

    async def _write_queues(self, topic: str, attempts: SendAttempts) -> tuple[MessageQueue, ...]:
        found = self._instance.book.write_queues(topic)
        if found:
            return found
        try:
            async with asyncio.timeout_at(attempts.deadline):
                return await self._instance.queues_to_write(topic)
        except TimeoutError as error:
            raise attempts.timeout_error() from error

    async def _connect(self, address: str, attempts: SendAttempts) -> Connection:
        try:
            async with asyncio.timeout_at(attempts.deadline):
                return await self._instance.pool.get(address)
        except TimeoutError as error:
            raise attempts.timeout_error() from error

    def _refresh_route(self, topic: str) -> None:
        """Fetch the topic's route in the background, for the next attempts: a broker failed, so the
        route may have changed."""

        async def refresh() -> None:
            try:
                await self._instance.refresh_route(topic)
            except EscrowMQError as error:
                _log.info("the route of %r could not be refreshed: %s", topic, error)
            finally:
                self._looking.discard(topic)

        # Thousands of messages may fail together; one request for the route is enough for all.
        if not self._instance.is_closed and topic not in self._looking:
            self._looking.add(topic)
            self._instance.spawn(refresh())


def _closed_error() -> ClientClosed:
    return ClientClosed(
        "the client was closed while a message was under way, which may be stored; make a new one"
    )


def _may_have_new_master(came: SendAnswer | EscrowMQError) -> bool:
    """Whether another broker may be the master now."""
    if isinstance(came, SendAnswer):
        return may_have_new_master(came.reply)
    return isinstance(came, TransportError) and not isinstance(came, NoNameServer)


def _set_answer(
    future: asyncio.Future[AttemptResult], reply: Command | None, error: TransportError | None
) -> None:
    if not future.done():
        answer = reply or error
        assert answer is not None
        future.set_result(answer)
