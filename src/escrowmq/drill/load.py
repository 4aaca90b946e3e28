"""The clients of a drill, on a topic of its own: they send in order, make transactions (committed,
rolled back, left to be checked back), and consume. All their results are recorded."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import AsyncExitStack
from typing import BinaryIO, Final, Literal, Self

from escrowmq.client.consumer import Consumer
from escrowmq.client.core.message import ReceivedMessage
from escrowmq.client.core.sending import Outcome, SendStatus
from escrowmq.client.delivery import Delivery
from escrowmq.client.producer import Producer
from escrowmq.client.producer_settings import ConnectionSettings
from escrowmq.drill.history import (
    AcknowledgedEnd,
    AcknowledgedSend,
    Event,
    ReadMessage,
    SendAttempt,
    append_event,
)
from escrowmq.errors import EscrowMQError
from escrowmq.net.clock import steady_ns

SENDERS: Final = 4
"""Number of senders in order, and of senders of transactions; each makes one attempt at a time."""

RATE_MIN: Final = 1
RATE_MAX: Final = 1_000
"""Limit of attempts a second, all senders together, because all results are kept in memory."""

EVENTS_MAX: Final = 5_000_000

_AFTER_FAILURE_S: Final = 0.02
_OUTCOMES: Final = (
    (Outcome.COMMIT, True), (Outcome.COMMIT, True), (Outcome.ROLLBACK, True),
    (Outcome.COMMIT, True), (Outcome.COMMIT, False), (Outcome.COMMIT, True),
    (Outcome.ROLLBACK, True), (Outcome.COMMIT, True), (Outcome.ROLLBACK, False),
    (Outcome.COMMIT, True),
)  # fmt: skip
"""The outcomes of transactions, used in turn. Each comes with whether it is sent as an END or given
as the answer to a check."""


class ClientLoad:
    """The producers and the consumer of a drill. They run inside an `async with` block."""

    def __init__(
        self,
        servers: str | None,
        settings: ConnectionSettings,
        *,
        name: str,
        rate: int,
        file: BinaryIO | None = None,
    ) -> None:
        """`name`: the name of the topic and of the groups; `file` gets every event as well."""
        assert RATE_MIN <= rate <= RATE_MAX, rate
        self.topic = self.group = name
        self.readers = f"{name}-readers"
        self.events: list[Event] = []
        self.last_error = ""
        self.acknowledged_ns: list[int] = []
        """Times of all acknowledgements of sends, halves and ENDs."""
        self.begun_ns = 0
        """When the newest acknowledged attempt began."""
        self._file = file
        self._pause_s = 2 * SENDERS / rate
        self._decided: dict[str, Outcome] = {}
        self._stopping = asyncio.Event()
        self._count = 0
        self._fates = itertools.cycle(_OUTCOMES)
        self._tasks: list[asyncio.Task[None]] = []
        self._stack = AsyncExitStack()
        own = {**settings, "heartbeat_interval_ms": 5_000}
        self._producer = Producer(
            servers, group=self.group, retries=0, topics=[name], check=self._answer_check,
            **own,  # type: ignore[arg-type]
        )  # fmt: skip
        self._consumer = Consumer(
            servers, group=self.readers, topic=name, handler=self._record_read,
            **own,  # type: ignore[arg-type]
        )  # fmt: skip

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._producer)
            await stack.enter_async_context(self._consumer)
            self._stack = stack.pop_all()
        for number in range(SENDERS):
            for work in (self._send, self._transact):
                self._tasks.append(asyncio.create_task(self._repeat(work, number)))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    async def stop(self) -> None:
        """Stop sending; checks are still answered, and messages still consumed."""
        self._stopping.set()
        await asyncio.gather(*self._tasks)

    # -- what is kept ------------------------------------------------------------------------

    def record(self, event: Event) -> None:
        """Record an event."""
        if self._file is not None:
            append_event(self._file, event)
        self.events.append(event)
        if len(self.events) >= EVENTS_MAX:
            self.last_error = f"the history has {EVENTS_MAX} events and is full: lower the rate"
            self._stopping.set()
        if isinstance(event, AcknowledgedSend | AcknowledgedEnd) and event.end_ns:
            self.acknowledged_ns.append(event.end_ns)
            self.begun_ns = max(self.begun_ns, event.begin_ns)

    # -- work --------------------------------------------------------------------------------

    async def _repeat(self, work: object, number: int) -> None:
        assert callable(work)
        loop = asyncio.get_running_loop()
        due_s = loop.time() + self._pause_s * number / SENDERS
        while not self._stopping.is_set():
            if loop.time() < due_s:
                await self._pause(due_s - loop.time())
                continue
            due_s = max(due_s + self._pause_s, loop.time())
            try:
                await work(number)
            except EscrowMQError as error:
                self.last_error = str(error)
                await self._pause(_AFTER_FAILURE_S)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass

    def _new_key(self, sender: str) -> str:
        """Return a new key. Each attempt needs one, because a failed attempt may have been
        stored."""
        self._count += 1
        key = f"{sender}-{self._count}"
        self.record(SendAttempt(key, steady_ns()))
        return key

    def _answer_check(self, message: ReceivedMessage) -> Outcome:
        return self._decided.setdefault(message.key_list[0], Outcome.ROLLBACK)

    async def _send(self, number: int) -> None:
        key = self._new_key(f"s{number}")
        begin_ns = steady_ns()
        sent = await self._producer.send(
            self.topic, key.encode(), keys=[key], order_key=f"s{number}"
        )
        if sent.status is SendStatus.OK:
            place = sent.queue.queue_id, sent.offset, sent.message_id
            self.record(AcknowledgedSend(self.topic, key, *place, "", begin_ns, steady_ns()))
        else:
            self.last_error = f"a message was stored, and not confirmed: {sent.status.name}"

    async def _transact(self, number: int) -> None:
        key = self._new_key(f"t{number}")
        begin_ns = steady_ns()
        tx = self._producer.transaction(self.topic, key.encode(), keys=[key])
        try:
            await tx.begin()
        except EscrowMQError:
            # The message may have been stored: then a check asks about it.
            self.record(AcknowledgedSend(self.topic, key, 0, 0, "", key, begin_ns))
            self._note_end(key, self._settle_once(key, Outcome.ROLLBACK))
            raise
        stored_ns = steady_ns()
        sent = AcknowledgedSend(
            self.topic, key, 0, 0, tx.results[0].message_id, key, begin_ns, stored_ns
        )
        self.record(sent)
        wanted, is_ended = next(self._fates)
        outcome = self._settle_once(key, wanted)
        if not is_ended:
            tx.detach()
            self._note_end(key, outcome)
            return
        try:
            await tx.settle(outcome)
        except EscrowMQError:
            self._note_end(key, outcome)
            raise
        self._note_end(key, outcome, stored_ns, steady_ns())

    def _settle_once(self, key: str, outcome: Outcome) -> Outcome:
        """Settle a transaction, unless a check has decided it already."""
        return self._decided.setdefault(key, outcome)

    def _note_end(self, key: str, outcome: Outcome, begin_ns: int = 0, end_ns: int = 0) -> None:
        said: Literal["commit", "rollback"]
        said = "commit" if outcome is Outcome.COMMIT else "rollback"
        self.record(AcknowledgedEnd(key, said, begin_ns, end_ns))

    async def _record_read(self, message: Delivery) -> None:
        now_ns = steady_ns()
        place = message.queue_id, message.queue_offset
        key = message.key_list[0]
        self.record(ReadMessage(self.topic, *place, key, message.log_offset, now_ns - 1, now_ns))
