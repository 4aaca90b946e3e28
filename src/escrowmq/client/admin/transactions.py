"""Pending and discarded transactions: show, settle and check them. EscrowMQ's brokers only:
RocketMQ's brokers beside them are skipped, and NotSupported is raised if there are no others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Final, Literal, TypedDict, TypeVar, Unpack

import msgspec

from escrowmq.base.codes import Request, Response
from escrowmq.base.own_properties import OUTCOME
from escrowmq.client.admin.cluster_calls import ClusterCalls
from escrowmq.client.core.end_request import parse_transaction_id
from escrowmq.codec.pending_bodies import PAGE_MAX, ChangeResult, PendingCounts, TransactionItem
from escrowmq.errors import NotFound, NotSupported, ResponseError, TransportError, UsageError

PAGE_COUNT: Final = 200
State = Literal["waiting", "asked", "parked"]
T = TypeVar("T")

_NOT_HERE: Final = frozenset(
    {
        Response.SYSTEM_ERROR,
        Response.MESSAGE_ILLEGAL,
        Response.INVALID_PARAMETER,
        Response.REQUEST_CODE_NOT_SUPPORTED,
    }
)


class PendingTransaction(TransactionItem, kw_only=True, rename="camel"):
    """One half message; docs/extensions.md describes its fields."""

    broker: str = ""


class TransactionFilter(TypedDict, total=False):
    """Selects transactions; fields that are not given match all."""

    topic: str
    group: str
    bundle: str
    """The id shared by the messages of one transaction."""
    state: State
    min_age_ms: int
    max_age_ms: int
    broker: str
    """Select only transactions on this broker; NotSupported if it is RocketMQ's."""


class TransactionCounts(msgspec.Struct, kw_only=True, rename="camel"):
    """Numbers of pending halves, on all brokers together."""

    count: int = 0
    parked: int = 0
    oldest_ms: int = -1
    """When the oldest half was stored; -1 if there are none."""
    by_topic: dict[str, int] = {}
    by_group: dict[str, int] = {}
    parked_by_group: dict[str, int] = {}
    """Parked halves by producer group: no producer of the group is connected, so none can be asked.
    For gRPC producers the group is the topic."""
    not_counted: list[str] = []
    """Brokers that cannot report the numbers: RocketMQ's."""
    missing: list[str] = []
    """Brokers that left within the last hour; their pending halves are not counted."""


class _TransactionPage(msgspec.Struct, rename="camel"):
    items: list[PendingTransaction] = []
    next: int = -1


