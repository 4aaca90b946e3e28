"""Pending and discarded transactions: looked at, decided, asked about. EscrowMQ's brokers only;
others raise NotSupported."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, Literal, TypedDict, Unpack

import msgspec

from escrowmq.base.codes import Request, Response
from escrowmq.client.admin.cluster import Cluster
from escrowmq.client.core.ending import half_of_token
from escrowmq.codec.bodies import decode_body
from escrowmq.codec.pending import Counts, Done, Item
from escrowmq.errors import NotFound, ResponseError, UsageError

PAGE_COUNT: Final = 200
State = Literal["waiting", "asked", "parked"]

_NOT_HERE: Final = frozenset(
    {Response.SYSTEM_ERROR, Response.MESSAGE_ILLEGAL, Response.INVALID_PARAMETER}
)


class PendingTransaction(Item, kw_only=True, rename="camel"):
    """One half message; see docs/extensions.md for its members."""

    broker: str = ""


class TransactionFilter(TypedDict, total=False):
    """Which transactions are meant; what is not given does not matter."""

    topic: str
    group: str
    bundle: str
    """The id that messages of one transaction have in common."""
    state: State
    min_age_ms: int
    max_age_ms: int


class TransactionCounts(msgspec.Struct, kw_only=True, rename="camel"):
    """How many halves are pending, on all brokers together."""

    count: int = 0
    parked: int = 0
    oldest_ms: int = -1
    """When the oldest was stored; -1 without any."""
    by_topic: dict[str, int] = {}
    by_group: dict[str, int] = {}


class _Page(msgspec.Struct, rename="camel"):
    items: list[PendingTransaction] = []
    next: int = -1


class Transactions:
    """`Admin.transactions`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def pending(
        self, **wanted: Unpack[TransactionFilter]
    ) -> AsyncIterator[PendingTransaction]:
        """Pending transactions, broker by broker, the oldest first; page after page is asked for
        while they are taken."""
        body = self._filter(wanted)
        for broker, address in (await self._cluster.masters()).items():
            async for item in self._pages(broker, address, Request.ESCROW_PENDING_LIST, body):
                yield item

    async def count(self, **wanted: Unpack[TransactionFilter]) -> TransactionCounts:
        """How many are pending, by topic and by group."""
        total = TransactionCounts()
        for address in (await self._cluster.masters()).values():
            after, is_whole = -1, False
            while not is_whole:
                which = self._filter(wanted)
                if after >= 0:
                    which["after"] = after
                found = await self._counted(address, which)
                _add(total, found)
                is_whole = found.next <= after
                after = found.next
        return total

    async def show(self, transaction: str, *, topic: str = "") -> list[PendingTransaction]:
        """All that is known of a transaction, pending or settled: one item for each message, with
        its events. `transaction` is a transaction id or the id of one of its messages. NotFound
        when nobody knows it."""
        found: list[PendingTransaction] = []
        which = self._which(transaction, topic=topic)
        refusal: ResponseError | None = None
        for broker, address in (await self._brokers(transaction)).items():
            try:
                reply = await self._cluster.ask(
                    address, Request.ESCROW_SHOW, {}, msgspec.json.encode(which)
                )
            except ResponseError as error:
                refusal = _of_another(error)
                continue
            found += self._items(broker, reply.body)
        if not found:
            raise _unknown(transaction, refusal)
        return found

    async def commit(self, transaction: str, *, topic: str = "", reason: str = "") -> str:
        """Commit in the producer's place; the outcome that holds now. AlreadyRolledBack and
        AlreadySettled when it had ended another way."""
        return await self._settle(transaction, "commit", topic=topic, reason=reason)

    async def rollback(self, transaction: str, *, topic: str = "", reason: str = "") -> str:
        """Roll back in the producer's place; the outcome that holds now. AlreadyCommitted and
        AlreadySettled when it had ended another way."""
        return await self._settle(transaction, "rollback", topic=topic, reason=reason)

    async def check(
        self, transaction: str = "", *, reason: str = "", **wanted: Unpack[TransactionFilter]
    ) -> int:
        """Let producers be asked at once, about one transaction or all that match; how many are
        asked about."""
        if transaction:
            if wanted:
                raise UsageError("give a transaction, or what chooses transactions; not both")
            which = {**self._which(transaction), "reason": reason}
            brokers = await self._brokers(transaction)
        else:
            which = {**self._filter(wanted), "reason": reason}
            brokers = await self._cluster.masters()
        count = 0
        refusal: ResponseError | None = None
        is_known = False
        for address in brokers.values():
            try:
                done = await self._done(address, Request.ESCROW_CHECK, which)
            except ResponseError as error:
                if not transaction:
                    raise
                refusal = _of_another(error)
                continue
            is_known = True
            count += done.count
            while done.next >= 0:
                done = await self._done(
                    address, Request.ESCROW_CHECK, {**which, "after": done.next}
                )
                count += done.count
        if transaction and not is_known:
            raise _unknown(transaction, refusal)
        return count

    async def discarded(
        self, *, topic: str = "", group: str = ""
    ) -> AsyncIterator[PendingTransaction]:
        """Transactions that were given up after their last check."""
        body = self._named(topic=topic, group=group)
        for broker, address in (await self._cluster.masters()).items():
            async for item in self._pages(broker, address, Request.ESCROW_DISCARDED_LIST, body):
                yield item

    async def resume(
        self,
        offset_id: str = "",
        *,
        topic: str = "",
        group: str = "",
        limit: int = PAGE_COUNT,
        reason: str = "",
    ) -> int:
        """Let transactions that were given up be asked about again: one, by its `offset_id`, or
        those of a topic or group; how many messages are pending again."""
        if not (offset_id or topic or group):
            raise UsageError("say which: an offset id, a topic or a group")
        which = {**self._named(topic=topic, group=group), "limit": limit, "reason": reason}
        if offset_id:
            which["offsetId"] = offset_id
        count = 0
        refusal: ResponseError | None = None
        for address in (await self._cluster.masters()).values():
            try:
                done = await self._done(address, Request.ESCROW_DISCARDED_RESUME, which)
            except ResponseError as error:
                if not offset_id:
                    raise
                refusal = _of_another(error)
                continue
            count += done.count
        if offset_id and not count:
            raise _unknown(offset_id, refusal)
        return count

    async def rotate_key(self, *, broker: str = "", reason: str = "") -> dict[str, int]:
        """Let brokers sign transaction ids with a new key; its number, by broker. Ids signed
        before stay good."""
        keys: dict[str, int] = {}
        for name, address in (await self._cluster.masters(broker)).items():
            done = await self._done(address, Request.ESCROW_KEY_ROTATE, {"reason": reason})
            keys[name] = done.key
        return keys

    # -- inside ------------------------------------------------------------------------------

    async def _counted(self, address: str, which: dict[str, object]) -> Counts:
        body = msgspec.json.encode(which)
        reply = await self._cluster.ask(address, Request.ESCROW_PENDING_COUNT, {}, body)
        return decode_body(Counts, reply.body)

    async def _pages(
        self, broker: str, address: str, code: int, body: dict[str, object]
    ) -> AsyncIterator[PendingTransaction]:
        after = -1
        while True:
            asked = {**body, "after": after, "limit": PAGE_COUNT}
            page = await self._cluster.ask_for(
                address, code, _Page, body=msgspec.json.encode(asked)
            )
            for item in page.items:
                yield self._named_item(broker, item)
            if page.next <= after:
                return
            after = page.next

    async def _settle(self, transaction: str, verdict: str, *, topic: str, reason: str) -> str:
        which = {**self._which(transaction, topic=topic), "verdict": verdict, "reason": reason}
        refusal: ResponseError | None = None
        for address in (await self._brokers(transaction)).values():
            try:
                reply = await self._cluster.ask(
                    address, Request.ESCROW_SETTLE, {}, msgspec.json.encode(which)
                )
            except ResponseError as error:
                refusal = _of_another(error)
                continue
            return (reply.ext or {}).get("escrowOutcome", "")
        raise _unknown(transaction, refusal)

    async def _brokers(self, transaction: str) -> dict[str, str]:
        """Those that may know a transaction: its id names the broker, a message id does not."""
        broker = _broker_of(transaction)
        return await self._cluster.masters(broker)

    async def _done(self, address: str, code: int, which: dict[str, object]) -> Done:
        return await self._cluster.ask_for(address, code, Done, body=msgspec.json.encode(which))

    def _which(self, transaction: str, *, topic: str = "") -> dict[str, object]:
        name = "id" if _broker_of(transaction) else "messageId"
        which: dict[str, object] = {name: transaction}
        if topic:
            which["topic"] = self._cluster.wrap(topic)
        return which

    def _named(self, *, topic: str, group: str) -> dict[str, object]:
        found = {"topic": topic, "group": group}
        return {name: self._cluster.wrap(value) for name, value in found.items() if value}

    def _filter(self, wanted: TransactionFilter) -> dict[str, object]:
        body = self._named(topic=wanted.get("topic", ""), group=wanted.get("group", ""))
        names = {"bundle": "transaction", "state": "state",
                 "min_age_ms": "minAgeMs", "max_age_ms": "maxAgeMs"}  # fmt: skip
        for name, value in wanted.items():
            if name in names and value is not None:
                body[names[name]] = value
        return body

    def _items(self, broker: str, body: bytes) -> list[PendingTransaction]:
        return [self._named_item(broker, item) for item in decode_body(_Page, body).items]

    def _named_item(self, broker: str, item: PendingTransaction) -> PendingTransaction:
        item.broker = broker
        item.topic = self._cluster.unwrap(item.topic)
        item.group = self._cluster.unwrap(item.group)
        return item


