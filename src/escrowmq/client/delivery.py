"""A message in the hands of whoever consumes it."""

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


class Desk(Protocol):
    """Who a delivery is given back to."""

    user_group: str
    is_broadcasting: bool

    async def settle(self, message: HeldMessage, level: int | None) -> None:
        """It is done with (None), or comes again after a delay level."""

    async def settle_batch(self, batch: list[HeldMessage], level: int | None) -> None:
        """The same for what a handler was given, as far as the handler did not do it itself."""


class Ticket:
    """Where a delivery came from, and whether it is done with."""

    __slots__ = (
        "asked_level", "desk", "end", "generation", "has_ack_waiting", "is_settled", "keeps_acks",
        "level", "receipt", "source", "taken",
    )  # fmt: skip

    def __init__(
        self,
        desk: Desk,
        source: object,
        *,
        generation: int = 0,
        receipt: Receipt | None = None,
    ) -> None:
        self.desk = desk
        self.source = source
        self.generation = generation
        self.receipt = receipt
        """What a popped message is acknowledged with."""
        self.is_settled = False
        self.level: int | None = None
        """What was decided, once it is settled: None for done with, else a delay level."""
        self.asked_level: int | None = None
        """The delay level that the user's own call of `retry` or `reject` asked for. A consumer
        that gives up on a slow handler sets `level` alone."""
        self.keeps_acks = False
        """Whether an acknowledgement waits for an open transaction (`consume_once`)."""
        self.has_ack_waiting = False
        """Whether one waits."""
        self.end = ConsumeEnd.FAILED
        """Why it comes again, if it does."""
        self.taken: tuple[str, int] | None = None
        """For the trace: by which hand-over it was taken, and when."""

    def settle(self, level: int | None) -> None:
        """It is decided."""
        self.is_settled = True
        self.level = level

    def begin_handling(self) -> None:
        """A transaction is open in which the message is handled."""
        self.keeps_acks = True

    def end_handling(self, *, is_committed: bool) -> None:
        """It has ended. After a rollback nothing of it waits: the message is to be redelivered."""
        self.keeps_acks = False
        self.has_ack_waiting = self.has_ack_waiting and is_committed


class HeldMessage(Tidy, ReceivedMessage, kw_only=True, eq=False):
    """What deliveries of both faces have."""

    _INTERNAL: ClassVar = frozenset(
        {"deciding_desk", "desk", "keep_ack", "portal", "system", "ticket"}
    )

    ticket: Ticket | None = None
    """For this library alone."""

    @property
    def queue(self) -> MessageQueue:
        """The queue that it came from; of one that comes again, a queue of the group's retries."""
        found = getattr(self.ticket.source, "queue", None) if self.ticket is not None else None
        if isinstance(found, MessageQueue) and found.topic.startswith(Topic.RETRY_PREFIX):
            return found
        return MessageQueue(self.topic, self.broker_name, self.queue_id)

    @property
    def group(self) -> str:
        """The group that it was handed to."""
        return self.desk().user_group

    @property
    def is_broadcast(self) -> bool:
        """Whether every member of the group gets it."""
        return self.desk().is_broadcasting

    def desk(self) -> Desk:
        """Who it is given back to; UsageError when it came from no consumer."""
        if self.ticket is None:
            raise UsageError("this message came from no consumer; there is nothing to settle")
        return self.ticket.desk

    def deciding_desk(self, level: int | None) -> Desk:
        """The same, for who decides by hand. UsageError when something else was decided before:
        that is under way, or done."""
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
    """A message that was handed over. It is acknowledged by itself, when the next one is asked for
    or when the handler returns, unless one of these methods was called."""

    async def ack(self) -> None:
        """It is consumed: no member of the group gets it again."""
        desk = self.deciding_desk(None)
        if not self.keep_ack():
            await desk.settle(self, None)

    async def retry(self, after: dt.timedelta | float | None = None) -> None:
        """It is to come again: after the broker's own back-off, or after a time (a timedelta, or
        seconds; the broker's next longer delay level counts)."""
        level = delay_level(after)
        await self.deciding_desk(level).settle(self, level)

    async def reject(self) -> None:
        """It goes to the group's dead letters and comes no more."""
        await self.deciding_desk(NEVER).settle(self, NEVER)
