"""A group's offsets, fetched from the brokers and stored there."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from escrowmq.base.codes import Request, Response
from escrowmq.base.message import Topic
from escrowmq.client.consumer_settings import Start
from escrowmq.client.core.reply_numbers import parse_number_field
from escrowmq.client.core.routes import MessageQueue, queue_fields
from escrowmq.client.core.unreadable_answers import convert_parse_errors
from escrowmq.client.instance import ClientInstance
from escrowmq.client.queue_fetcher import QueueFetcher
from escrowmq.errors import EscrowMQError, PermissionDenied, UsageError, response_error

_log = logging.getLogger(__name__)

_COMMITS_AT_ONCE_MAX: Final = 64

SeekPosition = int | dt.datetime | Literal["first", "last"]
"""A place in a queue: an offset, the first message since a time, the oldest message, the end."""


class QueueBirth(NamedTuple):
    """The first offset of a queue, and when that message was stored, in ms by its broker's
    clock."""

    first: int
    stored_ms: int

    def is_of_another(self, before: QueueBirth) -> bool:
        """Whether this is another queue than the one of an earlier birth: its topic was deleted and
        created again. Retention only increases the first offset. A replica that keeps more begins
        earlier, with an older message."""
        if self.first < before.first:
            return self.stored_ms > before.stored_ms
        return self.first == before.first and self.stored_ms != before.stored_ms


class QueueBounds:
    """Requests brokers for the first and last offsets of queues, and offsets by time."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance

    async def first_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest stored message."""
        return await self._ask_offset(queue, Request.GET_MIN_OFFSET, {})

    async def end_offset(self, queue: MessageQueue) -> int:
        """Return the end of the queue: the offset that the next stored message will get."""
        return await self._ask_offset(queue, Request.GET_MAX_OFFSET, {})

    async def start_offset(self, queue: MessageQueue, start: Start, *, since_ms: int | None) -> int:
        """Return where a group without an offset starts. `since_ms` is given for a queue that
        appeared while its reader ran: messages since then count as new, also for `last`."""
        if start == "first":
            return await self.first_offset(queue)
        if start != "last":
            return await self.offset_at_time(queue, int(start.timestamp() * 1000))
        if since_ms is not None:
            return await self.offset_at_time(queue, since_ms)
        return await self.end_offset(queue)

    async def seek_offset(self, queue: MessageQueue, where: SeekPosition) -> int:
        """Return the offset that a position names. Raises UsageError if it names none."""
        if isinstance(where, dt.datetime):
            if where.tzinfo is None:
                raise UsageError(f"{where!r} has no time zone; give it one")
            return await self.offset_at_time(queue, int(where.timestamp() * 1000))
        if where == "first":
            return await self.first_offset(queue)
        if where == "last":
            return await self.end_offset(queue)
        if where >= 0:
            return where
        raise UsageError(f"where={where!r}; an offset, a datetime, 'first' or 'last' is expected")

    async def offset_at_time(self, queue: MessageQueue, moment_ms: int) -> int:
        """Return the offset of the first message stored at that time or later; the end if there is
        none."""
        more = {"timestamp": str(moment_ms)}
        return await self._ask_offset(queue, Request.SEARCH_OFFSET_BY_TIMESTAMP, more)

    async def birth(self, queue: MessageQueue) -> QueueBirth | None:
        """Return the birth of a queue; None if it has no message, its broker does not say, or
        retention removes the first message just now."""
        try:
            first = await self.first_offset(queue)
        except PermissionDenied:
            return None
        address = self._instance.reader_address(queue.broker_name)
        code = Request.GET_EARLIEST_MSG_STORETIME
        reply = await self._instance.request(address, code, {**queue_fields(queue)})
        if reply.code != Response.SUCCESS:
            return None
        with convert_parse_errors(address, code):
            stored_ms = parse_number_field(reply, "timestamp", otherwise=-1)
        is_known = stored_ms >= 0 and await self.first_offset(queue) == first
        return QueueBirth(first, stored_ms) if is_known else None

    async def _ask_offset(self, queue: MessageQueue, code: int, more: dict[str, str]) -> int:
        address = self._instance.reader_address(queue.broker_name)
        reply = await self._instance.ask(address, code, {**queue_fields(queue), **more})
        with convert_parse_errors(address, code):
            return parse_number_field(reply, "offset")


class BrokerOffsets:
    """Offsets of a group, stored by the brokers."""

    def __init__(
        self, instance: ClientInstance, group: str, start: Start, *, keeps_start: bool = False
    ) -> None:
        self._instance = instance
        self._group = group
        self._start = start
        self._keeps_start = keeps_start
        self._bounds = QueueBounds(instance)
        self._has_failed = False
        self._limit = asyncio.Semaphore(_COMMITS_AT_ONCE_MAX)
        self._kept: set[tuple[str, str]] = set()
        """Pairs of a broker and a topic for which the broker stores an offset of this group."""
        self._firsts: dict[tuple[str, str], asyncio.Future[EscrowMQError | None]] = {}
        """First commits that are in flight, with their results."""

    async def start_offset(self, queue: MessageQueue, *, since_ms: int | None = None) -> int:
        """Return where to start in a queue: at the committed offset, otherwise where new groups
        start."""
        found = await self.committed(queue)
        if found is not None:
            return found
        # As in RocketMQ: a message in a retry topic failed in this group, and `last` must not skip
        # it.
        if queue.topic.startswith(Topic.RETRY_PREFIX):
            return 0
        found = await self._bounds.start_offset(queue, self._start, since_ms=since_ms)
        if self._keeps_start and self._start != "first":
            # Commit immediately: if this member stops soon, the next one would otherwise begin
            # later.
            await self.commit(queue, found)
        return found

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the committed offset; None if there is none."""
        address = self._instance.reader_address(queue.broker_name)
        fields = {
            **queue_fields(queue),
            "consumerGroup": self._group,
            "setZeroIfNotFound": "false",
        }
        reply = await self._instance.request(address, Request.QUERY_CONSUMER_OFFSET, fields)
        if reply.code == Response.QUERY_NOT_FOUND:
            return None
        if reply.code != Response.SUCCESS:
            raise response_error(reply.code, reply.remark, address=address)
        with convert_parse_errors(address, Request.QUERY_CONSUMER_OFFSET):
            found = parse_number_field(reply, "offset")
        self._kept.add((queue.broker_name, queue.topic))
        return found

    def has_broker_offsets(self, queue: MessageQueue) -> bool:
        """Whether the queue's broker stores an offset of the group for any queue of the topic."""
        return (queue.broker_name, queue.topic) in self._kept

    async def commit(self, queue: MessageQueue, queue_offset: int) -> None:
        """Commit an offset. The first one for a topic at a broker is sent alone: if two are the
        first at the same time, RocketMQ's brokers (ConsumerOffsetManager.commitOffset, 5.3.3) lose
        one."""
        place = (queue.broker_name, queue.topic)
        first = self._firsts.get(place)
        if first is None and place not in self._kept:
            await self._commit_first(place, queue, queue_offset)
            return
        failure = None if first is None else await asyncio.shield(first)
        if failure is not None:
            raise failure
        await self._send_commit(queue, queue_offset)

    async def _commit_first(
        self, place: tuple[str, str], queue: MessageQueue, queue_offset: int
    ) -> None:
        failure = None
        first = self._firsts[place] = asyncio.get_running_loop().create_future()
        try:
            await self._send_commit(queue, queue_offset)
            self._kept.add(place)
        except EscrowMQError as error:
            failure = error
            raise
        finally:
            del self._firsts[place]
            first.set_result(failure)

    async def _send_commit(self, queue: MessageQueue, queue_offset: int) -> None:
        address = self._instance.reader_address(queue.broker_name)
        fields = {
            **queue_fields(queue),
            "consumerGroup": self._group,
            "commitOffset": str(queue_offset),
        }
        await self._instance.ask(address, Request.UPDATE_CONSUMER_OFFSET, fields)

    async def store_offsets(self, readers: Iterable[QueueFetcher]) -> None:
        """Commit changed offsets. Failures are retried in the next round."""
        changed = [reader for reader in readers if reader.fetched.commit_offset != reader.committed]
        errors = await asyncio.gather(*(self._commit_reader(reader) for reader in changed))
        failed = [error for error in errors if error is not None]
        if failed:
            level = logging.DEBUG if self._has_failed else logging.WARNING
            _log.log(level, "offsets of %d queues are not kept yet: %s", len(failed), failed[0])
        self._has_failed = bool(failed)

    async def _commit_reader(self, reader: QueueFetcher) -> EscrowMQError | None:
        queue_offset = reader.fetched.commit_offset
        generation = reader.fetched.generation
        async with self._limit:
            try:
                await self.commit(reader.queue, queue_offset)
            except EscrowMQError as error:
                return error
        # After a seek meanwhile, this offset is outdated; the next round stores the right one.
        if generation == reader.fetched.generation:
            reader.committed = queue_offset
        return None
