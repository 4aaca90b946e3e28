"""Sends one request of the send family: queue, attempts, time budget."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from escrowmq.base.codes import Response
from escrowmq.base.command import Command
from escrowmq.client.connection import Connection
from escrowmq.client.core.choice import ISOLATION_MS, Chooser, Faults, queue_of_key
from escrowmq.client.core.dialogue import Done
from escrowmq.client.core.retry import STORED, Step, after_failure, after_reply
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.sending import Outgoing, send_fields
from escrowmq.client.instance import Instance
from escrowmq.client.pressure import Pressure
from escrowmq.errors import (
    ConnectFailed,
    EscrowMQError,
    GoingAway,
    NoNameServer,
    RequestTimeout,
    ResponseError,
    RouteMissing,
    SendFailed,
    TransportError,
    response_error,
)

_log = logging.getLogger(__name__)

_PAUSE_FIRST_S: Final = 0.02
_PAUSE_MAX_S: Final = 0.25


class Sent(msgspec.Struct):
    """An answer that says that the message is stored."""

    reply: Command
    queue: MessageQueue
    connection: Connection


class SendRules(msgspec.Struct, frozen=True, kw_only=True):
    """How often, how long and to whom."""

    group: str
    """As the brokers know it."""
    retries: int = 2
    retries_unsafe: bool = False
    avoids_slow: bool = False
    inflight_max: int = 10_000
    inflight_size_max: int = 100 * 1024 * 1024


class Sending(msgspec.Struct, frozen=True, kw_only=True):
    """One message to send, and how."""

    message: Outgoing
    timeout_ms: int
    queue: MessageQueue | None = None
    """To a given queue, or that of an order key, there is one attempt: another would break the
    order."""
    order_key: str = ""
    may_repeat: bool = True
    """Whether it may be sent again although it may be stored already."""


Begun = tuple[MessageQueue, Connection, float]
"""A first attempt that was made: to which queue, where, and when (the event loop's clock)."""

Answer = Command | TransportError
"""What came of an attempt."""


class _Attempts:
    """What was tried for one message."""

    def __init__(self, topic: str, timeout_ms: int, started: float) -> None:
        self.topic = topic
        self.timeout_ms = timeout_ms
        self.deadline = started + timeout_ms / 1000
        self.failures: list[tuple[str, Exception]] = []
        self.broker_name = ""
        """Of the latest attempt."""
        self.is_sent = False
        """Whether anything has left for a broker."""

    def note(self, error: Exception) -> None:
        """One more failure; of a broker that refuses again and again, the last one is kept."""
        name = self.broker_name
        if type(error) is RequestTimeout and not name:
            return  # before any broker was asked: the time is up, as is told at the end
        if isinstance(error, ConnectFailed | GoingAway):
            self.failures = [each for each in self.failures if not _is_same(each, name, error)]
        self.failures.append((name, error))

    def timeout(self) -> RequestTimeout:
        """The time is used up."""
        advice = (
            "it may be stored: send it again only if a duplicate does no harm, or allow more time"
            if self.is_sent
            else "it was not sent; try again, or allow more time"
        )
        return RequestTimeout(
            f"the message to {self.topic!r} was not confirmed within {self.timeout_ms} ms; "
            f"{self._told()}; {advice} (timeout_ms)"
        )

    def exhausted(self) -> EscrowMQError:
        """No attempt is left. A refusal that all brokers agree upon is raised as itself."""
        last = self.failures[-1][1]
        if isinstance(last, ResponseError) and all(
            type(error) is type(last) for _, error in self.failures
        ):
            if len(self.failures) > 1:
                last.add_note(f"{len(self.failures)} attempts were made")
            return last
        failed = SendFailed(
            f"the message to {self.topic!r} could not be sent; {self._told()}",
            tuple(self.failures),
        )
        failed.__cause__ = last
        return failed

    def _told(self) -> str:
        if not self.failures:
            return "no attempt came to an end"
        told = "; ".join(
            f"{name}: {error}" if name else f"{error}" for name, error in self.failures
        )
        count = len(self.failures)
        return f"{count} attempt{'s' if count > 1 else ''}: {told}"


class _Patience:
    """Waits for brokers that refuse connections, or are going away: they are being restarted,
    perhaps. Nothing was sent, so that this is no attempt; it only takes of the message's time."""

    def __init__(self) -> None:
        self._refused: set[str] = set()
        self._pause_s = _PAUSE_FIRST_S

    async def wait(self, name: str, names: set[str], *, left_s: float) -> bool:
        """The broker `name`, of those that would do, refuses. Whether to try again: at once, when
        there are others, else after a pause, if there is time for one."""
        if name not in self._refused and names - self._refused - {name}:
            self._refused.add(name)
            return True
        self._refused.clear()
        if left_s <= self._pause_s:
            return False
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _PAUSE_MAX_S)
        return True


