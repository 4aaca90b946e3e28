"""Lets operators commit, roll back, check and resume transactions: one, or all that match."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Final

from msgspec import Meta

from escrowmq.client.admin.previews import transactions as previews
from escrowmq.client.admin.transactions import TransactionFilter
from escrowmq.console.api.transactions import TransactionWanted, Which
from escrowmq.console.operations import Caller, Change, ChangeParameters, Operation
from escrowmq.errors import EscrowMQError, TransportError, UsageError

SETTLED_MAX: Final = 100_000
"""Limit of the transactions in one job."""

RESUMED_MAX: Final = 10_000


class SettleOne(TransactionWanted, kw_only=True):
    """Names the transaction to settle."""

    dry_run: bool = False
    reason: str = ""


class SettleAll(Which, kw_only=True):
    """Selects the transactions to settle: all that match."""

    dry_run: bool = False
    reason: str = ""
    as_of_ms: (
        Annotated[
            int, Meta(ge=0, description="when the preview was made; what began later is left out")
        ]
        | None
    ) = None

    def matching_filter(self, now_ms: int) -> TransactionFilter:
        """Convert to the filter of `Admin` for all that matched at the preview and still do. It
        compares ages, because the clocks of brokers may differ from this one."""
        found = self.to_filter()
        passed_ms = self.ms_since_preview(now_ms)
        if passed_ms:
            found["min_age_ms"] = found.get("min_age_ms", 0) + passed_ms
            if "max_age_ms" in found:
                found["max_age_ms"] += passed_ms
        return found

    def ms_since_preview(self, now_ms: int) -> int:
        """Return how long ago the preview was made; 0 without one."""
        return 0 if self.as_of_ms is None else max(0, now_ms - self.as_of_ms)


class Resume(ChangeParameters, kw_only=True):
    """Selects the discarded transactions to resume: one, or all of a topic or a group."""

    offset_id: str = ""
    topic: str = ""
    group: str = ""
    limit: Annotated[int, Meta(ge=1, le=RESUMED_MAX)] = RESUMED_MAX


def audit_reason(caller: Caller, reason: str) -> str:
    """Return the reason to send to the brokers, for their audit log. It includes the name of the
    console's user, because the brokers know only the account."""
    if caller.who.credentials is not None:
        return reason
    return f"{caller.who.name} at the console{f': {reason}' if reason else ''}"


async def _settle_one(caller: Caller, wanted: SettleOne, verdict: previews.Verdict) -> Change:
    admin = await caller.account_client.open_admin()
    transactions = admin.transactions
    if wanted.dry_run:
        return Change.dry_run_answer(
            await previews.settle(admin, wanted.transaction, verdict, topic=wanted.topic)
        )
    settle = transactions.commit if verdict == "commit" else transactions.rollback
    outcome = await settle(
        wanted.transaction, topic=wanted.topic, reason=audit_reason(caller, wanted.reason)
    )
    return Change(
        is_dry_run=False, said=f"The transaction is {outcome.replace('_', ' ')}.", count=1
    )


async def commit_transaction(caller: Caller, wanted: SettleOne) -> Change:
    """Commit a transaction on behalf of its producer."""
    return await _settle_one(caller, wanted, "commit")


async def roll_back_transaction(caller: Caller, wanted: SettleOne) -> Change:
    """Roll back a transaction on behalf of its producer."""
    return await _settle_one(caller, wanted, "rollback")


async def check_transaction(caller: Caller, wanted: SettleOne) -> Change:
    """Make the broker check a transaction's producer immediately."""
    admin = await caller.account_client.open_admin()
    if wanted.dry_run:
        return Change.dry_run_answer(await previews.check(admin, wanted.transaction))
    asked = await admin.transactions.check(
        wanted.transaction, reason=audit_reason(caller, wanted.reason)
    )
    said = "Its producer is asked." if asked else "Nobody is there to ask."
    return Change(is_dry_run=False, said=said, count=asked)


async def check_matching(caller: Caller, wanted: SettleAll) -> Change:
    """Make the brokers check the producers of all matching transactions immediately."""
    if wanted.dry_run:
        return await _preview_matching(
            caller, wanted, "asked", "Their producers would be asked at once."
        )
    client = caller.account_client
    admin = await client.open_admin()
    asked = await admin.transactions.check(
        reason=audit_reason(caller, wanted.reason), **wanted.matching_filter(client.clock.now_ms())
    )
    return Change(is_dry_run=False, said=f"{asked} asked about.", count=asked)


