"""The client's groups, registered at brokers by heartbeats."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

import msgspec

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.client.client_settings import ClientOptions
from escrowmq.client.closing import await_unless_closed
from escrowmq.client.connection import Connection
from escrowmq.client.core.routes import RouteBook
from escrowmq.client.name_servers import NameServers
from escrowmq.client.pool import ConnectionPool
from escrowmq.codec.client_bodies import ConsumerBody, HeartbeatBody, ProducerBody
from escrowmq.errors import EscrowMQError, RequestTimeout, UsageError, response_error

T = TypeVar("T")
_log = logging.getLogger(__name__)

_REDIAL_FIRST_S: Final = 0.1
_REDIAL_MAX_S: Final = 5.0

ConsumerSource = Callable[[], ConsumerBody]
"""Makes one consumer group's part of a heartbeat; called for each heartbeat."""


class HeartbeatOwner(Protocol):
    """The client that sends the heartbeats, and its access to brokers."""

    client_id: str
    options: ClientOptions
    book: RouteBook
    pool: ConnectionPool
    names: NameServers

    @property
    def is_closed(self) -> bool:
        """Whether the client is closed."""
        ...

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a background task that ends with the client."""
        ...


class Heartbeats:
    """The groups that one client registers at brokers. Every new connection to a broker begins with
    a heartbeat, so that a restarted broker knows the client again immediately."""

    def __init__(self, instance: HeartbeatOwner) -> None:
        self._instance = instance
        self._producers: dict[str, int] = {}
        self._consumers: dict[str, ConsumerSource] = {}
        self._greetings: dict[str, asyncio.Task[Exception | None]] = {}
        self._redials: dict[str, asyncio.TimerHandle] = {}
        self._redials_count: dict[str, int] = {}
        self._refused: set[str] = set()
        """Brokers whose last answer was a refusal; it is logged only once."""

    @property
    def is_registered(self) -> bool:
        """Whether there are groups to register."""
        return bool(self._producers or self._consumers)

    def add_producer(self, group: str) -> None:
        """Register a producer of a group with the next heartbeat."""
        self._producers[group] = self._producers.get(group, 0) + 1

    def add_consumer(self, group: str, source: ConsumerSource) -> None:
        """Register the consumer of a group with the next heartbeat. A client has at most one per
        group."""
        assert group not in self._consumers, f"{group} consumes here already"
        self._consumers[group] = source

    async def remove_producer(self, group: str) -> None:
        """Unregister a producer, immediately at connected brokers."""
        count = self._producers.pop(group, 0) - 1
        if count > 0:
            self._producers[group] = count
        elif count == 0:
            await self._unregister({"producerGroup": group})

    async def remove_consumer(self, group: str) -> None:
        """Unregister a consumer, immediately at connected brokers."""
        if self._consumers.pop(group, None) is not None:
            await self._unregister({"consumerGroup": group})

    async def send_to_all(self) -> dict[str, Exception | None]:
        """Send a heartbeat to every broker in a route (only to masters if there are no consumers);
        return the errors by address."""
        if not self.is_registered:
            return {}
        masters_only = not self._consumers
        addresses = self._instance.book.all_addresses(masters_only=masters_only)
        results = await asyncio.gather(*(self.send_to(address) for address in addresses))
        return dict(zip(addresses, results, strict=True))

    def has_unconnected_brokers(self) -> bool:
        """Whether some brokers must get our heartbeat and are not connected yet."""
        if not self.is_registered:
            return False
        addresses = self._instance.book.all_addresses(masters_only=not self._consumers)
        return any(self._instance.pool.get_ready(address) is None for address in addresses)

    async def send_to(self, address: str) -> Exception | None:
        """Send a heartbeat to one broker; return the error, if there was one."""
        pool = self._instance.pool
        try:
            connection = pool.get_ready(address)
            if connection is None:
                await pool.get(address)  # which begins with a greeting
                greeting = self._greetings.get(address)
                return await await_unless_closed(greeting) if greeting is not None else None
            return await self._handle_answer(connection, self._send_heartbeat(connection))
        except EscrowMQError as error:
            _log.warning("no heartbeat to %s: %s", address, error)
            return error

    def send_first(self, connection: Connection) -> None:
        """Send a heartbeat as the first request of a new connection to a broker."""
        if self.is_registered:
            address = connection.address
            # Requested here and not in the task, which starts one turn of the loop later: other
            # requests may be made by then, and the heartbeat must be the first.
            answer = self._send_heartbeat(connection)
            try:
                task = self._instance.spawn(self._handle_answer(connection, answer))
            except EscrowMQError:
                answer.cancel()  # its result is not needed
                raise
            self._greetings[address] = task
            task.add_done_callback(lambda _: self._greetings.pop(address, None))

    def reconnect(self, address: str) -> None:
        """Reconnect to a broker after its connection was lost, so that it can send checks."""
        if (
            self.is_registered
            and address not in self._redials
            and address in self._instance.book.all_addresses(masters_only=False)
        ):
            count = self._redials_count.get(address, 0)
            self._redials_count[address] = count + 1
            delay_s = min(_REDIAL_MAX_S, _REDIAL_FIRST_S * 2 ** min(count, 10))
            loop = asyncio.get_running_loop()
            self._redials[address] = loop.call_later(delay_s, self._start_connecting, address)

    async def unregister_all(self) -> None:
        """Unregister all groups of this client at every connected broker."""
        for timer in self._redials.values():
            timer.cancel()
        for group in list(self._producers):
            self._producers[group] = 1
            await self.remove_producer(group)
        for group in list(self._consumers):
            await self.remove_consumer(group)

    # -- inside ------------------------------------------------------------------------------

    def _heartbeat_body(self) -> bytes:
        return msgspec.json.encode(
            HeartbeatBody(
                client_id=self._instance.client_id,
                producers=[ProducerBody(group) for group in self._producers],
                consumers=[source() for source in self._consumers.values()],
            )
        )

    def _send_heartbeat(self, connection: Connection) -> asyncio.Future[Command]:
        timeout_s = self._instance.options.request_timeout_ms / 1000
        return connection.request(
            Request.HEART_BEAT, {}, self._heartbeat_body(), timeout_s=timeout_s
        )

    async def _handle_answer(
        self, connection: Connection, answer: asyncio.Future[Command]
    ) -> Exception | None:
        try:
            reply = await answer
        except RequestTimeout as error:
            # The broker does not answer although its connection is open: perhaps it no longer
            # exists.
            connection.abort(str(error))
            return error
        except EscrowMQError as error:
            return error
        if reply.code != Response.SUCCESS:
            refusal = response_error(reply.code, reply.remark, address=connection.address)
            is_known = connection.address in self._refused
            self._refused.add(connection.address)
            _log.log(
                logging.DEBUG if is_known else logging.WARNING,
                "a heartbeat was refused: %s", refusal,
            )  # fmt: skip
            return refusal
        self._refused.discard(connection.address)
        # Reset only now: otherwise a broker that closes the connection at every heartbeat would be
        # redialled without a pause.
        self._redials_count.pop(connection.address, None)
        return None

    def _start_connecting(self, address: str) -> None:
        self._redials.pop(address, None)
        if self._instance.is_closed:
            return
        try:
            self._instance.spawn(self._connect_again(address))
        except UsageError as error:  # too much is under way: later
            _log.info("no connection to %s yet: %s", address, error)
            self.reconnect(address)

    async def _connect_again(self, address: str) -> None:
        try:
            await self._instance.pool.get(address)
        except EscrowMQError as error:
            _log.info("no connection to %s yet: %s", address, error)
            self.reconnect(address)

    async def _unregister(self, fields: dict[str, str]) -> None:
        instance = self._instance
        fields = {"clientID": instance.client_id, **fields}
        timeout_s = instance.options.request_timeout_ms / 1000
        waits = [
            connection.request(Request.UNREGISTER_CLIENT, fields, timeout_s=timeout_s)
            for connection in instance.pool.usable_connections()
            if not instance.names.is_name_server(connection)
        ]
        await asyncio.gather(*waits, return_exceptions=True)
