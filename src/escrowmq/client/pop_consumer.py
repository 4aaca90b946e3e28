"""The state of a consumer in pop mode: brokers distribute single messages, and redeliver those that
are not acknowledged in time."""

from __future__ import annotations

import asyncio
import collections
import logging
from collections.abc import Iterable
from typing import Final, Unpack

import msgspec

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.log_throttle import RepeatedErrors
from escrowmq.base.message import Property, SysFlag
from escrowmq.client.consumer_settings import ConsumerOptions
from escrowmq.client.consumer_state import ConsumerParts, ConsumerState
from escrowmq.client.core.message import to_received_message
from escrowmq.client.core.popping import (
    ALL_QUEUES,
    ack_fields,
    hidden_ms,
    pop_fields,
    receipt_of,
    renewed_receipt,
)
from escrowmq.client.core.pulling import EmptyAnswerCounter, is_refusal
from escrowmq.client.core.redelivery import NEVER
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.subscription import SQL92
from escrowmq.client.delivery import DeliveryState, HeldMessage
from escrowmq.client.instance import ClientInstance
from escrowmq.client.pop_renewals import PopRenewals
from escrowmq.client.queue_fetcher import QueueFetcher
from escrowmq.codec.compression import decompress
from escrowmq.codec.pop_receipt import PopReceipt
from escrowmq.codec.record import decode_records
from escrowmq.errors import (
    EscrowMQError,
    ProtocolError,
    RemoteProtocolError,
    RouteMissing,
    TransportError,
    UsageError,
    response_error,
)

_log = logging.getLogger(__name__)

HELD_MAX: Final = 96
"""Limit of popped, unsettled messages of one topic at one broker (RocketMQ's popThresholdForQueue);
a smaller `prefetch_max` overrides it."""

_PACKED: Final = SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK
_ANSWER_LATE_MS: Final = 10_000
_FAILED_PAUSE_S: Final = 1.0
_AT_ONCE_MS: Final = 1_000
_NOTHING: Final = frozenset({Response.POLLING_TIMEOUT, Response.PULL_NOT_FOUND})

_TOO_LATE: Final = "timeout too much"
"""Part of the remark by which a broker refuses a pop because it is too old by the client's clock
(RocketMQ's PopMessageProcessor). The response code is the one for polls without messages."""


