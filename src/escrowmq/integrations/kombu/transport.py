"""Kombu's transport.

A queue is a topic, and its consumers are the members of a group. A queue that lives as long as
a connection (a worker's mailbox, replies, events) has no topic: it reads the topic of its
exchange, like every other such queue, and selects the messages that match its binding. So
`celery inspect` works from any process, and leaves no topics behind. Without an exchange it has
a topic, to which others publish by its name."""

from __future__ import annotations

import datetime as dt
import logging
import threading
from queue import Empty
from typing import Any, Final

from kombu.transport import virtual
from kombu.utils.json import dumps
from kombu.utils.uuid import uuid

from escrowmq.base.message import KEYS_SEPARATOR
from escrowmq.client.blocking.admin import Admin
from escrowmq.client.blocking.producer import Producer
from escrowmq.client.client_settings import Credentials
from escrowmq.client.core.message import Message
from escrowmq.client.fork_detection import ForkCounter
from escrowmq.errors import EscrowMQError, ResponseError, TransportError, UsageError
from escrowmq.integrations.kombu import names
from escrowmq.integrations.kombu.qos import QoS, UnsettledMessage
from escrowmq.integrations.kombu.reader import Payload, ThreadReader
from escrowmq.net.clock import SystemClock

_log = logging.getLogger(__name__)

PREFIX: Final = "celery"
QUEUES_COUNT: Final = 8
PORT: Final = 9876
DELAY_MAX: Final = dt.timedelta(days=3) - dt.timedelta(minutes=5)
"""Brokers delay a message by at most this time (timerMaxDelaySec); tasks that are due later then
wait at a worker."""

_KEY_SIZE_MAX: Final = 255
COMMIT_INTERVAL_MS: Final = 1_000
SPAN_MAX: Final = 128
"""Default of `prefetch_span_max`. A group's offset in a queue stays at the oldest message that is
not acknowledged, so this many finished tasks of a queue can run again when a worker dies. While one
task runs, its worker begins at most this many later ones of its queue."""

ATTEMPTS_MAX: Final = 2**31 - 1
"""Limit of redeliveries. It is the largest number that fits on the wire, because kombu requeues
messages without a limit."""