async def _settle_matching(caller: Caller, wanted: SettleAll, verdict: previews.Verdict) -> Change:
    doing = "Commit" if verdict == "commit" else "Roll back"
    outcome = previews.OUTCOMES[verdict]
    if wanted.dry_run:
        said = (
            f"This would {previews.DOES[verdict].partition(':')[0]} each. It cannot be taken back."
        )
        return await _preview_matching(caller, wanted, outcome, said)
    client = caller.account_client
    admin = await client.open_admin()
    which = wanted.matching_filter(client.clock.now_ms())
    total = (await admin.transactions.count(**which)).count
    if not total:
        return Change(is_dry_run=False, said="No transaction matches.", count=0)
    settle = admin.transactions.commit if verdict == "commit" else admin.transactions.rollback
    reason = audit_reason(caller, wanted.reason)

    async def steps() -> AsyncIterator[str]:
        # Transactions that become pending while the job runs are not included: the list is made
        # first.
        listed: list[tuple[str, str]] = []
        async for item in admin.transactions.pending(**which):
            if item.age_ms < wanted.ms_since_preview(client.clock.now_ms()):
                continue  # it began since, and has become old enough while others were listed
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
    job = client.jobs.start_job(
        f"{doing} transactions {wanted.describe()}", steps, who=caller.who.name, total=part
    )
    which_part = f"the first {part} of {total}" if part < total else f"{total}"
    return Change(
        is_dry_run=False, said=f"{doing} {which_part}: job {job.id} does it.", count=part,
        job=job.id,
    )  # fmt: skip


async def commit_matching(caller: Caller, wanted: SettleAll) -> Change:
    """Commit all matching transactions, in the background."""
    return await _settle_matching(caller, wanted, "commit")


async def roll_back_matching(caller: Caller, wanted: SettleAll) -> Change:
    """Roll back all matching transactions, in the background."""
    return await _settle_matching(caller, wanted, "rollback")


async def _preview_matching(caller: Caller, wanted: SettleAll, after: str, said: str) -> Change:
    client = caller.account_client
    admin = await client.open_admin()
    as_of_ms = client.clock.now_ms()
    change = Change.dry_run_answer(
        await previews.preview_matching(
            admin, after, said, which=wanted.describe(), **wanted.matching_filter(as_of_ms)
        )
    )
    change.as_of_ms = as_of_ms
    return change


async def resume_discarded(caller: Caller, wanted: Resume) -> Change:
    """Make discarded transactions pending again."""
    admin = await caller.account_client.open_admin()
    if not (wanted.offset_id or wanted.topic or wanted.group):
        raise UsageError("name what to resume: an offset_id, a topic or a group")
    if wanted.dry_run:
        return Change.dry_run_answer(
            await previews.resume(
                admin, wanted.offset_id, topic=wanted.topic, group=wanted.group, limit=wanted.limit
            )
        )
    count = await admin.transactions.resume(
        wanted.offset_id, topic=wanted.topic, group=wanted.group, limit=wanted.limit,
        reason=audit_reason(caller, wanted.reason),
    )  # fmt: skip
    return Change(is_dry_run=False, said=f"{count} pending again.", count=count)


_ONE: Final = "/transactions/{transaction}"
OPERATIONS: Final = (
    Operation(name="transactions.commit", method="POST", path=f"{_ONE}/commit", wants=SettleOne,
              gives=Change, summary="Commit the transaction", handler=commit_transaction),
    Operation(name="transactions.rollback", method="POST", path=f"{_ONE}/rollback",
              wants=SettleOne, gives=Change, summary="Roll back the transaction",
              handler=roll_back_transaction),
    Operation(name="transactions.check", method="POST", path=f"{_ONE}/check", wants=SettleOne,
              gives=Change, summary="Ask its producer now", handler=check_transaction),
    Operation(name="transactions.commit-all", method="POST", path="/transactions/commit",
              wants=SettleAll, gives=Change, summary="Commit all that match",
              handler=commit_matching),
    Operation(name="transactions.rollback-all", method="POST", path="/transactions/rollback",
              wants=SettleAll, gives=Change, summary="Roll back all that match",
              handler=roll_back_matching),
    Operation(name="transactions.check-all", method="POST", path="/transactions/check",
              wants=SettleAll, gives=Change, summary="Ask about all that match",
              handler=check_matching),
    Operation(name="transactions.resume", method="POST", path="/transactions/discarded/resume",
              wants=Resume, gives=Change, summary="Ask again about what was given up",
              handler=resume_discarded),
)  # fmt: skip
