"""A received message, with methods to settle it."""

from __future__ import annotations

import datetime as dt
from typing import ClassVar, Protocol

from escrowmq.base.message import Topic
from escrowmq.client.core.message import ReceivedMessage
from escrowmq.client.core.redelivery import NEVER, delay_level
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.trace_records import ConsumeEnd
from escrowmq.client.help_and_completion import Tidy
from escrowmq.codec.pop_receipt import Receipt
from escrowmq.errors import UsageError


class DeliveryOwner(Protocol):
    """The consumer to which a delivery is returned."""

    user_group: str
    is_broadcasting: bool

    async def settle(self, message: HeldMessage, level: int | None) -> None:
        """Settle a delivery: consumed (None), or to be redelivered after a delay level."""

    async def settle_batch(self, batch: list[HeldMessage], level: int | None) -> None:
        """Settle those of a handler's messages that it did not settle itself."""


class Hold(Protocol):
    """Keeps messages from others while a handler, or the body of a loop, has them."""

    def end(self) -> None:
        """It no longer has them."""

    def let_go(self) -> None:
        """It no longer has them; callable from any thread."""


class NoHold:
    """Where the messages' queue is this member's own, nobody else gets them."""

    def end(self) -> None:
        """Do nothing."""

    def let_go(self) -> None:
        """Do nothing."""


class Ticket:
    """Where a delivery came from, and whether it is settled."""

    __slots__ = (
        "asked_level", "desk", "due_s", "end", "generation", "has_ack_waiting", "is_settled",
        "keeps_acks", "level", "receipt", "source", "taken",
    )  # fmt: skip

    def __init__(self, desk: DeliveryOwner, source: object, *, generation: int = 0) -> None:
        self.desk = desk
        self.source = source
        self.generation = generation
        self.receipt: Receipt | None = None
        """The receipt with which a popped message is acknowledged."""
        self.due_s = 0.0
        """When a popped message becomes visible to others, by this client's steady clock."""
        self.is_settled = False
        self.level: int | None = None
        """The decision, once settled: None for consumed, otherwise a delay level."""
        self.asked_level: int | None = None
        """The delay level requested by the user's own call of `retry` or `reject`. A consumer that
        abandons a slow handler sets `level` alone."""
        self.keeps_acks = False
        """Whether an acknowledgement waits for an open transaction (`consume_once`)."""
        self.has_ack_waiting = False
        """Whether an acknowledgement waits."""
        self.end = ConsumeEnd.FAILED
        """Why it is redelivered, if it is."""
        self.taken: tuple[str, int] | None = None
        """For the trace: the delivery by which it was taken, and its time."""

    def hide(self, receipt: Receipt, *, since_s: float) -> None:
        """The message was popped, or renewed: others do not get it for its invisible time."""
        self.receipt = receipt
        self.due_s = since_s + receipt.invisible_ms / 1_000

    def settle(self, level: int | None) -> None:
        """Record the decision."""
        self.is_settled = True
        self.level = level

    def begin_handling(self) -> None:
        """A transaction that handles the message begins."""
        self.keeps_acks = True

    def end_handling(self, *, is_committed: bool) -> None:
        """The transaction has ended. After a rollback no acknowledgement waits: the message is
        redelivered."""
        self.keeps_acks = False
        self.has_ack_waiting = self.has_ack_waiting and is_committed


class HeldMessage(Tidy, ReceivedMessage, kw_only=True, eq=False):
    """Base of blocking and asyncio deliveries."""

    _INTERNAL: ClassVar = frozenset(
        {"deciding_desk", "desk", "keep_ack", "portal", "system", "ticket"}
    )

    ticket: Ticket | None = None
    """For this library alone."""

    @property
    def queue(self) -> MessageQueue:
        """The queue that it came from; for a redelivered message, a queue of the group's retry
        topic."""
        found = getattr(self.ticket.source, "queue", None) if self.ticket is not None else None
        if isinstance(found, MessageQueue) and found.topic.startswith(Topic.RETRY_PREFIX):
            return found
        return MessageQueue(self.topic, self.broker_name, self.queue_id)

    @property
    def group(self) -> str:
        """The group to which it was delivered."""
        return self.desk().user_group

    @property
    def is_broadcast(self) -> bool:
        """Whether every member of the group gets it."""
        return self.desk().is_broadcasting

    def desk(self) -> DeliveryOwner:
        """The consumer to which it is returned; raises UsageError if it came from none."""
        if self.ticket is None:
            raise UsageError("this message came from no consumer; there is nothing to settle")
        return self.ticket.desk

    def deciding_desk(self, level: int | None) -> DeliveryOwner:
        """The consumer, for an explicit decision. Raises UsageError if another decision was made
        before."""
        desk, ticket = self.desk(), self.ticket
        assert ticket is not None
        is_settled = ticket.is_settled and ticket.source is not None
        if (is_settled or ticket.has_ack_waiting) and _kind(ticket.level) != _kind(level):
            raise UsageError(
                f"message {self.message_id} was {_kind(ticket.level)} before, so it cannot be "
                f"{_kind(level)}; decide once"
            )
        ticket.asked_level = level
        return desk

    def keep_ack(self) -> bool:
        """Whether an acknowledgement waits until the transaction that handles the message has
        committed: earlier, a crash would leave the message neither handled nor redelivered."""
        ticket = self.ticket
        if ticket is None or not ticket.keeps_acks:
            return False
        ticket.has_ack_waiting = True
        return True


def _kind(level: int | None) -> str:
    if level is None:
        return "acknowledged"
    return "rejected" if level == NEVER else "given back to come again"


class Delivery(HeldMessage, kw_only=True, eq=False):
    """A message that was delivered. It is acknowledged automatically when the loop asks for the
    next one or the handler returns, unless one of these methods was called."""

    async def ack(self) -> None:
        """Acknowledge the message: no member of the group gets it again."""
        desk = self.deciding_desk(None)
        if not self.keep_ack():
            await desk.settle(self, None)

    async def retry(self, after: dt.timedelta | float | None = None) -> None:
        """Have the message redelivered: after the broker's own back-off, or after a time (a
        timedelta, or seconds; rounded up to the broker's next delay level)."""
        level = delay_level(after)
        await self.deciding_desk(level).settle(self, level)

    async def reject(self) -> None:
        """Move the message to the group's dead letters; it is not redelivered."""
        await self.deciding_desk(NEVER).settle(self, NEVER)
