"""The connection layer of one client: routes, heartbeats, and the brokers' own requests."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import secrets
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from escrowmq.base.codes import Response
from escrowmq.base.command import Command
from escrowmq.base.message import Topic
from escrowmq.base.ports import Clock, RandomSource
from escrowmq.client.client_settings import ClientOptions
from escrowmq.client.closing import CloseTask, await_unless_closed
from escrowmq.client.connection import Connection
from escrowmq.client.core.dialogue import Fields
from escrowmq.client.core.routes import MASTER, MessageQueue, RouteBook, template_route
from escrowmq.client.core.signing import Signer
from escrowmq.client.fork_detection import ForkCounter
from escrowmq.client.heartbeats import Heartbeats
from escrowmq.client.host import local_address
from escrowmq.client.name_servers import NameServers
from escrowmq.client.pool import ConnectionPool
from escrowmq.client.route_refresh import RouteRefresher
from escrowmq.client.tls import make_ssl_context
from escrowmq.client.user_failures import is_user_failure
from escrowmq.codec.routes import TopicRoute
from escrowmq.errors import (
    ClientClosed,
    ClientForked,
    EscrowMQError,
    RouteMissing,
    UsageError,
    WrongThread,
    response_error,
)
from escrowmq.net.clock import SystemClock

_log = logging.getLogger(__name__)

Handler = Callable[[Connection, Command], None]
"""Serves a broker's request on the event loop; it must not block. It answers with
`connection.reply(request, ...)`, immediately or later."""

SharedHandler = Callable[[Connection, Command], bool]
"""One of several handlers for the same request code; it returns False to leave a request to the
next one."""

TASKS_MAX: Final = 10_000
"""Concurrent background tasks of one instance; beyond that, new work is refused."""

TEMPLATE_QUEUES_MAX: Final = 4
_RESTART_PAUSE_S: Final = 1.0
"""Pause in seconds before failed background work is restarted."""

T = TypeVar("T")


class ClientInstance:
    """The connection layer of one client. Open it inside a running event loop, and use it on that
    loop only. Clients on top of it register groups (`heartbeats`) and handlers, watch topics, and
    make requests."""

    def __init__(
        self,
        options: ClientOptions,
        *,
        clock: Clock | None = None,
        chance: RandomSource | None = None,
    ) -> None:
        self.options = options
        self.clock: Clock = clock or SystemClock()
        self.chance: RandomSource = chance or secrets.SystemRandom()
        self.host = local_address()
        name = options.instance_name or f"{os.getpid()}#{self.chance.getrandbits(48)}"
        self.client_id = f"{self.host}@{name}"
        self.book = RouteBook()
        self.on_route_change: list[Callable[[str], None]] = []
        """Callback for a topic whose route has changed."""
        self._process = os.getpid()
        self._forks_count = ForkCounter.count
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._handlers: dict[int, Handler] = {}
        self._sharers: dict[int, list[SharedHandler]] = {}
        self.watched: dict[str, int] = {}
        """Topics whose routes are kept fresh, with the number of clients that need each."""
        self._refreshes: dict[str, asyncio.Task[None]] = {}
        self._brokers_refresh: asyncio.Task[None] | None = None
        self._route_refresher = RouteRefresher(self)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False
        self._ending = CloseTask(self._close)
        self.failures_count = 0
        """Number of failures of background tasks that should never fail."""
        self.wants_all_brokers = False
        """Whether to fetch all brokers of the cluster, without naming topics."""
        self.forgets_topics = False
        """Whether to refresh only watched topics; other routes are then fetched again when they are
        needed."""
        signer = _signer_of(options)
        self.pool = ConnectionPool(
            tls=make_ssl_context(options.tls),
            connect_timeout_s=options.connect_timeout_ms / 1000,
            decorate=signer.add_common_fields,
            sign_own=None if options.credentials is None else signer.add_own_signature,
            serve=self._dispatch_request,
            greet=self._send_first_heartbeat,
            lost=self._on_connection_lost,
        )
        self.names = NameServers(
            options.name_servers,
            self.pool,
            self.chance,
            timeout_s=options.request_timeout_ms / 1000,
        )
        self.heartbeats = Heartbeats(self)

    # -- life --------------------------------------------------------------------------------

    async def open(self) -> None:
        """Start to refresh routes and send heartbeats. Name servers and brokers that cannot be
        reached are retried in the background, and logged."""
        if self._is_closed:
            raise ClientClosed("the client is closed; make a new one")
        if self._loop is not None:
            return
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        is_known = await self._route_refresher.refresh_all()
        await self.heartbeats.send_to_all()
        self.keep_running(
            "looking after routes",
            functools.partial(self._route_refresher.refresh_periodically, is_known),
        )
        self.run_every(self.options.heartbeat_interval_ms, self.heartbeats.send_to_all)

    async def close(self) -> None:
        """Unregister at the brokers and close every connection. Takes no longer than one request's
        timeout; calling it again does nothing, or waits for an earlier call."""
        self._is_closed = True
        await self._ending.wait()

    def simulate_crash(self) -> None:
        """End as if the process had died: brokers are not informed, and no request completes."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        self.pool.abort()

    async def _close(self) -> None:
        # Before unregistering: a heartbeat after that would register the groups again.
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        try:
            if self._loop is not None and tasks:
                await asyncio.wait(tasks, timeout=self.options.request_timeout_ms / 1000)
            if self._loop is not None:
                await self.heartbeats.unregister_all()
        finally:
            await self.pool.close()

    def check_usable(self) -> None:
        """Raise ClientClosed, ClientForked or WrongThread if this client cannot be used by the
        caller."""
        if self._is_closed:
            raise ClientClosed("the client is closed; make a new one")
        if self._loop is None:
            raise ClientClosed("the client is not open; use `async with`, or await its open()")
        if ForkCounter.count != self._forks_count:
            raise ClientForked(
                f"the client was opened in process {self._process} and this is its fork "
                f"{os.getpid()}; make a new client after the fork"
            )
        # Of the loop's own thread, without a system call, which get_running_loop() makes (3.11).
        if threading.get_ident() != self._thread or not self._loop.is_running():
            raise WrongThread(
                "the client belongs to another event loop; make one for each loop, or use "
                "the blocking clients of `escrowmq` from any thread"
            )

    @property
    def is_closed(self) -> bool:
        """Whether the client was closed."""
        return self._is_closed

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop on which it was opened."""
        assert self._loop is not None
        return self._loop

    def now(self) -> float:
        """The event loop's clock, in seconds, for measuring durations."""
        assert self._loop is not None
        return self._loop.time()

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a background task that ends with this client; a failure is logged."""
        if self._is_closed or len(self._tasks) >= TASKS_MAX:
            work.close()
            if self._is_closed:
                raise ClientClosed("the client is closed; make a new one")
            raise UsageError(
                f"the client has {TASKS_MAX} background tasks, which is the limit; make "
                "fewer calls at a time"
            )
        task = asyncio.get_running_loop().create_task(work)
        if task.done():  # it began and ended at once (asyncio.eager_task_factory)
            self._on_task_done(task)
        else:
            self._tasks.add(task)
            task.add_done_callback(self._on_task_done)
        return task

    def run_every(
        self, period_ms: int, work: Callable[[], Awaitable[object]]
    ) -> asyncio.Task[None]:
        """Repeat work while this client is open, first after one period. Failures are logged, and
        the work is repeated."""
        return self.spawn(self._repeat(period_ms, work))

    def keep_running(
        self, name: str, work: Callable[[], Coroutine[Any, Any, None]]
    ) -> asyncio.Task[None]:
        """Run work while this client is open, or until the work returns or its task is cancelled.
        If it fails, the failure is logged and counted in `failures_count`, and the work is
        restarted."""
        return self.spawn(self._run_forever(name, work))

    # -- routes ------------------------------------------------------------------------------

    def watch_topic(self, topic: str) -> None:
        """Keep a topic's route fresh until `unwatch_topic` has been called as many times as
        `watch_topic`."""
        self.watched[topic] = self.watched.get(topic, 0) + 1

    def unwatch_topic(self, topic: str) -> None:
        """Undo one call of `watch_topic`."""
        count = self.watched.pop(topic, 0) - 1
        if count > 0:
            self.watched[topic] = count

    async def watch_all_brokers(self) -> None:
        """Keep the list of all brokers of the cluster fresh, without naming topics."""
        self.wants_all_brokers = True
        await self.refresh_brokers()

    async def refresh_brokers(self) -> None:
        """Fetch the cluster's brokers now; concurrent callers share one request."""
        if self._brokers_refresh is None or self._brokers_refresh.done():
            self._brokers_refresh = self.spawn(self._fetch_brokers())
        await await_unless_closed(self._brokers_refresh)

    async def _fetch_brokers(self) -> None:
        self.book.replace_brokers((await self.names.fetch_brokers()).broker_addr_table)

    async def route(self, topic: str) -> TopicRoute:
        """Return a topic's route; fetch it if it is not known. Raises RouteMissing or
        NoNameServer."""
        found = self.book.get(topic)
        if found is None:
            await self.refresh_route(topic)
            found = self.book.get(topic)
            assert found is not None
        return found

    async def refresh_route(self, topic: str) -> None:
        """Fetch a topic's route now; concurrent callers share one request. The old route is kept if
        the name servers fail."""
        task = self._refreshes.get(topic)
        if task is None:
            task = self.spawn(self._fetch_route(topic))
            self._refreshes[topic] = task
            task.add_done_callback(lambda _: self._refreshes.pop(topic, None))
        await await_unless_closed(task)

    async def queues_to_write(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues to which a topic's messages can be sent. For a topic that does not
        exist, these are the queues that its first message will create, if brokers allow it. Raises
        RouteMissing if there are none."""
        found = self.book.write_queues(topic)
        if found:
            return found
        try:
            await self.refresh_route(topic)
        except RouteMissing:
            await self._use_template_route(topic)
        found = self.book.write_queues(topic)
        if not found:
            raise RouteMissing(
                f"the topic {topic!r} has no writable queue; its brokers are down, or have "
                "lost the write permission (perm)"
            )
        return found

    async def queues_to_read(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues from which a topic can be read, sorted; perhaps none."""
        await self.route(topic)
        return self.book.read_queues(topic)

    def wire_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue with the topic's name that brokers use, with the namespace."""
        topic = self.options.with_namespace(queue.topic)
        return MessageQueue(topic, queue.broker_name, queue.queue_id)

    # -- brokers -----------------------------------------------------------------------------

    def address_of(self, broker_name: str, broker_id: int = MASTER) -> str:
        """Return the address of a broker; raises RouteMissing if no route has it."""
        address = self.book.address(broker_name, broker_id)
        if address is None:
            kind = "master" if broker_id == MASTER else f"slave {broker_id}"
            raise RouteMissing(
                f"no route names the {kind} of broker {broker_name!r}; is it running and "
                "registered with the name server?"
            )
        return address

    def reader_address(self, broker_name: str, broker_id: int = MASTER) -> str:
        """Return the address for requests about a queue: the wanted broker, its master, or a slave
        if no route has a master, as RocketMQ's clients do
        (MQClientInstance.findBrokerAddressInSubscribe). Raises RouteMissing if there is none."""
        known = self.book.addresses(broker_name)
        found = known.get(broker_id) or known.get(MASTER) or next(iter(known.values()), None)
        return found or self.address_of(broker_name)

    async def ask(
        self,
        address: str,
        code: int,
        fields: Fields | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
    ) -> Command:
        """Send a request and return the reply; raises ResponseError if its code is not 0."""
        reply = await self.request(address, code, fields, body, timeout_ms=timeout_ms)
        if reply.code != Response.SUCCESS:
            raise response_error(reply.code, reply.remark, address=address)
        return reply

    async def request(
        self,
        address: str,
        code: int,
        fields: Fields | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
    ) -> Command:
        """Send a request and return the reply, whatever its code. Raises TransportError if there is
        none."""
        connection = self.pool.get_ready(address) or await self.pool.get(address)
        timeout_s = (timeout_ms or self.options.request_timeout_ms) / 1000
        return await connection.request(code, fields, body, timeout_s=timeout_s)

    async def send_one_way(
        self, address: str, code: int, fields: Fields | None = None, body: bytes = b""
    ) -> None:
        """Send a one-way request, after waiting if the broker does not take what was written."""
        connection = self.pool.get_ready(address) or await self.pool.get(address)
        await connection.wait_for_room(timeout_s=self.options.request_timeout_ms / 1000)
        connection.send_one_way(code, fields, body)

    # -- requests of brokers -----------------------------------------------------------------

    def set_handler(self, code: int, handler: Handler) -> None:
        """Register the only handler for requests of brokers with this code."""
        assert code not in self._handlers, f"request {code} has a handler"
        self._handlers[code] = handler

    def add_shared_handler(self, code: int, sharer: SharedHandler) -> None:
        """Add a handler for requests of brokers with this code; several are tried in turn."""
        self._sharers.setdefault(code, []).append(sharer)

    def remove_shared_handler(self, code: int, sharer: SharedHandler) -> None:
        """Remove a handler that was added with `add_shared_handler`."""
        sharers = self._sharers.get(code, [])
        if sharer in sharers:
            sharers.remove(sharer)

    # -- inside ------------------------------------------------------------------------------

    def _dispatch_request(self, connection: Connection, request: Command) -> None:
        if any(sharer(connection, request) for sharer in self._sharers.get(request.code, ())):
            return
        handler = self._handlers.get(request.code)
        if handler is None:
            remark = f"this client does not serve request {request.code}"
            connection.reply(request, Response.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
        else:
            handler(connection, request)

    def _send_first_heartbeat(self, connection: Connection) -> None:
        if not self.names.is_name_server(connection):
            self.heartbeats.send_first(connection)

    def _on_connection_lost(self, connection: Connection) -> None:
        if not self.names.is_name_server(connection):
            self.heartbeats.reconnect(connection.address)
            self._route_refresher.on_broker_lost(connection.address)

    async def _fetch_route(self, topic: str) -> None:
        route = await self.names.fetch_route(topic)
        self._store_route(topic, route)

    async def _use_template_route(self, topic: str) -> None:
        try:
            route = await self.names.fetch_route(Topic.DEFAULT)
        except RouteMissing:
            raise RouteMissing(
                f"the topic {topic!r} does not exist, and no broker creates topics by itself; "
                "create it first"
            ) from None
        try:
            # A broker that has just registered brought all its topics: this one may exist by now,
            # with fewer queues than its template.
            route = await self.names.fetch_route(topic)
        except RouteMissing:
            route = template_route(route, queues_max=TEMPLATE_QUEUES_MAX)
        self._store_route(topic, route)

    def _store_route(self, topic: str, route: TopicRoute) -> None:
        if self.book.put(topic, route):
            for notice in list(self.on_route_change):
                notice(topic)

    async def _run_forever(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            try:
                await work()
            except BaseException as error:
                if not is_user_failure(error):
                    raise
                if self._is_closed:  # it used the closed client, and is cancelled next
                    return
                self.failures_count += 1
                _log.exception("%s failed, and is restarted", name)
            else:
                return
            await asyncio.sleep(_RESTART_PAUSE_S)

    async def _repeat(self, period_ms: int, work: Callable[[], Awaitable[object]]) -> None:
        while True:
            await asyncio.sleep(period_ms / 1000)
            try:
                await work()
            except EscrowMQError as error:
                if self._is_closed:
                    return
                _log.warning("a background round failed, and is repeated: %s", error)
            except BaseException as error:
                if not is_user_failure(error):
                    raise
                self.failures_count += 1
                _log.exception("a background round failed, and is repeated")

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, EscrowMQError):  # the awaiting task gets the error
            _log.debug("background work ended: %s", error)
        elif error is not None:
            self.failures_count += 1
            _log.error("background work failed", exc_info=error)


def _signer_of(options: ClientOptions) -> Signer:
    space = options.namespace if options.is_namespace_v2 else ""
    return Signer(options.credentials, also={"nsd": "true", "ns": space} if space else {})
