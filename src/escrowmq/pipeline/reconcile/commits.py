"""Records commits that were announced and not consumed in the tables of the reconciliation. It is
for brokers without check-backs, where neither the half nor an op record says what its producer
decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import escrowmq
from escrowmq.base.message import Property
from escrowmq.client.announced_commits import (
    COMMITTED,
    MARK,
    ROLLED_BACK,
    Member,
    Sets,
    parse_member,
    recorded_outcomes,
)
from escrowmq.client.broker_clocks import BrokerClocks
from escrowmq.client.due_times import due_ms
from escrowmq.client.lease_base import Lease
from escrowmq.errors import NotFound, RouteMissing
from escrowmq.net.clock import SystemClock
from escrowmq.pipeline.reconcile.differences import DifferenceClass, Repair
from escrowmq.pipeline.reconcile.lease import require_lease
from escrowmq.pipeline.reconcile.lost_commits import ComputedSets
from escrowmq.pipeline.reconcile.progress import RunProgress, to_spark_time
from escrowmq.pipeline.reconcile.repair import is_purged
from escrowmq.pipeline.reconcile.results import ResultTables, RunRow, RunScope
from escrowmq.pipeline.reconcile.run import GRACE_S, RunReport
from escrowmq.pipeline.reconcile.sum_check import Balance

OF: Final = "announced commits"
FOUND: Final = (
    "class string, broker string, topic string, messageId string, at timestamp, "
    "evidence map<string,string>, repair string"
)


class CommitReconciler:
    """Compares the two sets of compensation, from a Redis server or computed. Each lost commit is
    looked up: its message may be visible and not consumed, or never have become visible, or be
    gone.

    >>> reconciler = CommitReconciler(spark, RedisSets(url), "/data/lost", admin=admin)
    >>> print(reconciler.run(lease=RedisLease(url, "lost")).balance)
    3 halves = 2 committed + 0 rolled back + 1 pending + 0 parked + 0 expired

    A half here means an announced commit; pending are those without a known end. Ids found in both
    sets are removed, so each run counts those since the last one, and those still lost."""

    def __init__(
        self,
        spark: SparkSession,
        sets: Sets,
        root: str,
        *,
        admin: escrowmq.Admin,
        grace_s: float = GRACE_S,
        kind: str = "parquet",
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self.results = ResultTables(spark, root, kind=kind)
        self._spark = spark
        self._sets = sets
        self._admin = admin
        self._grace_s = grace_s
        self._now_ms = now_ms or SystemClock().now_ms

    def run(self, *, lease: Lease, on_step: Callable[[str], None] = lambda _: None) -> RunReport:
        """Compare once. A run that dies has no effect; the next one finds the same differences."""
        with lease:
            return self._run(lease, on_step)

    def _run(self, lease: Lease, on_step: Callable[[str], None]) -> RunReport:
        on_step("comparing")
        before = self.results.progress(OF)
        run, now_ms = before.run + 1, self._now_ms()
        clocks = BrokerClocks(self._admin.brokers.runtime, SystemClock().now_ms)
        both_count, rows = 0, []
        for some in self._sets_to_compare().compare():
            both_count += some.both_count
            rows += [
                self._lost_commit_row(member, now_ms, clocks)
                for member in map(parse_member, some.lost)
            ]
            require_lease(lease)
        on_step("writing")
        found = self._spark.createDataFrame(rows, FOUND)
        self.results.merge(found, RunScope(has_commits=True), now=to_spark_time(now_ms), run=run)
        require_lease(lease)
        classes = dict(Counter(kind for kind, *_ in rows))
        visible_count = both_count + classes.get(DifferenceClass.NOT_CONSUMED, 0)
        summed = Balance(
            halves=both_count + len(rows), committed=visible_count, rolled_back=0,
            pending=both_count + len(rows) - visible_count, parked=0, expired=0,
        )  # fmt: skip
        progress = RunProgress(run=run, until_ms=now_ms, of=OF)
        self.results.commit(
            RunRow(
                started_ms=now_ms,
                since_ms=before.until_ms,
                balance=summed,
                classes=classes,
                progress=progress,
            )
        )
        return RunReport(
            run=run, since_ms=before.until_ms, until_ms=now_ms, balance=summed, classes=classes,
            open_classes=self.results.open_classes(), odd={},
        )  # fmt: skip

    def _sets_to_compare(self) -> Sets:
        """Return the sets to compare. A topic keeps announcements only for a while, and a run may
        read a part of it; therefore lost commits of earlier runs are added until they are
        consumed."""
        if not isinstance(self._sets, ComputedSets):
            return self._sets  # these keep announcements until they are consumed
        member = F.concat_ws(MARK, "messageId", "topic").alias("member")
        lost = self.results.open_rechecked().select(member, F.col("at").alias("announcedAt"))
        return self._sets.also(lost)

    def _lost_commit_row(
        self, member: Member, now_ms: int, clocks: BrokerClocks
    ) -> tuple[Any, ...]:
        """Return the row of one lost commit, with times by this machine's clock."""
        message_id, topic = member
        evidence = {"announced": "true"}
        try:
            message, is_visible = self._find_message(member)
        except (NotFound, RouteMissing) as error:
            evidence["lookUp"] = str(error)
            at = to_spark_time(now_ms)
            return (
                DifferenceClass.NO_FINAL.value,
                "",
                topic,
                message_id,
                at,
                evidence,
                Repair.BY_HAND.value,
            )
        ahead_ms = clocks.ahead_ms(message.broker_name)
        stored_ms = message.stored_ms - ahead_ms
        # Before its delay is over, a lost message cannot be told from one that waits.
        visible_ms = stored_ms if is_visible else due_ms(message) - ahead_ms
        evidence |= {
            "ageSeconds": str((now_ms - stored_ms) // 1000),
            "queueId": str(message.queue_id),
            "queueOffset": str(message.queue_offset),
            "producerGroup": message.system.get(Property.PGROUP, ""),
        }
        if now_ms - visible_ms < self._grace_s * 1000:
            kind, repair = DifferenceClass.PENDING, Repair.WAIT
        elif is_visible:
            kind, repair = DifferenceClass.NOT_CONSUMED, Repair.CONSUME
        else:
            kind, repair = self._classify_invisible(member, message)
        at = to_spark_time(stored_ms)
        broker = message.broker_name
        return (kind.value, broker, topic, message_id, at, evidence, repair.value)

    def _classify_invisible(
        self, member: Member, message: escrowmq.ReceivedMessage
    ) -> tuple[DifferenceClass, Repair]:
        """Return class and repair of a commit that is not visible to consumers, from its broker's
        record."""
        ended = recorded_outcomes(self._admin, member, broker=message.broker_name)
        if ended == ROLLED_BACK:
            return DifferenceClass.ANNOUNCED_ROLLED_BACK, Repair.BY_HAND
        if ended == COMMITTED and is_purged(self._admin, message):
            return DifferenceClass.PURGED, Repair.NONE
        return DifferenceClass.NO_FINAL, Repair.STORE_FINAL

    def _find_message(self, member: Member) -> tuple[escrowmq.ReceivedMessage, bool]:
        """Look up a message; return it, and whether it is visible to consumers."""
        messages = self._admin.messages
        try:
            return messages.get(member.message_id, topic=member.topic), True
        except NotFound:
            return messages.prepared(member.message_id, topic=member.topic), False
