"""Transactions that are pending, settled or discarded: read-only calls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from escrowmq.aio import MessageQueue
from escrowmq.client.admin.transactions import (
    PendingTransaction,
    TransactionCounts,
    TransactionFilter,
)
from escrowmq.console.answer_cache import FRESH_S
from escrowmq.console.answers import Answer
from escrowmq.console.operations import Caller, Operation
from escrowmq.console.paging import SIZE_MAX, Listed
from escrowmq.errors import EscrowMQError, UsageError

AGES_MS: Final = (0, 60_000, 5 * 60_000, 30 * 60_000, 2 * 3_600_000, 12 * 3_600_000)
COUNTED_FRESH_S: Final = 5.0
"""The seconds for which counts with a filter are cached, because brokers examine every pending half
for them."""

AGED_MAX: Final = 20_000
"""The most pending transactions that are counted by age, because each refresh examines all of
them."""

LOOKED_THROUGH_MAX: Final = 10_000
"""The most transactions that are skipped to reach a page."""

_Millis = Annotated[int, Meta(ge=0)]


class Which(msgspec.Struct, kw_only=True):
    """A filter of transactions; a field that is not given matches all."""

    topic: str = ""
    group: Annotated[str, Meta(description="producer group")] = ""
    state: Literal["", "waiting", "asked", "parked"] = ""
    min_age_ms: _Millis | None = None
    max_age_ms: _Millis | None = None
    broker: str = ""

    def to_filter(self) -> TransactionFilter:
        """Convert to the filter of `Admin`."""
        found: TransactionFilter = {}
        if self.topic:
            found["topic"] = self.topic
        if self.group:
            found["group"] = self.group
        if self.state:
            found["state"] = self.state
        if self.min_age_ms is not None:
            found["min_age_ms"] = self.min_age_ms
        if self.max_age_ms is not None:
            found["max_age_ms"] = self.max_age_ms
        if self.broker:
            found["broker"] = self.broker
        return found

    def describe(self) -> str:
        """Describe the filter in words."""
        parts = [
            f"{name} {value}"
            for name, value in (
                ("of topic", self.topic), ("of group", self.group), ("that are", self.state),
                ("of broker", self.broker),
            )
            if value
        ]  # fmt: skip
        if self.min_age_ms:
            parts.append(f"of {self.min_age_ms} ms and more")
        if self.max_age_ms is not None:
            parts.append(f"of {self.max_age_ms} ms at most")
        return " ".join(parts) or "at all"


class PendingWanted(Which, kw_only=True):
    """Selects the page of pending transactions to list."""

    page: Annotated[int, Meta(ge=1)] = 1
    size: Annotated[int, Meta(ge=1, le=SIZE_MAX)] = 50


class AgeBucket(Answer, kw_only=True):
    """The number of pending transactions of one age."""

    from_ms: int
    to_ms: int | None
    """The upper end of the age; null for the last bucket, with everything older."""
    count: int


class Counted(Answer, kw_only=True):
    """Numbers of pending transactions, by topic, group and age."""

    counts: TransactionCounts
    ages: list[AgeBucket] | None
    """Counts by age; null if there are too many transactions to count."""


class TransactionWanted(msgspec.Struct, kw_only=True):
    """Names the transaction to show."""

    transaction: Annotated[
        str, Meta(min_length=1, description="a transaction id, or the id of one of its messages")
    ]
    topic: Annotated[
        str, Meta(description="topic of the message, needed for a producer's message id")
    ] = ""


class Delivery(Answer, kw_only=True):
    """Whether a consumer group has consumed the committed message."""

    group: str
    state: Literal["done", "waiting", "unknown"]
    """`done`: the group's offset is after the message; `waiting`: it is not yet."""
    behind: int | None = None
    """Number of messages in the queue that the group must consume first."""


class Fate(Answer, kw_only=True):
    """One message of a transaction, with everything known about it."""

    message: PendingTransaction
    deliveries: list[Delivery] | None = None
    """For a committed message: the groups of its topic; null if the message was not found."""
    queue: str = ""
    """The position where it was delivered: broker/queue@offset."""


class DiscardedWanted(msgspec.Struct, kw_only=True):
    """Selects the page of discarded transactions to list."""

    topic: str = ""
    group: str = ""
    broker: str = ""
    page: Annotated[int, Meta(ge=1)] = 1
    size: Annotated[int, Meta(ge=1, le=SIZE_MAX)] = 50


async def list_pending(caller: Caller, wanted: PendingWanted) -> Listed[PendingTransaction]:
    """List pending transactions, broker by broker, the oldest first."""
    caller.account_client.collector.note_viewer()
    admin = await caller.account_client.open_admin()
    which = wanted.to_filter()
    found = await read_page(admin.transactions.pending(**which), wanted.page, wanted.size)
    if found.has_more and not which:
        counts = await caller.account_client.collector.transaction_counts()
        if counts is not None and counts.count > wanted.page * wanted.size:  # of a moment ago
            found.total = counts.count
    return found


