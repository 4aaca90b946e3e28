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
from escrowmq.client.core.fetched_messages import FetchedMessages
from escrowmq.client.core.message import to_received_message
from escrowmq.client.core.pulling import (
    PullCursor,
    PullStep,
    is_refusal,
    pull_fields,
    with_subscription,
)
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.subscription import Subscription
from escrowmq.client.delivery import HeldMessage, MessageHold
from escrowmq.client.inbox import Inbox
from escrowmq.client.instance import ClientInstance
from escrowmq.client.orderly_batch import OrderlyBatch
from escrowmq.client.queue_locks import LOCK_LIFE_S
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


class ReaderOwner(Protocol):
    """The parts of a consumer that all its queue readers share."""

    instance: ClientInstance
    options: ConsumerOptions
    inbox: Inbox
    wire_group: str
    size_share: int
    """Limit of the bytes that one reader may hold."""
    is_known: bool
    """Whether the group's heartbeats contain this consumer's subscriptions."""

    def may_commit(self, queue: MessageQueue) -> bool:
        """Whether a pull of a queue may carry the group's offset to the broker."""

    def subscription_to(self, topic: str) -> Subscription:
        """Return the subscription to a topic."""

    def make_delivery(self, message: HeldMessage, reader: QueueFetcher) -> HeldMessage:
        """Turn a message into a delivery."""

    def delivery_class(self) -> type[HeldMessage]:
        """The class of deliveries."""

    def move_to_dead_letters(self, message: HeldMessage, reader: QueueFetcher) -> None:
        """Move a message that cannot be decompressed to the dead letters."""


