"""The plain sink: waits for every acknowledgement, and retries like the SDK."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

from escrowmq.base.message import Property
from escrowmq.client.core.message import Message
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.producer import Producer
from escrowmq.errors import RouteMissing, SendFailed, TransportError, UsageError
from escrowmq.net.clock import SystemClock
from escrowmq.pipeline.sink.options import IN_FLIGHT_SIZE_MAX, RESTART_WAIT_MS, SinkOptions
from escrowmq.pipeline.sink.rows import AddressedMessage, messages_of_rows

_log = logging.getLogger(__name__)

_REST_S: Final = 0.2
_UNIT_SIZE: Final = 64 << 10
"""The bytes in flight are counted in units of this size. Smaller sends are not counted."""


def send_plain(batches: Iterable[Any], options: SinkOptions) -> int:
    """Send all rows of Arrow batches; return their number when the last one is stored."""
    return _run(batches, options, key_prefix="")


def send_keyed(batches: Iterable[Any], options: SinkOptions, *, key_prefix: str) -> int:
    """Send all rows like `send_plain`, with unique keys that stay the same when the rows are sent
    again, so that consumers can skip duplicates."""
    return _run(batches, options, key_prefix=key_prefix)


def _run(batches: Iterable[Any], options: SinkOptions, *, key_prefix: str) -> int:
    try:
        return asyncio.run(_send(batches, options, key_prefix=key_prefix))
    except BaseExceptionGroup as group:
        # Sends that are under way together fail together, and mostly for one reason.
        raise first_error(group) from None


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error inside exception groups."""
    first = group.exceptions[0]
    return first_error(first) if isinstance(first, BaseExceptionGroup) else first


async def _send(batches: Iterable[Any], options: SinkOptions, *, key_prefix: str) -> int:
    sending, access = options.sending, options.access
    producer = Producer(
        access.name_servers,
        group=options.group,
        credentials=access.credentials(),
        tls=access.tls(),
        timeout_ms=sending.timeout_ms,
        retries=sending.retries,
        compression_over_size=sending.compress_over,
        body_size_max=sending.body_size_max,
    )
    count = 0
    async with producer:
        writer = RowSender(producer, options)
        for batch in batches:
            rows = list(messages_of_rows(batch, topic=options.topic, order_by=options.order_by))
            if key_prefix:
                await writer.send_keyed(rows, key_prefix=key_prefix, first=count)
            else:
                await writer.send(rows)
            count += len(rows)
    return count


