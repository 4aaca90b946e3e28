"""A received message, with methods to settle it."""

from __future__ import annotations

import datetime as dt
from typing import ClassVar, Protocol

from escrowmq.base.message import Topic
from escrowmq.client.core.message import ReceivedMessage
from escrowmq.client.core.redelivery import NEVER, delay_level
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.trace_records import ConsumeResult
from escrowmq.client.help_and_completion import TidyCompletion
from escrowmq.codec.pop_receipt import PopReceipt
from escrowmq.errors import UsageError


class DeliveryOwner(Protocol):
    """The consumer that settles a delivery."""

    user_group: str
    is_broadcasting: bool

    async def settle(self, message: HeldMessage, level: int | None) -> None:
        """Settle a delivery: as consumed if `level` is None, otherwise to be redelivered after that
        delay level."""

    async def settle_batch(self, batch: list[HeldMessage], level: int | None) -> None:
        """Settle the messages of a batch that the handler did not settle itself."""


class MessageHold(Protocol):
    """Keeps messages from other members while a handler, or the body of a loop, has them."""

    def end(self) -> None:
        """End the hold: the handler or loop no longer has the messages."""

    def end_threadsafe(self) -> None:
        """End the hold from any thread."""


class NoHold:
    """A hold that does nothing. It is used where the queue belongs to this member, so that no other
    member gets the messages."""

    def end(self) -> None:
        """Do nothing."""

    def end_threadsafe(self) -> None:
        """Do nothing."""


class DeliveryState:
    """Where a delivery came from, and how it was settled."""

    __slots__ = (
        "asked_level",
        "due_s",
        "end",
        "generation",
        "has_ack_waiting",
        "is_settled",
        "keeps_acks",
        "level",
        "owner",
        "receipt",
        "size",
        "source",
        "taken",
    )  # fmt: skip

    def __init__(self, owner: DeliveryOwner, source: object, *, generation: int = 0) -> None:
        self.owner = owner
        self.source = source
        self.generation = generation
        self.receipt: PopReceipt | None = None
        """The receipt with which a popped message is acknowledged."""
        self.due_s = 0.0
        """When a popped message becomes visible to others, by this client's steady clock."""
        self.size = 0
        """Bytes of a popped message's body, as its reader counts them."""
        self.is_settled = False
        self.level: int | None = None
        """The decision, once the message is settled: None for consumed, otherwise a delay level."""
        self.asked_level: int | None = None
        """The delay level requested by the user's own call of `retry` or `reject`. A consumer that
        abandons a slow handler sets `level` alone."""
        self.keeps_acks = False
        """Whether acknowledgements wait for an open transaction (`consume_once`)."""
        self.has_ack_waiting = False
        """Whether an acknowledgement is waiting for the open transaction."""
        self.end = ConsumeResult.FAILED
        """The reason for its redelivery, if it is redelivered."""
        self.taken: tuple[str, int] | None = None
        """For the trace: the id of the delivery, and when it was made."""

    def record_hidden(self, receipt: PopReceipt, *, since_s: float) -> None:
        """Record that the message was popped, or its invisible time renewed: other members do not
        get it meanwhile."""
        self.receipt = receipt
        self.due_s = since_s + receipt.invisible_ms / 1_000

    def record_settled(self, level: int | None) -> None:
        """Record that the message is settled: as consumed if `level` is None, otherwise to be
        redelivered after that delay level."""
        self.is_settled = True
        self.level = level

    def begin_handling(self) -> None:
        """Note that a transaction that handles the message begins."""
        self.keeps_acks = True

    def end_handling(self, *, is_committed: bool) -> None:
        """Note that the transaction has ended. After a rollback the waiting acknowledgement is
        dropped: the message is redelivered."""
        self.keeps_acks = False
        self.has_ack_waiting = self.has_ack_waiting and is_committed


class HeldMessage(TidyCompletion, ReceivedMessage, kw_only=True, eq=False):
    """Base of blocking and asyncio deliveries."""

    _INTERNAL: ClassVar = frozenset(
        {"delivery_state", "must_defer_ack", "owner", "owner_for_decision", "portal", "system"}
    )

    delivery_state: DeliveryState | None = None
    """Where the delivery came from; only this library uses it."""

    @property
    def queue(self) -> MessageQueue:
        """The queue that it came from; for a redelivered message, a queue of the group's retry
        topic."""
        found = (
            getattr(self.delivery_state.source, "queue", None)
            if self.delivery_state is not None
            else None
        )
        if isinstance(found, MessageQueue) and found.topic.startswith(Topic.RETRY_PREFIX):
            return found
        return MessageQueue(self.topic, self.broker_name, self.queue_id)

    @property
    def group(self) -> str:
        """The group to which it was delivered."""
        return self.owner().user_group

    @property
    def is_broadcast(self) -> bool:
        """Whether every member of the group gets it."""
        return self.owner().is_broadcasting

    def owner(self) -> DeliveryOwner:
        """Return the consumer that settles the delivery; raises UsageError if there is none."""
        if self.delivery_state is None:
            raise UsageError("this message came from no consumer; there is nothing to settle")
        return self.delivery_state.owner

    def owner_for_decision(self, level: int | None) -> DeliveryOwner:
        """Return the consumer, for an explicit call of `ack`, `retry` or `reject`. Raises
        UsageError if the message was already settled in another way."""
        owner, state = self.owner(), self.delivery_state
        assert state is not None
        is_settled = state.is_settled and state.source is not None
        if (is_settled or state.has_ack_waiting) and _level_text(state.level) != _level_text(level):
            raise UsageError(
                f"message {self.message_id} was {_level_text(state.level)} before, so it cannot "
                f"be {_level_text(level)}; decide once"
            )
        state.asked_level = level
        return owner

    def must_defer_ack(self) -> bool:
        """Whether the acknowledgement must wait until the transaction that handles the message has
        committed. If it were sent earlier, a crash would leave the message neither handled nor
        redelivered."""
        state = self.delivery_state
        if state is None or not state.keeps_acks:
            return False
        state.has_ack_waiting = True
        return True


def _level_text(level: int | None) -> str:
    if level is None:
        return "acknowledged"
    return "rejected" if level == NEVER else "given back to come again"


class Delivery(HeldMessage, kw_only=True, eq=False):
    """A message that was delivered. It is acknowledged automatically when the loop asks for the
    next one or the handler returns, unless one of these methods was called."""

    async def ack(self) -> None:
        """Acknowledge the message: no member of the group gets it again."""
        owner = self.owner_for_decision(None)
        if not self.must_defer_ack():
            await owner.settle(self, None)

    async def retry(self, after: dt.timedelta | float | None = None) -> None:
        """Have the message redelivered: after the broker's own back-off, or after a time (a
        timedelta, or seconds; rounded up to the broker's next delay level)."""
        level = delay_level(after)
        await self.owner_for_decision(level).settle(self, level)

    async def reject(self) -> None:
        """Move the message to the group's dead letters; it is not redelivered."""
        await self.owner_for_decision(NEVER).settle(self, NEVER)
