"""Fetches messages of one queue for this consumer, while fewer than the limits are held."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.message import Property, Topic
from escrowmq.client.consumer_settings import ConsumerOptions
from escrowmq.client.core.fetched_messages import Shelf
from escrowmq.client.core.message import received
from escrowmq.client.core.pulling import (
    Cursor,
    PullStep,
    is_refusal,
    pull_fields,
    with_subscription,
)
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.subscription import Subscription
from escrowmq.client.delivery import HeldMessage, Hold
from escrowmq.client.inbox import Inbox
from escrowmq.client.instance import Instance
from escrowmq.client.orderly_batch import OrderlyBatch
from escrowmq.codec.record import decode_records
from escrowmq.errors import (
    EscrowMQError,
    ProtocolError,
    RemoteProtocolError,
    RouteMissing,
    TransportError,
    response_error,
)

_log = logging.getLogger(__name__)

_ANSWER_LATE_MS: Final = 15_000
"""How much later than requested a broker may answer a pull that it held (in ms)."""


class ReaderWork(Protocol):
    """The parts of a consumer that all its queue readers share."""

    instance: Instance
    options: ConsumerOptions
    inbox: Inbox
    wire_group: str
    size_share: int
    """Limit of the bytes that one reader may hold."""
    is_known: bool
    """Whether the group's heartbeats contain this consumer's subscriptions."""

    def commits(self, queue: MessageQueue) -> bool:
        """Whether a pull of a queue may carry the group's offset to the broker."""

    def subscribed(self, topic: str) -> Subscription:
        """Return the subscription to a topic."""

    def stamp(self, message: HeldMessage, reader: QueueFetcher) -> HeldMessage:
        """Turn a message into a delivery."""

    def kind(self) -> type[HeldMessage]:
        """The class of deliveries."""

    def move_to_dead_letters(self, message: HeldMessage, reader: QueueFetcher) -> None:
        """Move a message that cannot be decompressed to the dead letters."""