class PopReader:
    """Pops one topic from one broker while fewer messages than the limit are held."""

    def __init__(self, reading: PopConsumerState, queue: MessageQueue) -> None:
        self.queue = queue
        self.is_paused = reading.is_paused
        self.is_dropped = False
        self.held_count = 0
        self.held_size = 0
        """Bytes of the bodies held, decompressed once their message is taken."""
        self.popped_ms = 0
        self._state = reading
        self._waiting: collections.deque[tuple[HeldMessage, int]] = collections.deque()
        """Fetched messages, each with the sysFlag that names its compression. Bodies are
        decompressed only when a message is taken, so that small compressed messages do not use much
        memory here."""
        self._room = asyncio.Event()
        self._has_failed = False
        self._in_vain = EmptyAnswerCounter()
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting_count(self) -> int:
        """Messages that have not been taken and are still hidden from others."""
        now_s, count = self._state.instance.now(), len(self._waiting)
        while self._waiting and _ticket(self._waiting[0][0]).due_s <= now_s:
            late, _ = self._waiting.popleft()  # others get it now
            self.count_settled(late)
        if len(self._waiting) < count:
            self._log_overdue(count - len(self._waiting))
        return len(self._waiting)

    def take(self, count: int) -> list[HeldMessage]:
        """Take up to `count` of the waiting messages, within the size that may be prefetched."""
        found: list[HeldMessage] = []
        room = self._state.options.prefetch_size_max
        while self._waiting and len(found) < count and room > 0:
            message, sys_flag = self._waiting.popleft()
            if self._decompress(message, sys_flag):
                found.append(message)
                room -= len(message.body)
        return found

    def put_back(self, message: HeldMessage) -> None:
        """Put a taken message back in front."""
        self._waiting.appendleft((message, 0))

    def count_settled(self, message: HeldMessage) -> None:
        """Uncount a message that was settled, and pop more if possible."""
        self.held_count -= 1
        self.held_size -= _ticket(message).size
        self._room.set()

    def pause(self, is_paused: bool) -> None:
        """Pause or resume popping and handing out."""
        self.is_paused = is_paused
        self._room.set()
        self._state.inbox.add_source(self)

    def start(self) -> None:
        """Start to pop messages."""
        self._task = self._state.instance.keep_running(f"the popping of {self.queue}", self._run)

    def stop(self) -> list[HeldMessage]:
        """Stop popping; return the messages that were not taken, so that they can go back to the
        broker."""
        self.is_dropped = True
        self._state.inbox.clear_refusal(self)
        if self._task is not None:
            self._task.cancel()
        left = [message for message, _ in self._waiting]
        self._waiting.clear()
        return left

    async def _run(self) -> None:
        while True:
            while self.is_paused or not self._free_count():
                self._room.clear()
                await self._room.wait()
            clock = self._state.instance.clock
            try:
                asked_ms, asked_s = clock.now_ms(), self._state.instance.now()
                reply = await self._pop()
                self._handle_reply(reply, asked_s)
                pause_s = self._pause_s(reply, clock.now_ms() - asked_ms)
                if pause_s:
                    await asyncio.sleep(pause_s)
            except (TransportError, RouteMissing, ProtocolError) as error:
                await self._log_and_pause(error)
            except EscrowMQError as error:
                if is_refusal(error):
                    self._state.inbox.set_refusal(self, error)
                await self._log_and_pause(error)

    def _free_count(self) -> int:
        """Return how many more messages this reader may hold."""
        if self.held_size >= self._state.size_share:
            return 0
        return max(0, min(HELD_MAX, self._state.options.prefetch_max) - self.held_count)

    def _pause_s(self, reply: Command, took_ms: int) -> float:
        """Return the pause before the next pop, after a broker's answer."""
        if reply.body:
            self._in_vain.clear()
            return 0.0
        return self._in_vain.count_and_pause_s(
            took_ms=took_ms, wait_ms=self._state.options.pull_wait_ms
        )

    async def _pop(self) -> Command:
        reading, options = self._state, self._state.options
        instance = reading.instance
        fields = pop_fields(
            reading.subscription_to(self.queue.topic),
            group=reading.wire_group,
            count_max=min(options.pull_count, self._free_count()),
            invisible_ms=options.invisible_ms,
            poll_ms=options.pull_wait_ms,
            now_ms=instance.clock.now_ms(),
            is_from_first=options.consume_from == "first",
        )
        return await instance.request(
            instance.address_of(self.queue.broker_name),
            Request.POP_MESSAGE,
            fields,
            timeout_ms=options.pull_wait_ms + _ANSWER_LATE_MS,
        )

    def _pop_time_s(self, asked_s: float, invisible_ms: int) -> float:
        """Return when an answer's messages were popped, by this client's steady clock. The answer
        names the time by the broker's wall clock, which may be minutes away from ours.

        The pop happened between request and answer. The earlier time is assumed, so that no message
        is handed out that another member already has. If a broker may hold a request for longer
        than it hides messages, they would then have expired on arrival; half of their invisible
        time is assumed to be left."""
        options, now_s = self._state.options, self._state.instance.now()
        popped_s = max(asked_s, now_s - invisible_ms / 2_000)
        return min(popped_s, asked_s + options.pull_wait_ms / 1_000)  # this process may have stood

    def _handle_reply(self, reply: Command, asked_s: float) -> None:
        self.popped_ms = self._state.instance.clock.now_ms()
        if reply.code not in _NOTHING and reply.code != Response.SUCCESS:
            raise response_error(reply.code, reply.remark, address=self.queue.broker_name)
        self._has_failed = False
        self._state.inbox.clear_refusal(self)
        if reply.code != Response.SUCCESS:
            if _TOO_LATE in (reply.remark or ""):
                self._log_too_late()
            return
        reading = self._state
        wanted = reading.subscription_to(self.queue.topic)
        unwanted: list[HeldMessage] = []
        unread: EscrowMQError | None = None
        for stored in decode_records(reply.body):
            name = self.queue.broker_name
            try:
                receipt = receipt_of(stored, reply.ext or {}, broker_name=name)
            except EscrowMQError as error:  # it cannot be settled; its broker redelivers it
                unread = unread or error
                continue
            topic = reading.instance.options.without_namespace(self.queue.topic)
            packed = msgspec.structs.replace(stored, sys_flag=stored.sys_flag & ~_PACKED)
            message = to_received_message(
                packed, topic=topic, broker_name=name, kind=reading.delivery_class()
            )
            popped_s = self._pop_time_s(asked_s, receipt.invisible_ms)
            reading.make_popped_delivery(message, self, receipt, popped_s=popped_s)
            self.held_count += 1
            self._count_body(message)
            fits = wanted.kind == SQL92 or wanted.matches_tag(
                stored.properties.get(Property.TAGS, "")
            )
            if fits:
                self._waiting.append((message, stored.sys_flag))
            else:
                unwanted.append(message)
        for message in unwanted:
            reading.instance.spawn(reading.settle(message, None))
        reading.inbox.add_source(self)
        if unread is not None:
            raise unread

    def _decompress(self, message: HeldMessage, sys_flag: int) -> bool:
        """Decompress a body that is about to be taken; a broken one moves to the dead letters
        unchanged."""
        try:
            message.body = decompress(message.body, sys_flag)
            self._count_body(message)
        except RemoteProtocolError as error:
            _log.error("%s: offset %d: %s", self.queue, message.queue_offset, error)
            self._state.instance.spawn(self._state.settle(message, NEVER))
            return False
        return True

    def _count_body(self, message: HeldMessage) -> None:
        """Count the size of a body that is held; called again once it is decompressed. Users may
        change bodies, so the counted size is kept."""
        ticket, size = _ticket(message), len(message.body)
        self.held_size += size - ticket.size
        ticket.size = size

    def _log_too_late(self) -> None:
        reading, name = self._state, self.queue.broker_name
        ending = reading.repeated.suppressed_note(
            f"late {name}", round(reading.instance.now() * 1_000)
        )
        if ending is not None:
            _log.warning(
                "broker %s takes pops for too late, and answers none: this machine's clock is "
                "probably behind the broker's; set both by NTP%s", name, ending,
            )  # fmt: skip

    def _log_overdue(self, count: int) -> None:
        reading, topic = (
            self._state,
            self._state.instance.options.without_namespace(self.queue.topic),
        )
        ending = reading.repeated.suppressed_note("overdue", round(reading.instance.now() * 1_000))
        if ending is not None:
            _log.warning(
                "%d popped messages of %s waited here for longer than their invisible time, and "
                "are left to others: handlers are slower than messages come; give the consumer a "
                "smaller prefetch_max, more concurrency or a longer invisible_ms%s",
                count, topic, ending,
            )  # fmt: skip

    async def _log_and_pause(self, error: EscrowMQError) -> None:
        level = logging.DEBUG if self._has_failed else logging.WARNING
        self._has_failed = True
        _log.log(level, "nothing can be popped from %s now: %s; tried again", self.queue, error)
        await asyncio.sleep(_FAILED_PAUSE_S)


