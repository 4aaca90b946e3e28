"""Keeps popped messages hidden from other members while a handler, or the body of a loop, has them.

RocketMQ's remoting clients do not: if a handler takes longer, ConsumeMessagePopConcurrentlyService
drops its result, so that each run is followed by another. RocketMQ's gRPC clients leave it to the
proxy, which renews as long as they are connected."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from escrowmq.base.log_throttle import RepeatedErrors
from escrowmq.client.consumer_settings import ConsumerOptions
from escrowmq.client.delivery import DeliveryState, HeldMessage, MessageHold
from escrowmq.client.instance import ClientInstance
from escrowmq.codec.pop_receipt import PopReceipt
from escrowmq.errors import EscrowMQError

_log = logging.getLogger(__name__)

_AGAIN_S: Final = 1.0
"""Pause in seconds after a failed renewal; shorter if the message would become visible to other
members before that."""

Renew = Callable[[HeldMessage], Awaitable[PopReceipt]]
"""Hides a message for another `invisible_ms` from now on; returns its new receipt."""


class PopRenewals:
    """Renews the invisible times of one consumer's messages."""

    def __init__(
        self,
        instance: ClientInstance,
        options: ConsumerOptions,
        *,
        renew: Renew,
        errors: RepeatedErrors,
    ) -> None:
        self.instance = instance
        self.left_s = options.invisible_ms / 3_000
        """A message is renewed when this many seconds, a third of its invisible time, are left."""
        self.again_s = min(_AGAIN_S, self.left_s / 4)
        self.span_s = options.consume_timeout_ms / 1_000
        """After this many seconds, the timeout of a handler, a message is no longer renewed, and
        other members get it."""
        self._renew = renew
        self._errors = errors
        self._under_way: dict[DeliveryState, asyncio.Task[None]] = {}

    def hold(self, messages: Sequence[HeldMessage]) -> MessageHold:
        """Keep messages hidden until the hold ends."""
        return _RenewalHold(self, messages)

    async def wait_for_renewal(self, state: DeliveryState) -> None:
        """Wait for a renewal in flight: its answer has the receipt by which the message must be
        settled; the old one is void."""
        task = self._under_way.get(state)
        if task is not None:
            await asyncio.wait({task})

    def renew_now(self, messages: Sequence[HeldMessage]) -> asyncio.Task[None]:
        """Renew messages now. Raises ClientClosed or UsageError if no task can be started."""
        task = self.instance.spawn(self._renew_all(messages))
        if not task.done():
            for message in messages:
                assert message.delivery_state is not None
                self._under_way[message.delivery_state] = task
        return task

    async def _renew_all(self, messages: Sequence[HeldMessage]) -> None:
        try:
            await asyncio.gather(*map(self._renew_one, messages))
        finally:
            for message in messages:
                assert message.delivery_state is not None
                self._under_way.pop(message.delivery_state, None)

    async def _renew_one(self, message: HeldMessage) -> None:
        state, asked_s = message.delivery_state, self.instance.now()
        assert state is not None
        try:
            receipt = await self._renew(message)
        except EscrowMQError as error:
            ending = self._errors.suppressed_note("renewal", round(asked_s * 1_000))
            if ending is not None:
                _log.warning(
                    "%s cannot be kept hidden from others now: %s; tried again until its time is "
                    "over%s", message.message_id, error, ending,
                )  # fmt: skip
            return
        state.record_hidden(receipt, since_s=asked_s)


class _RenewalHold:
    """A hold that keeps popped messages hidden."""

    def __init__(self, renewals: PopRenewals, messages: Sequence[HeldMessage]) -> None:
        self._renewals = renewals
        self._messages = messages
        self._until_s = renewals.instance.now() + renewals.span_s
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None
        self._schedule()

    def end(self) -> None:
        """Renew no more. A renewal in flight continues; settling its message waits for it."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def end_threadsafe(self) -> None:
        """End the hold from any thread. The timer belongs to the loop's thread, so it is not
        cancelled; it does nothing when it fires."""
        self._is_over = True

    def _schedule(self, *, pause_s: float = 0.0) -> None:
        now_s = self._renewals.instance.now()
        dues = [
            message.delivery_state.due_s
            for message in self._expiring_messages(now_s)
            if message.delivery_state
        ]
        if self._is_over or not dues:
            return
        at_s = max(min(dues) - self._renewals.left_s, now_s + pause_s)
        if at_s < self._until_s:
            self._timer = self._renewals.instance.loop.call_at(at_s, self._renew_due)

    def _expiring_messages(self, since_s: float, until_s: float = math.inf) -> list[HeldMessage]:
        """Return the unsettled messages that become visible to others between these two times."""
        return [
            message for message in self._messages
            if (state := message.delivery_state) and not state.is_settled
            and since_s < state.due_s <= until_s
        ]  # fmt: skip

    def _renew_due(self) -> None:
        if self._is_over:
            return
        renewals, now_s = self._renewals, self._renewals.instance.now()
        # Also those that would be due soon; and timers may fire a moment early.
        chosen = self._expiring_messages(now_s, now_s + 1.5 * renewals.left_s)
        try:
            renewals.renew_now(chosen).add_done_callback(self._on_renewed)
        except EscrowMQError:  # the client is closed, or has too much to do
            self._schedule(pause_s=renewals.again_s)

    def _on_renewed(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            soon_s = self._renewals.instance.now() + 1.5 * self._renewals.left_s
            self._schedule(
                pause_s=self._renewals.again_s if self._expiring_messages(0.0, soon_s) else 0.0
            )