class Sender:
    """Sends for one producer."""

    def __init__(self, instance: Instance, rules: SendRules) -> None:
        self._instance = instance
        self._rules = rules
        self._faults = Faults() if rules.avoids_slow else None
        self._chooser = Chooser(instance.chance, self._faults)
        self._looking: set[str] = set()
        self._pressure = Pressure(count_max=rules.inflight_max, size_max=rules.inflight_size_max)

    def begin(self, sending: Sending, done: Done) -> Begun | None:
        """Make the first attempt at once; None when it has to wait for room, a route, or a
        connection. `done` is given the answer; then call `end`."""
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
            return None
        started = instance.now()
        fields = send_fields(message, queue, group=self._rules.group)
        timeout_s = sending.timeout_ms / 1000
        try:
            connection.exchange(message.code, fields, message.body, timeout_s=timeout_s, done=done)
        except BaseException:
            self._pressure.leave(len(message.body))
            raise
        return queue, connection, started

    def end(self, sending: Sending, begun: Begun, answer: Answer) -> Sent | None:
        """The end of a first attempt; None when it was not enough, and `go_on` is to be awaited."""
        self._pressure.leave(len(sending.message.body))
        if isinstance(answer, Command) and answer.code == Response.SUCCESS:
            return Sent(answer, begun[0], begun[1])
        return None

    async def send(self, sending: Sending) -> Sent:
        """The answer of the broker that stored it."""
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
        self, sending: Sending, begun: Begun | None = None, answer: Answer | None = None
    ) -> Sent:
        """All attempts, or those after a first one that was not enough."""
        message, queue = sending.message, sending.queue
        started = begun[2] if begun is not None else self._instance.now()
        attempts = _Attempts(message.topic, sending.timeout_ms, started)
        attempts.is_sent = begun is not None
        size = len(message.body)
        if not self._pressure.enter(size):
            try:
                async with asyncio.timeout_at(attempts.deadline):
                    await self._pressure.wait(size)
            except TimeoutError as error:
                raise attempts.timeout() from error
        try:
            if queue is None and sending.order_key:
                queue = queue_of_key(await self._queues(attempts), sending.order_key)
            elif queue is not None and self._instance.book.address(queue.broker_name) is None:
                await self._queues(attempts)  # the topic's route says where the broker is
            first = (*begun[:2], answer) if begun is not None and answer is not None else None
            return await self._attempt(sending, queue, attempts, first)
        finally:
            self._pressure.leave(size)

    async def send_one_way(self, message: Outgoing, queue: MessageQueue) -> None:
        """Hand it to the network; nobody says whether it arrived."""
        address = self._instance.address_of(queue.broker_name)
        fields = send_fields(message, queue, group=self._rules.group)
        await self._instance.tell(address, message.code, fields, message.body)

    def choose(self, queues: Sequence[MessageQueue], *, avoid: str = "") -> MessageQueue:
        """The next queue in turn."""
        now_ms = self._instance.now() * 1000 if self._faults is not None else 0
        return self._chooser.choose(queues, avoid=avoid, now_ms=now_ms)

    # -- inside ------------------------------------------------------------------------------

    async def _attempt(
        self,
        sending: Sending,
        given: MessageQueue | None,
        attempts: _Attempts,
        first: tuple[MessageQueue, Connection, Answer] | None,
    ) -> Sent:
        left = 1 if given is not None else 1 + self._rules.retries
        patience = _Patience()
        kept: Sent | None = None
        failure: EscrowMQError | None = None
        while left > 0:
            # The first answer is handed over once: else every attempt would be this one again.
            came, first = await self._try(sending.message, given, attempts, first), None
            if isinstance(came, Sent):
                step = after_reply(came.reply.code, retries_unsafe=self._rules.retries_unsafe)
                if step is Step.DONE:
                    return came
                kept, left = came, left - 1
                continue
            failure = came
            if self._is_away(came):
                names = self._names(attempts.topic, given)
                left_s = attempts.deadline - self._instance.now()
                if await patience.wait(attempts.broker_name, names, left_s=left_s):
                    continue
                break
            left -= 1
            if after_failure(came, may_repeat=sending.may_repeat) is Step.GIVE_UP:
                break
            if self._instance.now() >= attempts.deadline:
                raise attempts.timeout() from came
            if left:
                _log.info("sending to %r again: %s", attempts.topic, came)
        if kept is not None:
            return kept
        assert failure is not None
        raise attempts.exhausted() if attempts.failures else failure

    async def _try(
        self,
        message: Outgoing,
        given: MessageQueue | None,
        attempts: _Attempts,
        first: tuple[MessageQueue, Connection, Answer] | None,
    ) -> Sent | EscrowMQError:
        """One attempt, or the answer to the first one: the answer of a broker that stored it, or
        what went wrong."""
        try:
            if first is not None:
                attempts.broker_name = first[0].broker_name
                sent = _sent(*first)
            else:
                queues = (given,) if given is not None else await self._queues(attempts)
                queue = given or self.choose(queues, avoid=attempts.broker_name)
                attempts.broker_name = queue.broker_name
                sent = await self._once(message, queue, attempts)
        except (RouteMissing, NoNameServer) as error:
            return error
        except TransportError as error:
            attempts.note(error)
            self._look_again(message.topic)
            return error
        if sent.reply.code in STORED:
            return sent
        address = sent.connection.address
        refusal = response_error(sent.reply.code, sent.reply.remark, address=address)
        attempts.note(refusal)
        return refusal

    def _is_away(self, error: EscrowMQError) -> bool:
        """Whether nothing was sent, as nobody was there who is there at other times."""
        if isinstance(error, NoNameServer):
            return self._instance.names.has_answered
        return isinstance(error, ConnectFailed | GoingAway)

    def _names(self, topic: str, given: MessageQueue | None) -> set[str]:
        """The brokers that a message can go to."""
        if given is not None:
            return {given.broker_name}
        return {queue.broker_name for queue in self._instance.book.write_queues(topic)}

    async def _once(self, message: Outgoing, queue: MessageQueue, attempts: _Attempts) -> Sent:
        instance = self._instance
        address = instance.address_of(queue.broker_name)
        started = instance.now()
        try:
            connection = instance.pool.ready(address)
            if connection is None:
                connection = await self._connect(address, attempts)
            left_s = attempts.deadline - instance.now()
            if left_s <= 0:
                raise attempts.timeout()
            fields = send_fields(message, queue, group=self._rules.group)
            attempts.is_sent = True
            reply = await connection.request(message.code, fields, message.body, timeout_s=left_s)
        except TransportError:
            self._note(queue, ISOLATION_MS)
            raise
        if self._faults is not None:
            is_stored = reply.code in STORED
            self._note(queue, (instance.now() - started) * 1000 if is_stored else ISOLATION_MS)
        return Sent(reply, queue, connection)

    async def _queues(self, attempts: _Attempts) -> tuple[MessageQueue, ...]:
        found = self._instance.book.write_queues(attempts.topic)
        if found:
            return found
        try:
            async with asyncio.timeout_at(attempts.deadline):
                return await self._instance.queues_to_write(attempts.topic)
        except TimeoutError as error:
            raise attempts.timeout() from error

    async def _connect(self, address: str, attempts: _Attempts) -> Connection:
        try:
            async with asyncio.timeout_at(attempts.deadline):
                return await self._instance.pool.get(address)
        except TimeoutError as error:
            raise attempts.timeout() from error

    def _note(self, queue: MessageQueue, latency_ms: float) -> None:
        if self._faults is not None:
            now_ms = self._instance.now() * 1000
            self._faults.note(queue.broker_name, latency_ms=latency_ms, now_ms=now_ms)

    def _look_again(self, topic: str) -> None:
        """A broker failed: perhaps its route has changed. Asked in the background, for the
        attempts to come."""

        async def look() -> None:
            try:
                await self._instance.refresh(topic)
            except EscrowMQError as error:
                _log.info("the route of %r is as it was: %s", topic, error)
            finally:
                self._looking.discard(topic)

        # Thousands of messages may fail together; one look is enough for all.
        if not self._instance.is_closed and topic not in self._looking:
            self._looking.add(topic)
            self._instance.spawn(look())


def _answered(
    future: asyncio.Future[Answer], reply: Command | None, error: TransportError | None
) -> None:
    if not future.done():
        answer = reply or error
        assert answer is not None
        future.set_result(answer)


def _is_same(failure: tuple[str, Exception], name: str, error: Exception) -> bool:
    return failure[0] == name and type(failure[1]) is type(error)


def _sent(queue: MessageQueue, connection: Connection, answer: Answer) -> Sent:
    if isinstance(answer, TransportError):
        raise answer
    return Sent(answer, queue, connection)