class Channel(virtual.Channel):
    """A channel of kombu, with its readers and its unsettled messages."""

    QoS = QoS
    do_restore = False
    supports_fanout = True

    def __init__(self, connection: Transport, **more: Any) -> None:
        super().__init__(connection, **more)
        self.held: dict[str, UnsettledMessage] = {}
        """Unsettled messages by delivery tag."""
        self._leaving: set[str] = set()
        """Queues that are no longer consumed, but have messages that are still being processed."""
        self._no_ack: set[str] = set()
        self._readers: dict[str, ThreadReader] = {}

    # -- queues ------------------------------------------------------------------------------

    def _new_queue(self, queue: str, **declared: Any) -> None:
        exclusive, auto_delete = (bool(declared.get(each)) for each in ("exclusive", "auto_delete"))
        if names.is_of_one_connection(queue, exclusive=exclusive, auto_delete=auto_delete):
            self.connection.temporary_queues.add(queue)

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        if queue not in self.connection.temporary_queues:
            return
        exchanges = sorted(self._bound_exchanges(queue))
        if len(exchanges) > 1:
            raise UsageError(
                f"the queue {queue!r} belongs to one connection and is bound to the exchanges "
                f"{' and '.join(map(repr, exchanges))}; bind it to one, or let it be neither "
                "exclusive nor deleted automatically"
            )
        self._get_reader(queue)  # before any request is sent whose answer goes to it

    def _bound_exchanges(self, queue: str) -> set[str]:
        return {binding.exchange for binding in self.state.queue_bindings(queue)}

    def _delete(self, queue: str, *binding: Any, **more: Any) -> None:
        """Stop reading a queue; its topic stays, because others may use its messages."""
        self._stop_consuming(queue)

    def _purge(self, queue: str) -> int:
        """Skip all waiting messages of a queue for its group; return their number."""
        connection = self.connection
        topic = names.queue_topic(connection.prefix, queue)
        group = names.queue_group(connection.prefix, queue)
        with Admin(connection.name_servers, **connection.settings) as admin:
            if topic not in admin.topics.names():
                return 0
            known = {lag.queue: lag.committed for lag in admin.groups.lag(group, topic=topic)}
            ends = admin.offsets.reset(group, topic, "last")
            return sum(end - max(0, known.get(each, 0)) for each, end in ends.items())

    def _size(self, queue: str) -> int:
        """Return the number of unacknowledged messages of a queue. Messages in progress count."""
        connection = self.connection
        if queue in connection.temporary_queues:
            return 0
        topic = names.queue_topic(connection.prefix, queue)
        group = names.queue_group(connection.prefix, queue)
        try:
            with Admin(connection.name_servers, **connection.settings) as admin:
                if topic not in admin.topics.names():
                    return 0
                return sum(lag.count for lag in admin.groups.lag(group, topic=topic))
        except EscrowMQError as error:
            _log.warning("the size of the queue %r is unknown: %s", queue, error)
            return 0

    # -- publishing --------------------------------------------------------------------------

    def basic_publish(self, message: Payload, exchange: str, routing_key: str, **more: Any) -> None:
        """Store a message once for each shared queue, and once for all queues of single
        connections."""
        self._inplace_augment_message(message, exchange, routing_key)
        if not exchange:
            self._put(routing_key, message)
            return
        shared = (
            set(self._lookup(exchange, routing_key)) - self.connection.temporary_queues - {None}
        )
        for queue in shared:
            self._put(queue, message)
        if not shared or self.typeof(exchange).type == "fanout":
            self.connection.send(names.exchange_topic(self.connection.prefix, exchange), message)

    def _put(self, queue: str, message: Payload, **more: Any) -> None:
        self.connection.send(names.queue_topic(self.connection.prefix, queue), message)

    # -- consuming ---------------------------------------------------------------------------

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **more: Any
    ) -> None:
        """Start to read a queue."""
        if no_ack:
            self._no_ack.add(queue)
        else:
            self._no_ack.discard(queue)
        super().basic_consume(queue, no_ack, callback, consumer_tag, **more)
        self._leaving.discard(queue)
        # A consumer that was left continues to read: only it can settle the messages being
        # processed.
        self._get_reader(queue).resume()

    def basic_get(self, queue: str, no_ack: bool = False, **more: Any) -> Any:
        """Return a message if one is buffered; otherwise None."""
        self._get_reader(queue).wait_for_poll()
        found = super().basic_get(queue, no_ack=no_ack, **more)
        if found is not None and no_ack:
            held = self.held.pop(found.delivery_tag, None)
            if held is not None:
                held.delivery.ack()
        return found

    def basic_cancel(self, consumer_tag: str) -> None:
        """Stop reading a queue. As long as its messages are being processed, this channel stays a
        member of the queue's group, to settle them; then other members get the rest."""
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is not None and queue not in self._active_queues:
            self._stop_consuming(queue)

    def _stop_consuming(self, queue: str) -> None:
        if queue in self._readers:
            self._readers[queue].pause()
            self._leaving.add(queue)
            self.leave_group_if_done(queue)

    def leave_group_if_done(self, queue: str) -> None:
        """Leave a queue's group if it is no longer consumed and all messages are settled."""
        if queue in self._leaving and all(held.queue != queue for held in [*self.held.values()]):
            self._leaving.discard(queue)
            self._close_reader(queue)

    def _get(self, queue: str, timeout: float | None = None) -> Payload:
        found = self._get_reader(queue).next_message()
        if found is None:
            raise Empty  # kombu's way to say so
        tag = found.payload["properties"]["delivery_tag"] = uuid()
        if queue in self._no_ack or queue in self.connection.temporary_queues:
            found.delivery.ack()
        else:
            self.held[tag] = UnsettledMessage(queue, found.delivery)
        return found.payload

    def close(self) -> None:
        """Close the channel. Unsettled messages are redelivered."""
        readers, self._readers = self._readers, {}
        for reader in readers.values():
            reader.close()
        super().close()
        self.held.clear()

    def notify_capacity(self) -> None:
        """Wake the connection, because the channel can take another message."""
        if (connection := self.connection) is not None:
            with connection.news:
                connection.news.notify_all()

    # -- readers -----------------------------------------------------------------------------

    def _get_reader(self, queue: str) -> ThreadReader:
        if queue not in self._readers:
            reads_exchange = queue in self.connection.temporary_queues and self._bound_exchanges(
                queue
            )
            make = self._make_exchange_reader if reads_exchange else self._make_queue_reader
            self._readers[queue] = make(queue)
        return self._readers[queue]

    def _make_queue_reader(self, queue: str) -> ThreadReader:
        connection = self.connection
        topic = names.queue_topic(connection.prefix, queue)
        connection.make_topic(topic)
        return ThreadReader.for_queue(
            connection.name_servers,
            topic=topic,
            group=names.queue_group(connection.prefix, queue),
            settings={**connection.settings, **connection.consumer_settings},
            news=connection.news,
        )

    def _make_exchange_reader(self, queue: str) -> ThreadReader:
        connection = self.connection
        (exchange,) = self._bound_exchanges(queue)
        kind = self.typeof(exchange)

        def matches_binding(payload: Payload) -> bool:
            key = payload["properties"]["delivery_info"]["routing_key"]
            return queue in kind.lookup(self.get_table(exchange), exchange, key, None)

        topic = names.exchange_topic(connection.prefix, exchange)
        connection.make_topic(topic, queues=1)
        return ThreadReader.for_exchange(
            connection.name_servers,
            topic=topic,
            group=f"{topic}-readers",
            settings=connection.settings,
            wanted=matches_binding,
            looks_back=kind.type == "direct",
            news=connection.news,
        )

    def _close_reader(self, queue: str) -> None:
        if (reader := self._readers.pop(queue, None)) is not None:
            reader.close()