def _ticket(message: HeldMessage) -> DeliveryState:
    assert message.delivery_state is not None
    return message.delivery_state


def _receipt(message: HeldMessage) -> PopReceipt:
    receipt = _ticket(message).receipt
    assert isinstance(receipt, PopReceipt)
    return receipt


class PopConsumerState(ConsumerState):
    """The pop readers of a consumer, by topic and broker, and the settling of popped messages."""

    def __init__(
        self,
        instance: ClientInstance,
        options: ConsumerOptions,
        **parts: Unpack[ConsumerParts],
    ) -> None:
        super().__init__(instance, options, **parts)
        self.pop_readers: dict[MessageQueue, PopReader] = {}
        self.repeated = RepeatedErrors()
        self._renewals = PopRenewals(
            instance, options, renew=self._renew_receipt, errors=self.repeated
        )
        self.hold = self._renewals.hold
        self._unused: list[HeldMessage] = []

    def make_popped_delivery(
        self, message: HeldMessage, reader: PopReader, receipt: PopReceipt, *, popped_s: float
    ) -> None:
        """Turn a message into a delivery of a pop."""
        message.delivery_state = DeliveryState(self, reader)
        message.delivery_state.record_hidden(receipt, since_s=popped_s)
        self.decorate(message)

    async def assign_queues(self, topic: str, queues: list[MessageQueue]) -> bool:
        """Pop this topic from exactly the brokers that have it."""
        mine = {MessageQueue(topic, queue.broker_name, ALL_QUEUES) for queue in queues}
        gone = [queue for queue in self.pop_readers if queue.topic == topic and queue not in mine]
        await self._drop_readers(gone)
        if topic not in self.subscriptions:  # it was left while the brokers were asked
            return True
        for queue in sorted(mine - self.pop_readers.keys()):
            reader = self.pop_readers[queue] = PopReader(self, queue)
            self._share_size(len(self.pop_readers))
            reader.start()
        return True

    def leave_topics(self) -> None:
        """Stop popping topics that are no longer subscribed to."""
        gone = [queue for queue in self.pop_readers if queue.topic not in self.subscriptions]
        if gone:
            left = self._stop_readers(gone)
            self.instance.spawn(self._make_visible(left))

    def current_queues(self) -> Iterable[MessageQueue]:
        """Return one pseudo queue for each topic and broker that is popped; each pop reads all
        queues of a topic on a broker."""
        return self.pop_readers

    def pause(self, queues: Iterable[MessageQueue], *, is_paused: bool) -> None:
        """Pause or resume all queues."""
        if [*queues]:
            raise UsageError("mode='pop' pauses everything or nothing; name no queues")
        self.is_paused = is_paused
        for reader in self.pop_readers.values():
            reader.pause(is_paused)

    def reader_of(self, queue: MessageQueue) -> QueueFetcher:
        """Always raises: there are no readers of single queues."""
        raise UsageError("mode='pop' leaves offsets to the broker; use mode='pull' for this")

    async def store_offsets(self) -> None:
        """Do nothing: brokers store the offsets of popped messages themselves."""

    def stop(self) -> None:
        """Stop popping and delivering messages."""
        self.inbox.close()
        for reader in self.pop_readers.values():
            self._unused += reader.stop()

    async def release_all_queues(self) -> None:
        """Return the messages that were not taken, so that other members get them immediately."""
        await self._drop_readers(list(self.pop_readers))
        unused, self._unused = self._unused, []
        await self._make_visible(unused)

    async def settle(self, message: HeldMessage, level: int | None) -> None:
        """Settle a popped message: as consumed if `level` is None, otherwise to be redelivered
        after that delay level."""
        self.instance.check_usable()
        state = self.begin_settling(message, level)
        if state is None:
            return
        reader = state.source
        assert isinstance(reader, PopReader)
        try:
            await self._renewals.wait_for_renewal(state)
            self._log_late(message, state)
            await self._settle_at_broker(message, level)
        except EscrowMQError as error:
            # It is redelivered when its invisible time is over: never lost, perhaps duplicated.
            _log.warning(
                "%s could not be settled, and is redelivered: %s", message.message_id, error
            )
        finally:
            reader.count_settled(message)

    def put_back(self, message: HeldMessage) -> None:
        """Put back a message that was taken but reached no caller, or make it visible to other
        members."""
        state = message.delivery_state
        assert state is not None
        reader = state.source
        assert isinstance(reader, PopReader)
        if state.is_settled:
            return
        if reader.is_dropped:
            self._unused.append(message)
        else:
            reader.put_back(message)
            self.inbox.add_source(reader)

    async def settle_batch(self, batch: list[HeldMessage], level: int | None) -> None:
        """Settle the messages of a batch that the handler did not settle itself."""
        for message in batch:
            await self.settle(message, level)

    # -- inside ------------------------------------------------------------------------------

    async def _settle_at_broker(self, message: HeldMessage, level: int | None) -> None:
        attempts_max = self.options.attempts_max
        if level is not None and (level == NEVER or message.deliveries_before >= attempts_max):
            if not await self.return_to_broker(message, NEVER):
                return
            level = None
        if level is None:
            await self._ask(message, Request.ACK_MESSAGE, {})
            return
        hidden = hidden_ms(level, deliveries_before=message.deliveries_before)
        await self._change_invisible_time(message, hidden)

    def _log_late(self, message: HeldMessage, state: DeliveryState) -> None:
        now_s = self.instance.now()
        if now_s <= state.due_s:
            return
        ending = self.repeated.suppressed_note("late", round(now_s * 1_000))
        if ending is not None:
            _log.warning(
                "%s was settled %.1f s after its invisible time, and is probably redelivered: "
                "raise invisible_ms, which is %d, or use handler= or a loop over the consumer, "
                "which keep messages hidden for up to consume_timeout_ms%s",
                message.message_id, now_s - state.due_s, self.options.invisible_ms, ending,
            )  # fmt: skip

    async def _renew_receipt(self, message: HeldMessage) -> PopReceipt:
        reply = await self._change_invisible_time(message, self.options.invisible_ms)
        return renewed_receipt(_receipt(message), reply.ext or {})

    async def _change_invisible_time(self, message: HeldMessage, hidden: int) -> Command:
        more = {"invisibleTime": str(hidden)}
        return await self._ask(message, Request.CHANGE_MESSAGE_INVISIBLETIME, more)

    async def _ask(self, message: HeldMessage, code: int, more: dict[str, str]) -> Command:
        topic = self.instance.options.with_namespace(message.topic)
        fields = ack_fields(_receipt(message), topic=topic, group=self.wire_group)
        address = self.instance.address_of(message.broker_name)
        return await self.instance.ask(address, code, {**fields, **more})

    async def _drop_readers(self, queues: list[MessageQueue]) -> None:
        await self._make_visible(self._stop_readers(queues))

    def _stop_readers(self, queues: list[MessageQueue]) -> list[HeldMessage]:
        left: list[HeldMessage] = []
        for queue in queues:
            left += self.pop_readers.pop(queue).stop()
        self._share_size(len(self.pop_readers))
        return left

    async def _make_visible(self, messages: list[HeldMessage]) -> None:
        results = await asyncio.gather(
            *(self._make_one_visible(message) for message in messages), return_exceptions=True
        )
        for error in results:
            if isinstance(error, Exception):
                _log.info(
                    "a popped message becomes visible again only when its invisible time "
                    "is over: %s",
                    error,
                )

    async def _make_one_visible(self, message: HeldMessage) -> None:
        await self._renewals.wait_for_renewal(_ticket(message))
        await self._change_invisible_time(message, _AT_ONCE_MS)