class Transactions:
    """Pending and discarded transactions: `Admin.transactions`."""

    def __init__(self, cluster: ClusterCalls) -> None:
        self._cluster = cluster

    async def pending(
        self, **wanted: Unpack[TransactionFilter]
    ) -> AsyncIterator[PendingTransaction]:
        """Iterate over pending transactions, broker by broker, the oldest first; pages are fetched
        as needed."""
        masters = await self._cluster.masters(wanted.get("broker", ""))
        async for item in self._iterate_all(
            masters, Request.ESCROW_PENDING_LIST, self._select_matching(wanted)
        ):
            yield item

    async def count(self, **wanted: Unpack[TransactionFilter]) -> TransactionCounts:
        """Return the numbers of pending halves, by topic and by group."""

        which = self._select_matching(wanted)
        total = TransactionCounts()
        masters = await self._cluster.masters(wanted.get("broker", ""))
        silent: list[str] = []
        ask = partial(self._fetch_counts, which=which)
        for parts in await self._ask_supporting(masters, ask, silent):
            for part in parts:
                _add_counts(total, part)
        total.not_counted = silent
        if not wanted.get("broker"):
            total.missing = await self._cluster.missing_names()
        return total

    async def show(
        self, transaction: str, *, topic: str = "", broker: str = ""
    ) -> list[PendingTransaction]:
        """Return everything known about a transaction, pending or settled: one item per message,
        with its events. `transaction` is a transaction id or the id of one of its messages;
        `broker` limits the search. Raises NotFound if no broker knows it."""
        which = self._select_transaction(transaction, topic=topic)

        async def show_on_broker(name: str, address: str) -> list[PendingTransaction]:
            page = await self._cluster.ask_decoded(
                address, Request.ESCROW_SHOW, _TransactionPage, body=msgspec.json.encode(which)
            )
            return [self._with_user_names(name, item) for item in page.items]

        masters = await self._brokers_to_ask(transaction, broker)
        parts = await self._ask_knowing(transaction, masters, show_on_broker)
        items = [item for part in parts for item in part]
        if not items:
            raise _not_found_error(transaction, [])
        return items

    async def commit(
        self, transaction: str, *, topic: str = "", reason: str = "", broker: str = ""
    ) -> str:
        """Commit in the producer's place; return the outcome. Raises AlreadyRolledBack or
        AlreadySettled if it had ended another way. `broker` limits the search."""
        which = {
            **self._select_transaction(transaction, topic=topic),
            "verdict": "commit",
            "reason": reason,
        }
        return await self._settle(transaction, which, broker)

    async def rollback(
        self, transaction: str, *, topic: str = "", reason: str = "", broker: str = ""
    ) -> str:
        """Roll back in the producer's place; return the outcome. Raises AlreadyCommitted or
        AlreadySettled if it had ended another way. `broker` limits the search."""
        which = {
            **self._select_transaction(transaction, topic=topic),
            "verdict": "rollback",
            "reason": reason,
        }
        return await self._settle(transaction, which, broker)

    async def check(
        self, transaction: str = "", *, reason: str = "", **wanted: Unpack[TransactionFilter]
    ) -> int:
        """Make brokers check one transaction, or all that match, immediately; return how many are
        checked."""
        broker = wanted.pop("broker", "")
        if transaction and wanted:
            raise UsageError("give a transaction, or a filter for transactions; not both")
        if transaction:
            return await self._check_one(transaction, broker, reason=reason)
        which = {**self._select_matching(wanted), "reason": reason}
        masters = await self._cluster.masters(broker)
        return sum(
            await self._ask_supporting(
                masters, lambda address: self._request_checks(address, which)
            )
        )

    async def discarded(
        self, *, topic: str = "", group: str = "", broker: str = ""
    ) -> AsyncIterator[PendingTransaction]:
        """Iterate over transactions that were given up after their last check; `broker` limits the
        search."""
        body = self._select_names(topic=topic, group=group)
        masters = await self._cluster.masters(broker)
        async for item in self._iterate_all(masters, Request.ESCROW_DISCARDED_LIST, body):
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
        """Make discarded transactions pending again: one, by its `offset_id`, or those of a topic
        or group; return how many messages are pending again."""
        if not (offset_id or topic or group):
            raise UsageError("name what to resume: an offset id, a topic or a group")
        which = {**self._select_names(topic=topic, group=group), "reason": reason}
        if offset_id:
            which["offsetId"] = offset_id

        async def resume_on_broker(address: str) -> int:
            first = {**which, "limit": min(limit, PAGE_MAX)}
            done = await self._ask_change(address, Request.ESCROW_DISCARDED_RESUME, first)
            count = done.count
            after = -1
            while done.next > after and count < limit:
                after = done.next
                rest = {**which, "after": after, "limit": min(limit - count, PAGE_MAX)}
                done = await self._ask_change(address, Request.ESCROW_DISCARDED_RESUME, rest)
                count += done.count
            return count

        masters = await self._cluster.masters()
        if not offset_id:
            return sum(await self._ask_supporting(masters, resume_on_broker))
        count = sum(
            await self._ask_knowing(
                offset_id, masters, lambda _, address: resume_on_broker(address)
            )
        )
        if not count:
            raise _not_found_error(offset_id, [])
        return count

    async def rotate_key(self, *, broker: str = "", reason: str = "") -> dict[str, int]:
        """Make brokers sign transaction ids with a new key; return its number by broker. Ids signed
        before stay valid."""
        keys: dict[str, int] = {}
        for name, address in (await self._cluster.masters(broker)).items():
            done = await self._ask_change(address, Request.ESCROW_KEY_ROTATE, {"reason": reason})
            keys[name] = done.key
        return keys

    # -- inside ------------------------------------------------------------------------------

    async def _ask_supporting(
        self,
        masters: Mapping[str, str],
        ask: Callable[[str], Awaitable[T]],
        silent: list[str] | None = None,
    ) -> list[T]:
        """Ask each broker and return the answers. Brokers that do not support the request are
        skipped, and their names added to `silent`. Raises NotSupported if no broker supports it."""
        found: list[T] = []
        refusal: NotSupported | None = None
        for name, address in masters.items():
            try:
                found.append(await ask(address))
            except NotSupported as error:
                refusal = error
                if silent is not None:
                    silent.append(name)
        if refusal is not None and not found:
            raise refusal
        return found

    async def _ask_knowing(
        self,
        named: str,
        masters: Mapping[str, str],
        ask: Callable[[str, str], Awaitable[T]],
        *,
        is_one: bool = False,
    ) -> list[T]:
        """Ask the brokers that may know what is named, and return the answers of those that do;
        with `is_one`, only the first. Unreachable brokers matter if there is no answer."""
        found: list[T] = []
        refusals: list[ResponseError] = []
        failure: TransportError | None = None
        for name, address in masters.items():
            try:
                found.append(await ask(name, address))
            except ResponseError as error:
                refusals.append(_require_not_here(error))
            except TransportError as error:
                failure = error
            if found and is_one:
                break
        if found:
            return found
        if failure is None or len(masters) == 1:
            raise failure or _not_found_error(named, refusals)
        raise type(failure)(f"{named} is not known to the others, and {failure}") from failure

    async def _iterate_all(
        self, masters: Mapping[str, str], code: int, body: dict[str, object]
    ) -> AsyncIterator[PendingTransaction]:
        """Iterate over the items of all brokers that support the request. Raises NotSupported if
        none does."""
        refusals: list[NotSupported] = []
        for broker, address in masters.items():
            try:
                async for item in self._iterate_broker(broker, address, code, body):
                    yield item
            except NotSupported as error:
                refusals.append(error)
        if refusals and len(refusals) == len(masters):
            raise refusals[0]

    async def _check_one(self, transaction: str, broker: str, *, reason: str) -> int:
        which = {**self._select_transaction(transaction), "reason": reason}
        masters = await self._brokers_to_ask(transaction, broker)
        counts = await self._ask_knowing(
            transaction, masters, lambda _, address: self._request_checks(address, which)
        )
        return sum(counts)

    async def _request_checks(self, address: str, which: dict[str, object]) -> int:
        done = await self._ask_change(address, Request.ESCROW_CHECK, which)
        count, after = done.count, -1
        while done.next > after:
            after = done.next
            done = await self._ask_change(address, Request.ESCROW_CHECK, {**which, "after": after})
            count += done.count
        return count

    async def _fetch_counts(self, address: str, which: dict[str, object]) -> list[PendingCounts]:
        """Return one broker's counts, page by page: each request does a bounded amount of work."""
        parts: list[PendingCounts] = []
        after, is_whole = -1, False
        while not is_whole:
            asked = {**which, "after": after} if after >= 0 else which
            part = await self._cluster.ask_decoded(
                address,
                Request.ESCROW_PENDING_COUNT,
                PendingCounts,
                body=msgspec.json.encode(asked),
            )
            parts.append(part)
            is_whole = part.next <= after
            after = part.next
        return parts

    async def _iterate_broker(
        self, broker: str, address: str, code: int, body: dict[str, object]
    ) -> AsyncIterator[PendingTransaction]:
        after = -1
        while True:
            asked = {**body, "after": after, "limit": PAGE_COUNT}
            page = await self._cluster.ask_decoded(
                address, code, _TransactionPage, body=msgspec.json.encode(asked)
            )
            for item in page.items:
                yield self._with_user_names(broker, item)
            if page.next <= after:
                return
            after = page.next

    async def _settle(self, transaction: str, which: dict[str, object], broker: str) -> str:
        async def settle_on_broker(_: str, address: str) -> str:
            reply = await self._cluster.ask(
                address, Request.ESCROW_SETTLE, {}, msgspec.json.encode(which)
            )
            return (reply.ext or {}).get(OUTCOME, "")

        masters = await self._brokers_to_ask(transaction, broker)
        outcome, *_ = await self._ask_knowing(transaction, masters, settle_on_broker, is_one=True)
        return outcome

    async def _brokers_to_ask(self, transaction: str, broker: str = "") -> dict[str, str]:
        """Return the brokers that may know a transaction: one if the id names its broker, as
        transaction ids do and message ids do not; otherwise all."""
        return await self._cluster.masters(_broker_in_id(transaction) or broker)

    async def _ask_change(self, address: str, code: int, which: dict[str, object]) -> ChangeResult:
        return await self._cluster.ask_decoded(
            address, code, ChangeResult, body=msgspec.json.encode(which)
        )

    def _select_transaction(self, transaction: str, *, topic: str = "") -> dict[str, object]:
        name = "id" if _broker_in_id(transaction) else "messageId"
        which: dict[str, object] = {name: transaction}
        if topic:
            which["topic"] = self._cluster.with_namespace(topic)
        return which

    def _select_names(self, *, topic: str, group: str) -> dict[str, object]:
        found = {"topic": topic, "group": group}
        return {name: self._cluster.with_namespace(value) for name, value in found.items() if value}

    def _select_matching(self, wanted: TransactionFilter) -> dict[str, object]:
        body = self._select_names(topic=wanted.get("topic", ""), group=wanted.get("group", ""))
        names = {"bundle": "transaction", "state": "state",
                 "min_age_ms": "minAgeMs", "max_age_ms": "maxAgeMs"}  # fmt: skip
        for name, value in wanted.items():
            if isinstance(value, int) and value < 0:
                raise UsageError(f"{name}={value}; at least 0 is allowed")
            if name in names and value is not None:
                body[names[name]] = value
        return body

    def _with_user_names(self, broker: str, item: PendingTransaction) -> PendingTransaction:
        item.broker = broker
        item.topic = self._cluster.without_namespace(item.topic)
        item.group = self._cluster.without_namespace(item.group)
        return item


