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
from escrowmq.client.core.queue_choice import Chooser, Faults, queue_of_key
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.send_attempts import Attempts, SendAnswer, SendRequest, SendRules
from escrowmq.client.core.send_retry import has_moved
from escrowmq.client.core.sending import Outgoing, send_fields
from escrowmq.client.instance import Instance
from escrowmq.client.send_room import SendRoom
from escrowmq.errors import EscrowMQError, NoNameServer, RouteMissing, TransportError

_log = logging.getLogger(__name__)

Begun = tuple[MessageQueue, Connection, float]
"""A first attempt that is in flight: its queue, address and start time (the event loop's clock)."""

Answer = Command | TransportError
"""The result of an attempt: a reply, or an error."""


class Sender:
    """Makes the attempts to send for one producer."""

    def __init__(self, instance: Instance, rules: SendRules) -> None:
        self._instance = instance
        self._rules = rules
        self._faults = Faults() if rules.avoids_slow else None
        self._chooser = Chooser(instance.chance, self._faults)
        self._looking: set[str] = set()
        self._pressure = SendRoom(count_max=rules.inflight_max, size_max=rules.inflight_size_max)

    def _fields(self, message: Outgoing, queue: MessageQueue) -> dict[str, str]:
        rules = self._rules
        return send_fields(message, queue, group=rules.group, asks_safety=rules.asks_safety)

    def begin(self, sending: SendRequest, done: Done) -> Begun | None:
        """Make the first attempt immediately. Return None, having done nothing, if it would have to
        wait for capacity, a route or a connection. `done` gets the answer; then call `end`."""
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
        connection = instance.pool.ready(address) if address is not None else None
        if connection is None or not self._pressure.enter(len(message.body)):
            if sending.queue is None and not sending.order_key:
                self._chooser.give_back(queue)
            return None
        started = instance.now()
        fields = self._fields(message, queue)
        timeout_s = sending.timeout_ms / 1000
        try:
            connection.exchange(message.code, fields, message.body, timeout_s=timeout_s, done=done)
        except BaseException:
            self._pressure.leave(len(message.body))
            raise
        return queue, connection, started

    def end(self, sending: SendRequest, begun: Begun, answer: Answer) -> SendAnswer | None:
        """Finish a first attempt and return its answer. Return None if further attempts must
        follow; then await `go_on`."""
        self._pressure.leave(len(sending.message.body))
        if isinstance(answer, Command) and answer.code == Response.SUCCESS:
            return SendAnswer(answer, begun[0], begun[1].address)
        return None

    async def send(self, sending: SendRequest) -> SendAnswer:
        """Send the message and return the answer of the broker that stored it."""
        future: asyncio.Future[Answer] = self._instance.loop.create_future()
        begun = self.begin(sending, functools.partial(_answered, future))
        if begun is None:
            return await self.go_on(sending)
        answer: Answer | None = None
        try:
            answer = await future
        finally:
            if answer is None:  # this task was cancelled
                self._pressure.leave(len(sending.message.body))
        return self.end(sending, begun, answer) or await self.go_on(sending, begun, answer)

    async def go_on(
        self, sending: SendRequest, begun: Begun | None = None, answer: Answer | None = None
    ) -> SendAnswer:
        """Make all attempts. With `begun`, the first attempt was made and did not succeed, and only
        the others follow."""
        started = begun[2] if begun is not None else self._instance.now()
        attempts = Attempts(sending, self._rules, started=started)
        first: SendAnswer | TransportError | None = None
        if begun is not None and answer is not None:
            attempts.leaves()
            queue, address = attempts.aimed(begun[0]), begun[1].address
            first = SendAnswer(answer, queue, address) if isinstance(answer, Command) else answer
        size = len(sending.message.body)
        if not self._pressure.enter(size):
            try:
                async with asyncio.timeout_at(attempts.deadline):
                    await self._pressure.wait(size)
            except TimeoutError as error:
                raise attempts.timeout() from error
        try:
            return await self._attempt(sending.message, attempts, first)
        finally:
            self._pressure.leave(size)

    async def send_one_way(self, message: Outgoing, queue: MessageQueue) -> None:
        """Write a message to the network, without waiting for an answer."""
        address = self._instance.address_of(queue.broker_name)
        fields = self._fields(message, queue)
        await self._instance.tell(address, message.code, fields, message.body)

    def choose(self, queues: Sequence[MessageQueue], *, avoid: str = "") -> MessageQueue:
        """Return the next queue in turn."""
        now_ms = self._instance.now() * 1000 if self._faults is not None else 0
        return self._chooser.choose(queues, avoid=avoid, now_ms=now_ms)

    # -- inside ------------------------------------------------------------------------------

    async def _attempt(
        self, message: Outgoing, attempts: Attempts, came: SendAnswer | EscrowMQError | None
    ) -> SendAnswer:
        instance = self._instance
        while True:
            if came is None:
                came = await self._attempt_send(message, attempts)
            if _has_moved(came):
                self._look_again(message.topic)
            then = attempts.report(
                came,
                now=instance.now(),
                names=functools.partial(self._names, message.topic),
                has_names=instance.names.has_answered,
            )
            if isinstance(then, SendAnswer):
                return then
            if then:
                await asyncio.sleep(then)
            came = None

    def _names(self, topic: str) -> set[str]:
        """Return the names of the brokers to which a message can be sent."""
        return {queue.broker_name for queue in self._instance.book.write_queues(topic)}

    async def _attempt_send(
        self, message: Outgoing, attempts: Attempts
    ) -> SendAnswer | EscrowMQError:
        """Make one attempt; return the broker's answer, or the error."""
        try:
            queue = await self._aim(message.topic, attempts)
            return await self._ask(message, queue, attempts)
        except (RouteMissing, TransportError) as error:
            return error

    async def _aim(self, topic: str, attempts: Attempts) -> MessageQueue:
        given = attempts.queue
        if given is not None and self._instance.book.address(given.broker_name) is not None:
            return attempts.aimed(given)
        queues = await self._queues(topic, attempts)  # which says where a given queue's broker is
        now_ms = self._instance.now() * 1000 if self._faults is not None else 0
        return attempts.aim(queues, self._chooser, now_ms=now_ms)

    async def _ask(self, message: Outgoing, queue: MessageQueue, attempts: Attempts) -> SendAnswer:
        instance = self._instance
        address = instance.address_of(queue.broker_name)
        started = instance.now()
        try:
            connection = instance.pool.ready(address)
            if connection is None:
                connection = await self._connect(address, attempts)
            left_s = attempts.left_s(instance.now())
            fields = self._fields(message, queue)
            attempts.leaves()
            reply = await connection.request(message.code, fields, message.body, timeout_s=left_s)
        except TransportError:
            if self._faults is not None:
                self._faults.failed(queue.broker_name, instance.now() * 1000)
            raise
        if self._faults is not None:
            now_ms = instance.now() * 1000
            took_ms = now_ms - started * 1000
            self._faults.answered(queue.broker_name, reply.code, took_ms=took_ms, now_ms=now_ms)
        return SendAnswer(reply, queue, address)

    async def _queues(self, topic: str, attempts: Attempts) -> tuple[MessageQueue, ...]:
        found = self._instance.book.write_queues(topic)
        if found:
            return found
        try:
            async with asyncio.timeout_at(attempts.deadline):
                return await self._instance.queues_to_write(topic)
        except TimeoutError as error:
            raise attempts.timeout() from error

    async def _connect(self, address: str, attempts: Attempts) -> Connection:
        try:
            async with asyncio.timeout_at(attempts.deadline):
                return await self._instance.pool.get(address)
        except TimeoutError as error:
            raise attempts.timeout() from error

    def _look_again(self, topic: str) -> None:
        """Fetch the topic's route in the background, for the next attempts: a broker failed, so the
        route may have changed."""

        async def look() -> None:
            try:
                await self._instance.refresh(topic)
            except EscrowMQError as error:
                _log.info("the route of %r could not be refreshed: %s", topic, error)
            finally:
                self._looking.discard(topic)

        # Thousands of messages may fail together; one request for the route is enough for all.
        if not self._instance.is_closed and topic not in self._looking:
            self._looking.add(topic)
            self._instance.spawn(look())


def _has_moved(came: SendAnswer | EscrowMQError) -> bool:
    """Whether another broker may be the master now."""
    if isinstance(came, SendAnswer):
        return has_moved(came.reply)
    return isinstance(came, TransportError) and not isinstance(came, NoNameServer)


def _answered(
    future: asyncio.Future[Answer], reply: Command | None, error: TransportError | None
) -> None:
    if not future.done():
        answer = reply or error
        assert answer is not None
        future.set_result(answer)
