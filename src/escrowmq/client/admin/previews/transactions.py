"""Previews of what operators do with transactions."""

from __future__ import annotations

from typing import Final, Literal, Unpack

from escrowmq.base.human_format import format_span
from escrowmq.client.admin.admin import Admin
from escrowmq.client.admin.cluster_calls import ClusterCalls
from escrowmq.client.admin.previews.preview import ROWS_MAX, Preview, PreviewRow
from escrowmq.client.admin.transactions import PendingTransaction, TransactionFilter
from escrowmq.errors import (
    AlreadyCommitted,
    AlreadyRolledBack,
    AlreadySettled,
    NotFound,
    UsageError,
)

Verdict = Literal["commit", "rollback"]
OUTCOMES: Final = {"commit": "committed", "rollback": "rolled_back"}
DOES: Final = {"commit": "commit: its consumers will see it", "rollback": "roll back"}
_PENDING: Final = frozenset({"waiting", "asked", "parked"})
_ENDED: Final = {"committed": AlreadyCommitted, "rolled_back": AlreadyRolledBack}


async def settle(admin: Admin, transaction: str, verdict: Verdict, *, topic: str = "") -> Preview:
    """Preview `admin.transactions.commit` or `rollback`. Raises AlreadyCommitted,
    AlreadyRolledBack or AlreadySettled if it has ended."""
    items = await admin.transactions.show(transaction, topic=topic)
    for item in items:
        if item.state not in _PENDING:
            said = item.state.replace("_", " ")
            raise _ENDED.get(item.state, AlreadySettled)(
                f"it is already {said}; its outcome is final"
            )
    many = f", with all {len(items)} messages of it" if len(items) > 1 else ""
    return Preview(
        said=f"This would {DOES[verdict]}{many}. It cannot be taken back.",
        count=len(items),
        rows=transaction_rows(items, OUTCOMES[verdict]),
    )


async def check(
    admin: Admin, transaction: str = "", **wanted: Unpack[TransactionFilter]
) -> Preview:
    """Preview `admin.transactions.check` of one transaction, or of all that match."""
    if transaction and wanted:
        raise UsageError("give a transaction, or a filter for transactions; not both")
    if not transaction:
        return await preview_matching(
            admin, "asked", "Their producers would be asked at once.", **wanted
        )
    items = await admin.transactions.show(transaction)
    return Preview(
        said="Its producer group would be asked at once what became of it.",
        count=len(items),
        rows=transaction_rows(items, "asked"),
    )


async def preview_matching(
    admin: Admin, after: str, said: str, *, which: str = "", **wanted: Unpack[TransactionFilter]
) -> Preview:
    """Count the pending transactions that match, and list the first ones. `which` describes the
    filter in words."""
    count = (await admin.transactions.count(**wanted)).count
    first: list[PendingTransaction] = []
    async for item in admin.transactions.pending(**wanted):
        first.append(item)
        if len(first) == ROWS_MAX:
            break
    return Preview(
        said=f"{count} pending transactions{which and ' '}{which} match. {said}",
        count=count,
        rows=transaction_rows(first, after),
    )


async def resume(
    admin: Admin, offset_id: str = "", *, topic: str = "", group: str = "", limit: int
) -> Preview:
    """Preview `admin.transactions.resume`. Raises NotFound if nothing is there to resume."""
    if not (offset_id or topic or group):
        raise UsageError("name what to resume: an offset id, a topic or a group")
    found: list[PendingTransaction] = []
    async for item in admin.transactions.discarded(topic=topic, group=group):
        if item.state == "expired" and offset_id in ("", item.offset_id):
            found.append(item)
            if len(found) >= limit or offset_id:
                break
    if offset_id and not found:
        raise NotFound(f"no discarded transaction has the offset id {offset_id}")
    return Preview(
        said=f"{len(found)} would be pending again, and their producers asked once more.",
        count=len(found),
        rows=transaction_rows(found, "waiting"),
    )


async def rotate_key(admin: Admin, *, broker: str = "") -> Preview:
    """Preview `admin.transactions.rotate_key`."""
    names = sorted(await ClusterCalls(admin.instance).masters(broker))
    return Preview(
        said=f"{', '.join(names)} would sign transaction ids with a new key. Ids signed before "
        "stay valid.",
        count=len(names),
    )


def transaction_rows(items: list[PendingTransaction], after: str) -> list[PreviewRow]:
    """Return one row per transaction: its state now, and `after`, its state after the change."""
    return [_transaction_row(item, after) for item in items[:ROWS_MAX]]


def _transaction_row(item: PendingTransaction, after: str) -> PreviewRow:
    keys = f", keys {item.keys}" if item.keys else ""
    return PreviewRow(
        what=f"{item.message_id} of {item.topic}{keys}, {format_span(item.age_ms)} old",
        before=item.state.replace("_", " "),
        after=after.replace("_", " "),
    )