def _add(total: TransactionCounts, found: Counts) -> None:
    total.count += found.count
    total.parked += found.parked
    if found.oldest_ms >= 0:
        known = total.oldest_ms if total.oldest_ms >= 0 else found.oldest_ms
        total.oldest_ms = min(known, found.oldest_ms)
    for mine, theirs in ((total.by_topic, found.by_topic), (total.by_group, found.by_group)):
        for name, count in theirs.items():
            mine[name] = mine.get(name, 0) + count


def _broker_of(transaction: str) -> str:
    """The broker that a transaction id names; empty for a message id."""
    if not transaction:
        raise UsageError("the transaction is not named; give its id, or a message's")
    if set(transaction) <= set("0123456789abcdefABCDEF"):
        return ""  # all message ids are hexadecimal
    return half_of_token(transaction).broker_name


def _of_another(error: ResponseError) -> ResponseError:
    """A refusal that only says that this broker does not know the transaction; others are
    raised."""
    if error.code not in _NOT_HERE:
        raise error
    return error


def _unknown(transaction: str, refusal: ResponseError | None) -> NotFound:
    said = f": {refusal.remark}" if refusal is not None else ""
    found = NotFound(f"no broker knows the transaction {transaction}{said}")
    found.__cause__ = refusal
    return found
