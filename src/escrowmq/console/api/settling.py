"""Transactions settled, asked about and resumed by operators: one, or all that match."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Final

from msgspec import Meta

from escrowmq.client.admin.previews import transactions as previews
from escrowmq.console.api.transactions import TransactionWanted, Which
from escrowmq.console.operations import Asking, Change, Deed, Operation
from escrowmq.errors import EscrowMQError, TransportError, UsageError

SETTLED_MAX: Final = 100_000
"""Transactions of one job."""

RESUMED_MAX: Final = 10_000


class SettleOne(TransactionWanted, kw_only=True):
    """Which one."""

    dry_run: bool = False
    reason: str = ""


class SettleAll(Which, kw_only=True):
    """Which of them."""

    dry_run: bool = False
    reason: str = ""


class Resume(Deed, kw_only=True):
    """Which of those that were given up: one, or all of a topic or a group."""

    offset_id: str = ""
    topic: str = ""
    group: str = ""
    limit: Annotated[int, Meta(ge=1, le=RESUMED_MAX)] = RESUMED_MAX


def reason_of(asking: Asking, reason: str) -> str:
    """What the brokers' audit log is told: the account is known there, a user of the console is
    not."""
    if asking.who.credentials is not None:
        return reason
    return f"{asking.who.name} at the console{f': {reason}' if reason else ''}"


async def _settle(asking: Asking, wanted: SettleOne, verdict: previews.Verdict) -> Change:
    admin = await asking.desk.admin()
    transactions = admin.transactions
    if wanted.dry_run:
        return Change.to_come(
            await previews.settle(admin, wanted.transaction, verdict, topic=wanted.topic)
        )
    settle = transactions.commit if verdict == "commit" else transactions.rollback
    outcome = await settle(
        wanted.transaction, topic=wanted.topic, reason=reason_of(asking, wanted.reason)
    )
    return Change(
        is_dry_run=False, said=f"The transaction is {outcome.replace('_', ' ')}.", count=1
    )


async def commit(asking: Asking, wanted: SettleOne) -> Change:
    """Commit in the producer's place."""
    return await _settle(asking, wanted, "commit")


async def rollback(asking: Asking, wanted: SettleOne) -> Change:
    """Roll back in the producer's place."""
    return await _settle(asking, wanted, "rollback")


async def check(asking: Asking, wanted: SettleOne) -> Change:
    """Let its producer be asked at once."""
    admin = await asking.desk.admin()
    if wanted.dry_run:
        return Change.to_come(await previews.check(admin, wanted.transaction))
    asked = await admin.transactions.check(
        wanted.transaction, reason=reason_of(asking, wanted.reason)
    )
    said = "Its producer is asked." if asked else "Nobody is there to ask."
    return Change(is_dry_run=False, said=said, count=asked)


async def check_all(asking: Asking, wanted: SettleAll) -> Change:
    """Let producers be asked at once about all that match."""
    if wanted.dry_run:
        return await _preview(asking, wanted, "asked", "Their producers would be asked at once.")
    admin = await asking.desk.admin()
    asked = await admin.transactions.check(
        reason=reason_of(asking, wanted.reason), **wanted.filter()
    )
    return Change(is_dry_run=False, said=f"{asked} asked about.", count=asked)


async def _settle_all(asking: Asking, wanted: SettleAll, verdict: previews.Verdict) -> Change:
    doing = "Commit" if verdict == "commit" else "Roll back"
    outcome = previews.OUTCOMES[verdict]
    if wanted.dry_run:
        said = (
            f"This would {previews.DOES[verdict].partition(':')[0]} each. It cannot be taken back."
        )
        return await _preview(asking, wanted, outcome, said)
    admin = await asking.desk.admin()
    which = wanted.filter()
    total = (await admin.transactions.count(**which)).count
    if not total:
        return Change(is_dry_run=False, said="No transaction matches.", count=0)
    settle = admin.transactions.commit if verdict == "commit" else admin.transactions.rollback
    reason = reason_of(asking, wanted.reason)

    async def steps() -> AsyncIterator[str]:
        # What becomes pending while the job runs is not in it: the list is made first.
        listed: list[tuple[str, str]] = []
        async for item in admin.transactions.pending(**which):
            listed.append((item.id or item.message_id, item.topic))
            if len(listed) == SETTLED_MAX:
                break
        for name, topic in listed:
            try:
                await settle(name, topic=topic, reason=reason)
            except TransportError:
                raise
            except EscrowMQError as error:
                yield f"{name}: {error}"
                continue
            yield ""

    part = min(total, SETTLED_MAX)
    job = asking.desk.jobs.begin(
        f"{doing} transactions {wanted.said()}", steps, who=asking.who.name, total=part
    )
    which_part = f"the first {part} of {total}" if part < total else f"{total}"
    return Change(
        is_dry_run=False, said=f"{doing} {which_part}: job {job.id} does it.", count=part,
        job=job.id,
    )  # fmt: skip


async def commit_all(asking: Asking, wanted: SettleAll) -> Change:
    """Commit all that match, in the background."""
    return await _settle_all(asking, wanted, "commit")


async def rollback_all(asking: Asking, wanted: SettleAll) -> Change:
    """Roll back all that match, in the background."""
    return await _settle_all(asking, wanted, "rollback")


async def _preview(asking: Asking, wanted: SettleAll, after: str, said: str) -> Change:
    admin = await asking.desk.admin()
    return Change.to_come(
        await previews.matching(admin, after, said, which=wanted.said(), **wanted.filter())
    )


async def resume(asking: Asking, wanted: Resume) -> Change:
    """Let transactions that were given up be asked about again."""
    admin = await asking.desk.admin()
    if not (wanted.offset_id or wanted.topic or wanted.group):
        raise UsageError("say which: an offset_id, a topic or a group")
    if wanted.dry_run:
        return Change.to_come(
            await previews.resume(
                admin, wanted.offset_id, topic=wanted.topic, group=wanted.group, limit=wanted.limit
            )
        )
    count = await admin.transactions.resume(
        wanted.offset_id, topic=wanted.topic, group=wanted.group, limit=wanted.limit,
        reason=reason_of(asking, wanted.reason),
    )  # fmt: skip
    return Change(is_dry_run=False, said=f"{count} pending again.", count=count)


_ONE: Final = "/transactions/{transaction}"
OPERATIONS: Final = (
    Operation(name="transactions.commit", method="POST", path=f"{_ONE}/commit", wants=SettleOne,
              gives=Change, summary="Commit the transaction", handler=commit),
    Operation(name="transactions.rollback", method="POST", path=f"{_ONE}/rollback",
              wants=SettleOne, gives=Change, summary="Roll back the transaction",
              handler=rollback),
    Operation(name="transactions.check", method="POST", path=f"{_ONE}/check", wants=SettleOne,
              gives=Change, summary="Ask its producer now", handler=check),
    Operation(name="transactions.commit-all", method="POST", path="/transactions/commit",
              wants=SettleAll, gives=Change, summary="Commit all that match",
              handler=commit_all),
    Operation(name="transactions.rollback-all", method="POST", path="/transactions/rollback",
              wants=SettleAll, gives=Change, summary="Roll back all that match",
              handler=rollback_all),
    Operation(name="transactions.check-all", method="POST", path="/transactions/check",
              wants=SettleAll, gives=Change, summary="Ask about all that match",
              handler=check_all),
    Operation(name="transactions.resume", method="POST", path="/transactions/discarded/resume",
              wants=Resume, gives=Change, summary="Ask again about what was given up",
              handler=resume),
)  # fmt: skip
