"""The state of a consumer: the queues it reads, the messages it has handed out, what is settled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypedDict, Unpack

from escrowmq.base.message import Topic
from escrowmq.client.assignment_events import AssignmentCallbacks
from escrowmq.client.closing import await_unless_closed
from escrowmq.client.consumer_settings import ConsumerOptions
from escrowmq.client.core.hooks import Consumed
from escrowmq.client.core.redelivery import NEVER, level_delay_s
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.subscription import Subscription
from escrowmq.client.core.trace_records import ConsumeResult
from escrowmq.client.delivery import DeliveryState, HeldMessage, MessageHold, NoHold
from escrowmq.client.inbox import Inbox
from escrowmq.client.instance import ClientInstance
from escrowmq.client.interceptors import InterceptorCalls
from escrowmq.client.offset_stores import OffsetStore, without_overtaken
from escrowmq.client.queue_fetcher import QueueFetcher, hold_orderly_queue
from escrowmq.client.queue_locks import BROKERS_LIFE_S, RENEW_MS, make_queue_locks
from escrowmq.client.rebalance import Rebalancer
from escrowmq.client.send_backs import LocalRedeliveries, SendBacks
from escrowmq.errors import EscrowMQError, PermissionDenied, UsageError

_log = logging.getLogger(__name__)

_KEEP_HERE_S: Final = 5.0
"""If no broker takes a failed message back, it is redelivered from memory after this time."""

_LEAVE_AGAIN_S: Final = 0.5

_CLOCKS_APART_MS: Final = 60_000
"""How far a broker's clock, by which messages are found, may be behind ours (in ms)."""


class ConsumerParts(TypedDict):
    """The parts from which a `ConsumerState` is made, as keywords."""

    group: str
    offsets: OffsetStore
    returns: SendBacks
    stamp: Callable[[HeldMessage], None]
    kind: type[HeldMessage]