class QueueFetcher:
    """The reader of one queue: `start` begins to fetch, `stop` ends it."""

    def __init__(self, work: ReaderOwner, queue: MessageQueue, *, next_offset: int) -> None:
        self.queue = queue
        self.fetched: FetchedMessages[HeldMessage] = FetchedMessages(next_offset=next_offset)
        self.committed = -1
        """The offset that is known to be committed."""
        self.is_paused = False
        self.is_dropped = False
        self.locked_ms = 0
        """When the queue's broker last confirmed the lock, by the wall clock; only shown to
        operators."""
        self.lock_s = 0.0
        """When the lock was last requested that the queue's broker confirmed, by this client's
        steady clock, from which the age of the lock is computed."""
        self.batch = OrderlyBatch(self, work.inbox)
        """The messages being handled, if the queue is orderly."""
        self.pulled_ms = 0
        self.consumed_ms = 0
        self.task: asyncio.Task[None] | None = None
        self._owner = work
        self._cursor = PullCursor(self.fetched, wait_ms=work.options.pull_wait_ms)
        self._room = asyncio.Event()
        self._is_released = False

    @property
    def waiting_count(self) -> int:
        """Messages that have not been taken."""
        return self.fetched.waiting_count

    def take(self, count: int) -> list[HeldMessage]:
        """Take up to `count` of the waiting messages; none of an orderly queue whose lock was not
        confirmed for long, for example because this process was stopped: another member may have
        the queue."""
        if not self.is_lock_fresh():
            return []  # `record_lock` hands them out, unless the queue is lost
        found = self.fetched.take(count)
        self.batch.begin(len(found))
        return found

    def mark_settled(self, message: HeldMessage, generation: int) -> None:
        """Mark a message settled."""
        if self.fetched.mark_settled(message.queue_offset, generation=generation):
            self._room.set()

    def has_skipped(self, message: HeldMessage, generation: int) -> bool:
        """Whether the queue is now read from after this message, because of a seek or because its
        broker has deleted old messages. Then no member reads the message again."""
        is_left = self.fetched.generation != generation
        return is_left and message.queue_offset < self.fetched.begin_offset

    def put_back(self, messages: list[HeldMessage], generation: int) -> None:
        """Put taken messages back in front."""
        self.fetched.put_back(messages, generation=generation)

    def record_lock(self, asked_s: float) -> None:
        """Remember that the queue's lock was confirmed. Its time counts from the request: this
        process may have been stopped before it read the answer."""
        self.locked_ms, self.lock_s = self._owner.instance.clock.now_ms(), asked_s
        self._owner.inbox.add_source(self)

    def is_lock_fresh(self) -> bool:
        """Whether the queue needs no lock, or the lock was confirmed lately. Otherwise another
        member may have the queue."""
        owner = self._owner
        return not owner.options.is_orderly or owner.instance.now() - self.lock_s <= LOCK_LIFE_S

    def seek(self, queue_offset: int) -> None:
        """Continue at another offset; forget fetched messages."""
        self.fetched.reset(queue_offset)
        self.committed = -1
        self._room.set()
        self._restart()  # a pull under way would bring what follows the old offset

    def pause(self, is_paused: bool) -> None:
        """Pause or resume handing out and fetching."""
        self.is_paused = is_paused
        self._room.set()
        self._owner.inbox.add_source(self)

    def stop(self) -> None:
        """Stop reading the queue, which no longer belongs to this member, and forget messages that
        were not taken."""
        self.is_dropped = True
        self._owner.inbox.clear_refusal(self)
        self.fetched.stop()
        if self.task is not None:
            self.task.cancel()

    def release(self) -> bool:
        """Note that the queue was released; return whether it was not before."""
        was_released, self._is_released = self._is_released, True
        return not was_released

    def start(self) -> None:
        """Start to fetch messages."""
        self.task = self._owner.instance.keep_running(f"the reading of {self.queue}", self._run)

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
            pause_s = await self._pull_and_handle()
            if pause_s:
                await asyncio.sleep(pause_s)

    def _is_full(self) -> bool:
        options, shelf = self._owner.options, self.fetched
        return (
            self.is_paused
            or shelf.unsettled_count >= options.prefetch_max
            or shelf.size >= self._owner.size_share
            or (not options.is_orderly and shelf.offset_span >= options.prefetch_span_max)
        )

    async def _pull_and_handle(self) -> float:
        clock = self._owner.instance.clock
        try:
            asked_ms = clock.now_ms()
            reply = await self._pull()
            self.pulled_ms = clock.now_ms()
            pause_s = self._handle_reply(reply, took_ms=self.pulled_ms - asked_ms)
        except (TransportError, RouteMissing, ProtocolError) as error:
            self._cursor.ask_master_next()
            return self._log_failure(error)
        except EscrowMQError as error:
            # For example, a record fails its check. It is logged each time, because no message gets
            # through.
            _log.error("the broker's messages of %s cannot be parsed: %s", self.queue, error)
            return self._log_failure(error, is_refused=True)
        return pause_s

    async def _pull(self) -> Command:
        work, options, shelf = self._owner, self._owner.options, self.fetched
        subscription = work.subscription_to(self.queue.topic)
        may_commit = self.is_lock_fresh() and work.may_commit(self.queue)
        fields = pull_fields(
            self.queue,
            subscription,
            group=work.wire_group,
            queue_offset=shelf.next_offset,
            commit_offset=max(0, shelf.commit_offset) if may_commit else 0,
            count_max=min(options.pull_count, options.prefetch_max - shelf.unsettled_count),
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
        instance = self._owner.instance
        return instance.reader_address(self.queue.broker_name, self._cursor.broker_id)

    def _handle_reply(self, reply: Command, *, took_ms: int) -> float:
        cursor, was_at = self._cursor, self.fetched.next_offset
        step, next_offset = cursor.apply_reply(reply)
        if step in (PullStep.REFUSED, PullStep.FAILED):
            error = response_error(reply.code, reply.remark, address=self._address())
            is_refused = step is PullStep.REFUSED or is_refusal(error)
            if is_refused:
                self._owner.inbox.set_refusal(self, error)
            return self._log_failure(error, is_refused=is_refused)
        if step is not PullStep.REST:
            self._owner.inbox.clear_refusal(self)
        if step is PullStep.TAKE:
            self._add_messages(reply, next_offset)
        elif step is PullStep.MOVE:
            self._move_to(was_at, next_offset, reply.remark)
        return cursor.pause_s(step, took_ms=took_ms)

    def _log_failure(self, error: EscrowMQError, *, is_refused: bool = False) -> float:
        level = logging.WARNING if self._cursor.failures_count == 0 else logging.DEBUG
        _log.log(level, "nothing can be read from %s now: %s; tried again", self.queue, error)
        return self._cursor.count_failure(is_refused=is_refused)

    def _move_to(self, was_at: int, next_offset: int, remark: str | None) -> None:
        """Continue at the offset that the broker has named, and log the change."""
        _log.log(
            logging.DEBUG if self._cursor.moves_count > 1 else logging.WARNING,
            "%s continues at offset %d instead of %d: the broker says %s",
            self.queue, next_offset, was_at, remark or "so",
        )  # fmt: skip
        self.committed = -1

    def _add_messages(self, reply: Command, next_offset: int) -> None:
        work = self._owner
        wanted = work.subscription_to(self.queue.topic)
        unwrap = work.instance.options.without_namespace
        found: list[HeldMessage] = []
        broken: list[HeldMessage] = []
        room = work.size_share - self.fetched.size
        for stored in decode_records(reply.body):
            if room <= 0:
                # Compressed messages may be large after decompression: pull the rest again when
                # there is space.
                next_offset = stored.queue_offset
                break
            tag = stored.properties.get(Property.TAGS, "")
            if not wanted.matches_tag(tag):
                continue
            topic = stored.topic
            if topic.startswith(Topic.RETRY_PREFIX):
                topic = stored.properties.get(Property.RETRY_TOPIC, topic)
            name, kind = self.queue.broker_name, work.delivery_class()
            try:
                message = to_received_message(
                    stored, topic=unwrap(topic), broker_name=name, kind=kind
                )
            except RemoteProtocolError as error:
                _log.error("%s: offset %d: %s", self.queue, stored.queue_offset, error)
                packed = msgspec.structs.replace(stored, sys_flag=0)
                broken.append(
                    to_received_message(packed, topic=unwrap(topic), broker_name=name, kind=kind)
                )
                continue
            room -= len(message.body)
            found.append(work.make_delivery(message, self))
        self.fetched.add(found, next_offset=next_offset, hidden=broken)
        for message in broken:
            work.move_to_dead_letters(message, self)
        work.inbox.add_source(self)


def hold_orderly_queue(messages: Sequence[HeldMessage]) -> MessageHold:
    """Return a hold: until it ends, the orderly queue of these messages hands out no more."""
    assert messages[0].delivery_state is not None
    fetcher = messages[0].delivery_state.source
    assert isinstance(fetcher, QueueFetcher)
    return fetcher.batch.make_hold()