async def read_page(
    items: AsyncIterator[PendingTransaction], page: int, size: int
) -> Listed[PendingTransaction]:
    """Return one page of a list that can only be read from its beginning."""
    first = (page - 1) * size
    if first > LOOKED_THROUGH_MAX:
        raise UsageError(
            f"page={page}: the list ends before that page; filter by topic, group or age"
        )
    found: list[PendingTransaction] = []
    nth = 0
    async for item in items:
        if nth >= first + size:
            return Listed(items=found, total=None, page=page, pages=None, has_more=True)
        if nth >= first:
            found.append(item)
        nth += 1
    return Listed(items=found, total=nth, page=page, pages=max(1, -(-nth // size)))


async def count_pending(caller: Caller, wanted: Which) -> Counted:
    """Count pending transactions by topic, group and age."""
    client = caller.account_client
    admin = await client.open_admin()
    which = wanted.to_filter()
    fresh_s = COUNTED_FRESH_S if which else FRESH_S
    counts = await client.memo.get_or_request(
        ("count", repr(which)), lambda: admin.transactions.count(**which), fresh_s=fresh_s
    )
    if counts.count > AGED_MAX:
        return Counted(counts=counts, ages=None)
    ages = await client.memo.get_or_request(
        ("ages", repr(which)), lambda: _count_by_age(caller, which), fresh_s=10
    )
    return Counted(counts=counts, ages=ages)


async def _count_by_age(caller: Caller, which: TransactionFilter) -> list[AgeBucket]:
    admin = await caller.account_client.open_admin()
    found: list[AgeBucket] = []
    rest = 0
    for from_ms in reversed(AGES_MS):  # those that are older are counted among the younger
        older: TransactionFilter = {**which}
        older["min_age_ms"] = max(from_ms, which.get("min_age_ms", 0))
        counted = (await admin.transactions.count(**older)).count
        to_ms = found[-1].from_ms if found else None
        found.append(AgeBucket(from_ms=from_ms, to_ms=to_ms, count=max(0, counted - rest)))
        rest = counted
    return found[::-1]


async def show_transaction(caller: Caller, wanted: TransactionWanted) -> list[Fate]:
    """Show everything known about one transaction: its half, its checks and their answers, its
    outcome, and the progress of the consumer groups."""
    admin = await caller.account_client.open_admin()
    items = await admin.transactions.show(wanted.transaction, topic=wanted.topic)
    return [await _message_fate(caller, item) for item in items]


async def _message_fate(caller: Caller, item: PendingTransaction) -> Fate:
    fate = Fate(message=item)
    if item.state != "committed":
        return fate
    client = caller.account_client
    admin = await client.open_admin()
    try:
        message = await admin.messages.get(item.message_id, topic=item.topic, broker=item.broker)
        groups = (await client.collector.describe_topic(item.topic)).groups
    except EscrowMQError:
        return fate
    fate.queue = f"{message.broker_name}/{message.queue_id}@{message.queue_offset}"
    fate.deliveries = []
    place = MessageQueue(item.topic, message.broker_name, message.queue_id)
    for group in groups:
        try:
            lags = await client.collector.group_lags(group)
        except EscrowMQError:
            fate.deliveries.append(Delivery(group=group, state="unknown"))
            continue
        mine = [lag for lag in lags if lag.queue == place]
        if not mine:
            fate.deliveries.append(Delivery(group=group, state="unknown"))
            continue
        behind = message.queue_offset - mine[0].committed
        state: Literal["done", "waiting"] = "done" if behind < 0 else "waiting"
        fate.deliveries.append(Delivery(group=group, state=state, behind=max(0, behind)))
    return fate


async def list_discarded(caller: Caller, wanted: DiscardedWanted) -> Listed[PendingTransaction]:
    """List transactions that were given up after their last check."""
    admin = await caller.account_client.open_admin()
    items = admin.transactions.discarded(
        topic=wanted.topic, group=wanted.group, broker=wanted.broker
    )
    return await read_page(items, wanted.page, wanted.size)


OPERATIONS: Final = (
    Operation(name="transactions.list", method="GET", path="/transactions", wants=PendingWanted,
              gives=Listed[PendingTransaction], summary="Pending transactions, the oldest first",
              handler=list_pending),
    Operation(name="transactions.count", method="GET", path="/transactions/count", wants=Which,
              gives=Counted, summary="How many are pending", handler=count_pending),
    Operation(name="transactions.discarded", method="GET", path="/transactions/discarded",
              wants=DiscardedWanted, gives=Listed[PendingTransaction],
              summary="Transactions that were given up", handler=list_discarded),
    Operation(name="transactions.show", method="GET", path="/transactions/{transaction}",
              wants=TransactionWanted, gives=list[Fate],
              summary="All that is known of one transaction", handler=show_transaction),
)  # fmt: skip