class Transport(virtual.Transport):
    """Kombu's transport. `transport_options`: `prefix` of topics and groups, `queues` of a new
    topic, `name_servers` if there are several, `consumer` and `connection` with settings of
    `escrowmq.Consumer` and of its connections."""

    Channel = Channel
    driver_type = "escrowmq"
    driver_name = "escrowmq"
    default_port = PORT
    connection_errors = (*virtual.Transport.connection_errors, TransportError)
    channel_errors = (*virtual.Transport.channel_errors, ResponseError)
    implements = virtual.Transport.implements.extend(
        exchange_type=frozenset(["direct", "topic", "fanout"])
    )

    def __init__(self, client: Any, **more: Any) -> None:
        super().__init__(client, **more)
        options = client.transport_options
        self.prefix: str = options.get("prefix", PREFIX)
        self.temporary_queues: set[str] = set()
        """Queues that live as long as this connection."""
        self.news = threading.Condition()
        """Notified when a message has come, or another one can be taken."""
        self.name_servers: str | None = options.get("name_servers") or _address_of_url(client)
        self.settings: dict[str, Any] = {**options.get("connection", {})}
        if client.userid:
            self.settings.setdefault("credentials", Credentials(client.userid, client.password))
        self.consumer_settings: dict[str, Any] = {
            "commit_interval_ms": COMMIT_INTERVAL_MS,
            "prefetch_span_max": SPAN_MAX,
            "attempts_max": ATTEMPTS_MAX,
            **options.get("consumer", {}),
        }
        self._queues_count: int = options.get("queues", QUEUES_COUNT)
        self._lock = threading.Lock()
        self._forks_count = ForkCounter.count
        self._producer: Producer | None = None

    def driver_version(self) -> str:
        """Return our version, for kombu's reports."""
        import escrowmq

        return str(escrowmq.__version__)

    # -- what channels need ------------------------------------------------------------------

    def send(self, topic: str, message: Payload) -> None:
        """Store a message; if it has an ETA, it becomes visible then."""
        headers = message.get("headers") or {}
        self._open_producer().send(
            Message(
                topic,
                dumps(message).encode(),
                keys=_keys_of(headers.get("id")),
                deliver_at=_visible_at(headers.get("eta")),
            )
        )

    def make_topic(self, topic: str, queues: int | None = None) -> None:
        """Create a topic, so that its readers need not wait for the first message. If that is not
        allowed, a broker creates it with the first message, or an administrator does."""
        try:
            with Admin(self.name_servers, **self.settings) as admin:
                if topic not in admin.topics.names():
                    admin.topics.create(topic, queues=queues or self._queues_count)
        except EscrowMQError as error:
            _log.warning("the topic %r was not created: %s", topic, error)

    def _open_producer(self) -> Producer:
        if self._forks_count != ForkCounter.count:
            # The producer is the parent's, and perhaps a thread of the parent had the lock.
            self._forks_count = ForkCounter.count
            self._producer, self._lock = None, threading.Lock()
        with self._lock:
            if self._producer is None:
                self._producer = Producer(
                    self.name_servers, group=f"{self.prefix}-producers", **self.settings
                )
            return self._producer

    # -- what kombu asks ---------------------------------------------------------------------

    def establish_connection(self) -> Any:
        """Connect. Raises if no name server answers: `ensure_connection` and Celery's workers rely
        on that, and log that they retry."""
        with Admin(self.name_servers, **self.settings) as admin:
            admin.topics.names(with_system=True)  # of the name server alone
        return super().establish_connection()

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver one message."""
        clock = SystemClock()
        end_ms = None if timeout is None else clock.now_ms() + timeout * 1000
        while True:
            try:
                self.cycle.get(self._deliver, timeout=timeout)
                return
            except Empty:
                left_s = None if end_ms is None else (end_ms - clock.now_ms()) / 1000
                if left_s is not None and left_s <= 0:
                    raise TimeoutError from None
                self._wait_for_news(self.polling_interval if left_s is None else left_s)

    def _wait_for_news(self, left_s: float) -> None:
        with self.news:
            self.news.wait(min(left_s, self.polling_interval))

    def close_connection(self, connection: Any) -> None:
        """Close the connection, with its channels and producer."""
        super().close_connection(connection)
        with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()


def _address_of_url(client: Any) -> str | None:
    """Return the URL's address; NAMESRV_ADDR of the environment if it has none."""
    return f"{client.hostname}:{client.port or PORT}" if client.hostname else None


def _keys_of(task_id: object) -> list[str]:
    """Return the id of a task as the key by which its message is found; none if it cannot be a key.
    Programs choose ids of any form."""
    is_key = isinstance(task_id, str) and task_id.isprintable() and len(task_id) <= _KEY_SIZE_MAX
    return [str(task_id)] if is_key and task_id and KEYS_SEPARATOR not in str(task_id) else []


def _visible_at(eta: object) -> dt.datetime | None:
    """Return when a message should become visible; None for immediately, also if Celery's header
    cannot be parsed."""
    try:
        due = dt.datetime.fromisoformat(str(eta))
    except ValueError:
        return None
    due = due if due.tzinfo else due.replace(tzinfo=dt.UTC)
    now = dt.datetime.fromtimestamp(SystemClock().now_ms() / 1000, dt.UTC)
    return min(due, now + DELAY_MAX) if due > now else None