class QueueFetcher:
    """The reader of one queue: `start` begins to fetch, `drop` ends it."""

    def __init__(self, work: ReaderWork, queue: MessageQueue, *, next_offset: int) -> None:
        self.queue = queue
        self.shelf: Shelf[HeldMessage] = Shelf(next_offset=next_offset)
        self.committed = -1
        """The offset that is known to be committed."""
        self.is_paused = False
        self.is_dropped = False
        self.locked_ms = 0
        """When the queue's broker last confirmed the lock, by the wall clock; only shown to
        operators."""
        self.lock_s = 0.0
        """When the queue's broker last confirmed the lock, by this client's steady clock, from
        which the age of the lock is computed."""
        self.batch = OrderlyBatch(self, work.inbox)
        """The messages being handled, if the queue is orderly."""
        self.pulled_ms = 0
        self.consumed_ms = 0
        self.task: asyncio.Task[None] | None = None
        self._work = work
        self._cursor = Cursor(self.shelf, wait_ms=work.options.pull_wait_ms)
        self._room = asyncio.Event()

    @property
    def waiting_count(self) -> int:
        """Messages that have not been taken."""
        return self.shelf.waiting_count

    def take(self, count: int) -> list[HeldMessage]:
        """Take up to `count` of the waiting messages."""
        found = self.shelf.take(count)
        self.batch.begin(len(found))
        return found

    def finish(self, message: HeldMessage, generation: int) -> None:
        """Mark a message settled."""
        if self.shelf.finish(message.queue_offset, generation=generation):
            self._room.set()

    def has_passed(self, message: HeldMessage, generation: int) -> bool:
        """Whether the queue is now read from after this message, because of a seek or because its
        broker has deleted old messages. Then no member reads the message again."""
        is_left = self.shelf.generation != generation
        return is_left and message.queue_offset < self.shelf.begin_offset

    def give_back(self, messages: list[HeldMessage], generation: int) -> None:
        """Put taken messages back in front."""
        self.shelf.give_back(messages, generation=generation)

    def note_locked(self) -> None:
        """Remember that the queue's lock was confirmed now."""
        instance = self._work.instance
        self.locked_ms, self.lock_s = instance.clock.now_ms(), instance.now()

    def seek(self, queue_offset: int) -> None:
        """Continue at another offset; forget fetched messages."""
        self.shelf.reset(queue_offset)
        self.committed = -1
        self._room.set()
        self._restart()  # a pull under way would bring what follows the old offset

    def pause(self, is_paused: bool) -> None:
        """Pause or resume handing out and fetching."""
        self.is_paused = is_paused
        self._room.set()
        self._work.inbox.offer(self)

    def drop(self) -> None:
        """Stop reading the queue, which no longer belongs to this member, and forget messages that
        were not taken."""
        self.is_dropped = True
        self._work.inbox.clear_refusal(self)
        self.shelf.end()
        if self.task is not None:
            self.task.cancel()

    def start(self) -> None:
        """Start to fetch messages."""
        self.task = self._work.instance.keep(f"the reading of {self.queue}", self._run)

    # -- inside ------------------------------------------------------------------------------

    def _restart(self) -> None:
        if self.task is not None and not self.is_dropped:
            self.task.cancel()
            self.start()

    async def _run(self) -> None:
        while True:
            while self._is_full():
                self._room.clear()
                await self._room.wait()
            pause_s = await self._round()
            if pause_s:
                await asyncio.sleep(pause_s)

    def _is_full(self) -> bool:
        options, shelf = self._work.options, self.shelf
        return (
            self.is_paused
            or shelf.count >= options.prefetch_max
            or shelf.size >= self._work.size_share
            or (not options.is_orderly and shelf.span >= options.prefetch_span_max)
        )

    async def _round(self) -> float:
        clock = self._work.instance.clock
        try:
            asked_ms = clock.now_ms()
            reply = await self._pull()
            self.pulled_ms = clock.now_ms()
            pause_s = self._judge(reply, took_ms=self.pulled_ms - asked_ms)
        except (TransportError, RouteMissing, ProtocolError) as error:
            self._cursor.lost()
            return self._failed(error)
        except EscrowMQError as error:
            # For example, a record fails its check. It is logged each time, because no message gets
            # through.
            _log.error("the broker's messages of %s cannot be parsed: %s", self.queue, error)
            return self._failed(error, is_refused=True)
        return pause_s

    async def _pull(self) -> Command:
        work, options, shelf = self._work, self._work.options, self.shelf
        subscription = work.subscribed(self.queue.topic)
        fields = pull_fields(
            self.queue,
            subscription,
            group=work.wire_group,
            queue_offset=shelf.next_offset,
            commit_offset=max(0, shelf.commit_offset) if work.commits(self.queue) else 0,
            count_max=min(options.pull_count, options.prefetch_max - shelf.count),
            suspend_ms=options.pull_wait_ms,
        )
        if not work.is_known:
            fields = with_subscription(fields, subscription)
        return await work.instance.request(
            self._address(),
            Request.PULL_MESSAGE,
            fields,
            timeout_ms=options.pull_wait_ms + _ANSWER_LATE_MS,
        )

    def _address(self) -> str:
        instance = self._work.instance
        return instance.reader_address(self.queue.broker_name, self._cursor.broker_id)

    def _judge(self, reply: Command, *, took_ms: int) -> float:
        cursor, was_at = self._cursor, self.shelf.next_offset
        step, next_offset = cursor.answered(reply)
        if step in (PullStep.REFUSED, PullStep.FAILED):
            error = response_error(reply.code, reply.remark, address=self._address())
            is_refused = step is PullStep.REFUSED or is_refusal(error)
            if is_refused:
                self._work.inbox.set_refusal(self, error)
            return self._failed(error, is_refused=is_refused)
        if step is not PullStep.REST:
            self._work.inbox.clear_refusal(self)
        if step is PullStep.TAKE:
            self._put(reply, next_offset)
        elif step is PullStep.MOVE:
            self._moved(was_at, next_offset, reply.remark)
        return cursor.pause_s(step, took_ms=took_ms)

    def _failed(self, error: EscrowMQError, *, is_refused: bool = False) -> float:
        level = logging.WARNING if self._cursor.failures_count == 0 else logging.DEBUG
        _log.log(level, "nothing can be read from %s now: %s; tried again", self.queue, error)
        return self._cursor.failed(is_refused=is_refused)

    def _moved(self, was_at: int, next_offset: int, remark: str | None) -> None:
        """Continue at the offset that the broker has named, and log the change."""
        _log.log(
            logging.DEBUG if self._cursor.moves_count > 1 else logging.WARNING,
            "%s continues at offset %d instead of %d: the broker says %s",
            self.queue, next_offset, was_at, remark or "so",
        )  # fmt: skip
        self.committed = -1

    def _put(self, reply: Command, next_offset: int) -> None:
        work = self._work
        wanted = work.subscribed(self.queue.topic)
        unwrap = work.instance.options.unwrap
        found: list[HeldMessage] = []
        broken: list[HeldMessage] = []
        room = work.size_share - self.shelf.size
        for stored in decode_records(reply.body):
            if room <= 0:
                # Compressed messages may be large after decompression: pull the rest again when
                # there is space.
                next_offset = stored.queue_offset
                break
            tag = stored.properties.get(Property.TAGS, "")
            if not wanted.wants(tag):
                continue
            topic = stored.topic
            if topic.startswith(Topic.RETRY_PREFIX):
                topic = stored.properties.get(Property.RETRY_TOPIC, topic)
            name, kind = self.queue.broker_name, work.kind()
            try:
                message = received(stored, topic=unwrap(topic), broker_name=name, kind=kind)
            except RemoteProtocolError as error:
                _log.error("%s: offset %d: %s", self.queue, stored.queue_offset, error)
                packed = msgspec.structs.replace(stored, sys_flag=0)
                broken.append(received(packed, topic=unwrap(topic), broker_name=name, kind=kind))
                continue
            room -= len(message.body)
            found.append(work.stamp(message, self))
        self.shelf.put(found, next_offset=next_offset, hidden=broken)
        for message in broken:
            work.move_to_dead_letters(message, self)
        work.inbox.offer(self)


def hold_queue(messages: Sequence[HeldMessage]) -> Hold:
    """Return a hold: until it ends, the orderly queue of these messages hands out no more."""
    assert messages[0].ticket is not None
    fetcher = messages[0].ticket.source
    assert isinstance(fetcher, QueueFetcher)
    return fetcher.batch.hold()