class ConsumerState:
    """The readers of a consumer's queues, and the settling of its deliveries."""

    def __init__(
        self,
        instance: ClientInstance,
        options: ConsumerOptions,
        **parts: Unpack[ConsumerParts],
    ) -> None:
        self.instance = instance
        self.options = options
        self.wire_group = parts["group"]
        self.user_group = instance.options.without_namespace(self.wire_group)
        self.is_broadcasting = options.is_broadcasting
        self.inbox = Inbox(is_orderly=options.is_orderly)
        self.interceptor_calls = InterceptorCalls(options.interceptors)
        self.readers: dict[MessageQueue, QueueFetcher] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.size_share = options.prefetch_size_max
        self.is_known = not options.queues
        self._chosen = {instance.wire_queue(queue) for queue in options.queues}
        self.offsets = parts["offsets"]
        self.balance = Rebalancer(
            self,
            strategy=options.strategy,
            interval_ms=options.rebalance_interval_ms,
            takes_all=bool(options.is_broadcasting or options.mode == "pop" or options.queues),
        )
        self._began_ms = instance.clock.now_ms()
        self._initial_queues: dict[str, frozenset[MessageQueue]] = {}
        """By subscribed topic: the queues that it had when its route was first read."""
        self.locks = make_queue_locks(instance, self.wire_group, options)
        self.hold: Callable[[Sequence[HeldMessage]], MessageHold] = (
            hold_orderly_queue if options.is_orderly else lambda _: NoHold()
        )
        self.is_paused = False
        self.leaving: dict[MessageQueue, QueueFetcher] = {}
        self.assignment_callbacks = AssignmentCallbacks(
            instance,
            on_assigned=options.on_assigned,
            on_revoked=options.on_revoked,
            own_retries=self.retry_topic(),
        )
        self._returns = parts["returns"]
        self._redeliveries = LocalRedeliveries(self.inbox)
        self.decorate = parts["stamp"]
        """Sets the portal of blocking deliveries."""
        self._kind = parts["kind"]

    # -- what readers ask ----------------------------------------------------------------------

    def delivery_class(self) -> type[HeldMessage]:
        """The class of deliveries."""
        return self._kind

    @property
    def has_topics(self) -> bool:
        """Whether topics other than the group's own retries are read."""
        return bool(self.subscriptions.keys() - {self.retry_topic()})

    def subscription_to(self, topic: str) -> Subscription:
        """Return the subscription to a topic; one to all messages if it was just unsubscribed."""
        return self.subscriptions.get(topic) or Subscription(topic=topic)

    def make_delivery(self, message: HeldMessage, reader: QueueFetcher) -> HeldMessage:
        """Turn a message into a delivery of a reader."""
        message.delivery_state = DeliveryState(self, reader, generation=reader.fetched.generation)
        self.decorate(message)
        return message

    # -- what the balance asks -----------------------------------------------------------------

    def wanted_topics(self) -> list[str]:
        """Return the topics to read, by the brokers' names."""
        self.leave_topics()
        return list(self.subscriptions)

    def leave_topics(self) -> None:
        """Hand out nothing more of topics that are no longer subscribed to, and start to release
        their queues."""
        wanted = self.subscriptions.keys()
        gone = [reader for reader in self.readers.values() if reader.queue.topic not in wanted]
        if gone:
            self.instance.spawn(self._drop_queues([reader.queue for reader in gone]))
        for reader in gone:
            reader.stop()
        for topic in self._initial_queues.keys() - wanted:
            del self._initial_queues[topic]

    async def assign_queues(self, topic: str, queues: list[MessageQueue]) -> bool:
        """Read exactly these queues of a topic from now on."""
        if self._chosen:
            queues = [queue for queue in queues if queue in self._chosen]
        mine = set(queues)
        gone = [queue for queue in self.readers if queue.topic == topic and queue not in mine]
        if gone:
            await self._drop_queues(gone)
        new = [queue for queue in queues if queue not in self.readers]
        # Messages of a revoked queue may still be unsettled: it must not be started again before
        # they are settled, or both runs would commit offsets.
        waits = any(queue in self.leaving for queue in new)
        new = [queue for queue in new if queue not in self.leaving]
        if not new:
            return not waits
        is_whole, asked_s = True, self.instance.now()
        if self.options.is_orderly:
            # Another member may hold some until its handlers end; they are locked a round later.
            locked = await self.locks.lock(new)
            is_whole = len(locked) == len(new)
            new = [queue for queue in new if queue in locked]
        results = await asyncio.gather(*(self._start_reading(queue, asked_s) for queue in new))
        self._share_size(len(self.readers))
        self.assignment_callbacks.schedule_assigned(queue for queue in new if queue in self.readers)
        return is_whole and not waits and all(results)

    def may_commit(self, queue: MessageQueue) -> bool:
        """Whether a pull of a queue may carry the group's offset to the broker."""
        return self.options.auto_commit and self.offsets.has_broker_offsets(queue)

    def record_queues(self, topic: str, queues: Sequence[MessageQueue]) -> None:
        """Record a topic's queues; those recorded first existed before this consumer."""
        self._initial_queues.setdefault(topic, frozenset(queues))

    def _appeared_since_ms(self, queue: MessageQueue) -> int | None:
        """Return when this consumer started, if the queue did not exist then; otherwise None."""
        if queue in self._initial_queues.get(queue.topic, (queue,)):
            return None
        return self._began_ms - _CLOCKS_APART_MS

    def report_refusal(self, topic: str, error: PermissionDenied | None) -> None:
        """Make waiting callers raise a broker's refusal to read a topic; None removes it."""
        if error is not None:
            self.inbox.set_refusal(topic, error)
        else:
            self.inbox.clear_refusal(topic)

    def renew_locks_periodically(self) -> None:
        """Renew the locks of our queues for as long as the consumer is open."""
        self.instance.run_every(RENEW_MS, self._renew_locks)

    async def _renew_locks(self) -> None:
        if not (self.readers or self.leaving):
            return
        asked_s = self.instance.now()
        locked = await self.locks.lock([*self.readers, *self.leaving])
        for reader in [*self.readers.values(), *self.leaving.values()]:
            is_kept = self.instance.now() - reader.lock_s < BROKERS_LIFE_S
            if reader.queue in locked and is_kept:
                reader.record_lock(asked_s)
            elif not (reader.is_lock_fresh() or reader.is_dropped):
                # Another member may have the queue by now, or may have had it and read on: stop,
                # and let the next round assign it.
                await self._drop_queues([reader.queue])
                self.balance.request_round()

    # -- life of readers -------------------------------------------------------------------------

    async def store_offsets(self) -> None:
        """Store changed offsets immediately, except of queues that may be another member's now."""
        await self.offsets.store_offsets([r for r in self.readers.values() if r.is_lock_fresh()])

    def stop(self) -> None:
        """Stop fetching and delivering messages."""
        self.inbox.close()
        self._redeliveries.cancel_all()
        for reader in self.readers.values():
            reader.stop()

    async def release_all_queues(self) -> None:
        """Store the offsets and release the queues."""
        readers = [*self.readers.values(), *self.leaving.values()]
        self.readers.clear()
        await self._release_queues(readers)

    async def _drop_queues(self, queues: list[MessageQueue]) -> None:
        readers = [self.readers.pop(queue) for queue in queues if queue in self.readers]
        for reader in readers:
            reader.stop()
        if self.options.is_orderly:
            for reader in readers:
                if not reader.batch.idle.is_set():
                    self.leaving[reader.queue] = reader
                    self._begin_leaving(reader)
            readers = [reader for reader in readers if reader.queue not in self.leaving]
        await self._release_queues(readers)
        self._share_size(len(self.readers))

    async def _release_queues(self, readers: list[QueueFetcher]) -> None:
        """Store the offsets, then let other members take the queues."""
        try:
            if self.options.auto_commit:
                await self.offsets.store_offsets(await without_overtaken(self.offsets, readers))
            if self.options.is_orderly and readers:
                await self.locks.unlock([reader.queue for reader in readers])
        finally:  # also if a consumer that closes waits no longer for a silent broker
            self.assignment_callbacks.schedule_revoked(r.queue for r in readers if r.release())

    def _begin_leaving(self, reader: QueueFetcher) -> None:
        try:
            self.instance.spawn(self._release_when_idle(reader))
        except EscrowMQError:  # too much is under way: tried again, and the lock is renewed
            if not self.instance.is_closed:
                self.instance.loop.call_later(_LEAVE_AGAIN_S, self._begin_leaving, reader)

    async def _release_when_idle(self, reader: QueueFetcher) -> None:
        """Unlock an orderly queue only when its batch is over: until then no other member may
        handle messages."""
        try:
            async with asyncio.timeout(self.options.consume_timeout_ms / 1000):
                await reader.batch.idle.wait()
        except TimeoutError:
            _log.warning("%s moves to another member, with an unsettled message", reader.queue)
        try:
            await self._release_queues([reader])
        finally:
            del self.leaving[reader.queue]
            self.balance.request_round()

    async def _start_reading(self, queue: MessageQueue, locked_s: float) -> bool:
        try:
            begin = await self.offsets.start_offset(queue, since_ms=self._appeared_since_ms(queue))
        except EscrowMQError as error:
            _log.warning("%s is not read yet: %s", queue, error)
            if isinstance(error, PermissionDenied):
                self.inbox.set_refusal(queue, error)
            return False
        self.inbox.clear_refusal(queue)
        # The topic may have been left, or another round may have run, while the broker was asked.
        if queue.topic not in self.subscriptions or queue in self.readers:
            return True
        reader = QueueFetcher(self, queue, next_offset=begin)
        reader.is_paused = self.is_paused
        if self.options.is_orderly:
            reader.record_lock(locked_s)
        self.readers[queue] = reader
        reader.start()
        return True

    def _share_size(self, readers_count: int) -> None:
        self.size_share = max(1, self.options.prefetch_size_max // max(1, readers_count))

    async def take(self, count: int, *, timeout_s: float | None = None) -> list[HeldMessage]:
        """Hand out up to `count` messages of one queue as soon as there is one."""
        found = await self.inbox.take(count, timeout_s=timeout_s)
        if found and self.interceptor_calls:
            self._report_delivered(found)
        return found

    def put_back(self, message: HeldMessage) -> None:
        """Put a message that was taken but reached no caller back in front of its queue."""
        state = message.delivery_state
        assert state is not None
        reader = state.source
        assert isinstance(reader, QueueFetcher)
        if state.is_settled:
            return
        reader.put_back([message], state.generation)
        if not self.options.is_orderly:
            self.inbox.add_source(reader)
            return
        reader.batch.note_settled()

    def _report_delivered(self, found: list[HeldMessage]) -> None:
        self.interceptor_calls.before_consume(found)
        if self.interceptor_calls.tracer is not None:
            taken = self.interceptor_calls.tracer.record_delivered(found)
            for message in found:
                assert message.delivery_state is not None
                message.delivery_state.taken = taken

    # -- the desk ------------------------------------------------------------------------------

    async def settle(self, message: HeldMessage, level: int | None) -> None:
        """Settle a delivery: consumed (`level` None), or to be redelivered after a delay level."""
        await self.settle_batch([message], level)

    async def _settle(self, message: HeldMessage, state: DeliveryState, level: int | None) -> None:
        reader = state.source
        assert isinstance(reader, QueueFetcher)
        if self.options.is_orderly:
            await self._settle_orderly(message, reader, level)
            return
        if level is None or await self._redeliver(message, state, reader, level):
            reader.mark_settled(message, state.generation)

    async def _redeliver(
        self, message: HeldMessage, state: DeliveryState, reader: QueueFetcher, level: int
    ) -> bool:
        """Have a failed message redelivered, or made a dead letter. Return whether the message is
        settled in its queue; until it is, the committed offset does not pass it."""
        if not self._must_settle(reader, state):
            if reader.has_skipped(message, state.generation):
                await self._return_after_seek(message, level)
            return False  # the member that has the queue now gets it
        if self.options.is_broadcasting:
            _log.warning("%s failed; broadcasts are not redelivered", message.message_id)
            return True
        if not self.is_known:  # the group's retries may not be read
            if not self._becomes_dead_letter(message, level):
                self._redeliveries.schedule(message, reader, level_delay_s(level, _KEEP_HERE_S))
                return False
            level = NEVER
        if await self.return_to_broker(message, level):
            return True
        self._redeliveries.schedule(message, reader, _KEEP_HERE_S)
        return False

    def _becomes_dead_letter(self, message: HeldMessage, level: int) -> bool:
        return level == NEVER or self.options.is_last_attempt(message.deliveries_before)

    async def settle_batch(self, batch: list[HeldMessage], level: int | None) -> None:
        """Settle the messages of a batch that the handler did not settle itself."""
        self.instance.check_usable()
        is_simple = level is None and not self.options.is_orderly
        now_ms = self.instance.clock.now_ms()
        for message in batch:
            state = self.begin_settling(message, level)
            if state is None:
                continue
            assert isinstance(state.source, QueueFetcher)
            state.source.consumed_ms = now_ms
            if is_simple:
                state.source.mark_settled(message, state.generation)
            elif level is None:  # asks no broker, so nothing can interfere
                await self._settle(message, state, level)
            else:
                # Decided is decided: a caller who is cancelled meanwhile would leave the message
                # neither done with nor coming again, and its queue waiting for it.
                try:
                    settling = self.instance.spawn(self._settle(message, state, level))
                except EscrowMQError:  # too much is under way: nothing was decided
                    state.is_settled, state.level = False, None
                    raise
                await await_unless_closed(settling)

    def move_to_dead_letters(self, message: HeldMessage, reader: QueueFetcher) -> None:
        """Move a message that cannot be decompressed, unchanged, to the dead letters."""
        self.instance.spawn(self._move_to_dead_letters(message, reader))

    async def _move_to_dead_letters(self, message: HeldMessage, reader: QueueFetcher) -> None:
        generation = reader.fetched.generation
        await self._return_until_accepted(message, NEVER)
        reader.mark_settled(message, generation)

    def begin_settling(self, message: HeldMessage, level: int | None) -> DeliveryState | None:
        """Mark a message as settled and report that to interceptors. Return its `Ticket`; None if
        the message was settled before."""
        state = message.delivery_state
        assert state is not None
        if state.is_settled:
            return None
        state.is_settled = True
        state.level = level
        self.report_settled(message, level)
        return state

    def report_settled(self, message: HeldMessage, level: int | None) -> None:
        """Report a message's outcome to interceptors and the trace."""
        if not self.interceptor_calls:
            return
        outcome: Consumed = "acknowledged"
        if level is not None:
            outcome = "rejected" if self._becomes_dead_letter(message, level) else "retried"
        self.interceptor_calls.after_consume(message, outcome)
        state, tracer = message.delivery_state, self.interceptor_calls.tracer
        if tracer is not None and state is not None and state.taken is not None:
            end = ConsumeResult.SUCCESS if level is None else state.end
            tracer.record_consumed(message, state.taken, end)

    def _must_settle(self, reader: QueueFetcher, state: DeliveryState) -> bool:
        """Whether this consumer must still settle a message. If its queue has moved to another
        member or was reset, it is redelivered anyway; returning it would duplicate it."""
        return (
            self.readers.get(reader.queue) is reader
            and reader.fetched.generation == state.generation
        )

    async def _return_after_seek(self, message: HeldMessage, level: int) -> None:
        if self.options.is_broadcasting or not self.is_known:  # nobody reads the group's retries
            _log.warning("%s failed, and its queue has moved on: it is lost", message.message_id)
        elif not await self.return_to_broker(message, level):
            self.instance.spawn(self._return_until_accepted(message, level))

    async def _return_until_accepted(self, message: HeldMessage, level: int) -> None:
        """Offer a message to brokers until one accepts it: it cannot stay in memory."""
        while not await self.return_to_broker(message, level):
            await asyncio.sleep(_KEEP_HERE_S)

    def detach(self, message: HeldMessage) -> HeldMessage:
        """Detach a delivery from its queue: settling it no longer has any effect."""
        message.delivery_state = DeliveryState(self, None)
        message.delivery_state.is_settled = True
        self.decorate(message)
        return message

    async def return_to_broker(self, message: HeldMessage, level: int) -> bool:
        """Send a failed message to a broker for redelivery; return whether one accepted it. A
        broadcast is dropped, because other members may have handled it."""
        if self.is_broadcasting:
            _log.warning("%s failed; broadcasts are not redelivered", message.message_id)
            return True
        attempts_max = self.options.attempts_max
        return await self._returns.send_back(message, level=level, attempts_max=attempts_max)

    async def _settle_orderly(
        self, message: HeldMessage, reader: QueueFetcher, level: int | None
    ) -> None:
        assert message.delivery_state is not None
        generation = message.delivery_state.generation
        is_over = level == NEVER or self.options.is_given_up(message.deliveries_before)
        if level is not None and is_over and self._must_settle(reader, message.delivery_state):
            level = None if await self.return_to_broker(message, NEVER) else level
        elif level is not None and reader.has_skipped(message, generation):
            await self._return_after_seek(message, level)
            level = None
        if level is None:
            reader.mark_settled(message, generation)
        else:
            pause_s = level_delay_s(level, self.options.suspend_ms / 1000)
            reader.batch.add_failed(message, pause_s=pause_s)
        reader.batch.note_settled()

    # -- what users ask ------------------------------------------------------------------------

    def current_queues(self) -> Iterable[MessageQueue]:
        """Return the queues that are read now, by the brokers' names."""
        return self.readers

    def pause(self, queues: Iterable[MessageQueue], *, is_paused: bool) -> None:
        """Pause or resume some queues, or all if none are named."""
        chosen = [self.reader_of(queue) for queue in queues]
        if not chosen:
            self.is_paused = is_paused
            chosen = [*self.readers.values()]
        for reader in chosen:
            reader.pause(is_paused)

    def reader_of(self, queue: MessageQueue) -> QueueFetcher:
        """Return the reader of a queue, by its user's or its broker's name, or raise UsageError."""
        reader = self.readers.get(self.instance.wire_queue(queue))
        if reader is None:
            raise UsageError(
                f"{queue} is not read by this member of the group; it reads "
                f"{len(self.readers)} other queues (see queues())"
            )
        return reader

    def retry_topic(self) -> str:
        """The topic in which the group's failed messages are redelivered."""
        return Topic.RETRY_PREFIX + self.wire_group