class RowSender:
    """Sends rows of one task. Messages with the same order key are sent in order, also across Arrow
    batches: a batch is fully acknowledged before the next begins."""

    def __init__(self, producer: Producer, options: SinkOptions) -> None:
        self._producer = producer
        self._options = options
        self._clock = SystemClock()
        self._turns = asyncio.Semaphore(options.sending.at_once)
        self._units_max = IN_FLIGHT_SIZE_MAX // _UNIT_SIZE
        self._units = asyncio.Semaphore(self._units_max)
        self._next = asyncio.Lock()
        """Held by the send that waits for units, so that no two wait for each other's."""

    async def send(self, rows: list[AddressedMessage]) -> None:
        """Send rows in batches where possible. If a row of an order key cannot be in a batch, none
        of that key is."""
        chunks: dict[tuple[str, str], list[Message]] = {}
        alone: list[AddressedMessage] = []
        single = {_order_of(row) for row in rows if row.message.order_key and self._is_single(row)}
        for row in rows:
            order = _order_of(row)
            if order in single or self._is_single(row):
                alone.append(row)
            else:
                chunks.setdefault(order, []).append(row.message)
        async with asyncio.TaskGroup() as group:
            for (_, order_key), messages in chunks.items():
                if order_key:
                    group.create_task(self._send_in_turn(messages))
                else:
                    for chunk in self._split_batch(messages):
                        group.create_task(self._send_in_turn(chunk))
            for same in _group_by_order_key(alone):
                group.create_task(self._send_one_by_one(same))

    def _is_single(self, row: AddressedMessage) -> bool:
        """Whether a row cannot be sent in a batch."""
        message = row.message
        is_late = bool(message.delay_level) or message.deliver_at is not None
        is_odd = is_late or bool(row.extra) or row.queue_id is not None
        return is_odd or self._options.sending.batch_count == 1

    async def send_keyed(
        self, rows: list[AddressedMessage], *, key_prefix: str, first: int
    ) -> None:
        """Send rows one by one, each with its key; a batch does not work, because on RocketMQ's
        brokers the batch's own key would replace theirs."""
        for index, row in enumerate(rows):
            name = f"{key_prefix}/{first + index}".encode()
            key = hashlib.blake2b(name, digest_size=16).hexdigest().upper()
            row.unique_key = key
        async with asyncio.TaskGroup() as group:
            for same in _group_by_order_key(rows):
                group.create_task(self._send_one_by_one(same))

    async def _send_in_turn(self, messages: list[Message]) -> None:
        async with self._turns:
            for chunk in self._split_batch(messages):
                async with self._room_for(sum(len(message.body) for message in chunk)):
                    await self._retry_unreachable(
                        functools.partial(self._producer.send_many, chunk)
                    )

    async def _send_one_by_one(self, rows: list[AddressedMessage]) -> None:
        async with self._turns:
            for row in rows:
                async with self._room_for(len(row.message.body)):
                    await self._retry_unreachable(functools.partial(self._send_row, row))

    @asynccontextmanager
    async def _room_for(self, size: int) -> AsyncIterator[None]:
        """Wait until so many bytes more may be in flight."""
        wanted, held = min(size // _UNIT_SIZE, self._units_max), 0
        try:
            async with self._next:
                while held < wanted:
                    await self._units.acquire()
                    held += 1
            yield
        finally:
            for _ in range(held):
                self._units.release()

    async def _retry_unreachable(self, send: Callable[[], Awaitable[object]]) -> None:
        """Retry while the broker is unreachable, because it may be restarting. A topic that never
        had a route does not exist, and is not waited for."""
        began_ms = self._clock.now_ms()
        was_away = False
        while True:
            try:
                await send()
            except (TransportError, SendFailed, RouteMissing) as error:
                was_away = was_away or not isinstance(error, RouteMissing)
                is_over = self._clock.now_ms() - began_ms > RESTART_WAIT_MS
                if is_over or not was_away or not self._options.sending.retries:
                    raise
                _log.warning("%s; sending again", error)
                await asyncio.sleep(_REST_S)
            else:
                return

    async def _send_row(self, row: AddressedMessage) -> None:
        queue = await self._requested_queue(row) if row.queue_id is not None else None
        extra = {**row.extra, Property.UNIQ_KEY: row.unique_key} if row.unique_key else row.extra
        if not extra:
            await self._producer.send(row.message, queue=queue)
            return
        dispatch = self._producer.dispatch
        out = dispatch.prepare(row.message, extra)
        await dispatch.send_prepared(row.message, out, queue=queue)

    async def _requested_queue(self, row: AddressedMessage) -> MessageQueue:
        queues = await self._producer.instance.queues_to_write(row.message.topic)
        for queue in queues:
            if queue.queue_id == row.queue_id and row.broker_name in ("", queue.broker_name):
                return queue
        raise UsageError(
            f"queueId={row.queue_id} (brokerName={row.broker_name!r}) is not a writable "
            f"queue of {row.message.topic}; it has {len(queues)}"
        )

    def _split_batch(self, messages: list[Message]) -> list[list[Message]]:
        sending = self._options.sending
        chunks: list[list[Message]] = []
        size = 0
        for message in messages:
            size += len(message.body)
            if not chunks or len(chunks[-1]) >= sending.batch_count or size > sending.batch_size:
                chunks.append([])
                size = len(message.body)
            chunks[-1].append(message)
        return chunks


def _order_of(row: AddressedMessage) -> tuple[str, str]:
    return row.message.topic, row.message.order_key


def _group_by_order_key(rows: list[AddressedMessage]) -> list[list[AddressedMessage]]:
    """Group rows with the same order key; every other row is alone."""
    keyed: dict[tuple[str, str], list[AddressedMessage]] = {}
    found: list[list[AddressedMessage]] = []
    for row in rows:
        if row.message.order_key:
            keyed.setdefault(_order_of(row), []).append(row)
        else:
            found.append([row])
    return [*found, *keyed.values()]