def _add_counts(total: TransactionCounts, found: PendingCounts) -> None:
    total.count += found.count
    total.parked += found.parked
    if found.oldest_ms >= 0:
        known = total.oldest_ms if total.oldest_ms >= 0 else found.oldest_ms
        total.oldest_ms = min(known, found.oldest_ms)
    for mine, theirs in (
        (total.by_topic, found.by_topic),
        (total.by_group, found.by_group),
        (total.parked_by_group, found.parked_by_group),
    ):
        for name, count in theirs.items():
            mine[name] = mine.get(name, 0) + count


def _broker_in_id(transaction: str) -> str:
    """Return the broker that a transaction id names; empty for a message id."""
    if not transaction:
        raise UsageError("the transaction is not named; give its id, or a message's")
    if set(transaction) <= set("0123456789abcdefABCDEF"):
        return ""  # all message ids are hexadecimal
    return parse_transaction_id(transaction).broker_name


def _require_not_here(error: ResponseError) -> ResponseError:
    """Return the error if it only says that this broker does not know the transaction. Raise any
    other error."""
    if error.code not in _NOT_HERE:
        raise error
    return error


def _not_found_error(transaction: str, refusals: list[ResponseError]) -> ResponseError:
    """Make the error to raise if no broker knows the transaction: NotFound, or NotSupported if no
    broker supports the request."""
    said = [error for error in refusals if not isinstance(error, NotSupported)]
    if refusals and not said:
        return refusals[0]
    tells = f": {said[-1].remark}" if said else ""
    if len(said) < len(refusals):
        tells += "; RocketMQ's brokers were not asked, they cannot tell"
    found = NotFound(f"no broker knows the transaction {transaction}{tells}")
    found.__cause__ = said[-1] if said else None
    return found
