"""The job that maintains the tables of statistics. Each run reads the messages since the last run,
and those whose transactions were open then."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from escrowmq.client.lease_base import Lease
from escrowmq.net.clock import SystemClock
from escrowmq.pipeline.analytics.duplicates import (
    GIVEN_BACK,
    TWICE,
    duplicate_messages,
    retry_counts,
)
from escrowmq.pipeline.analytics.funnel import (
    FUNNEL,
    TRANSACTIONS,
    earlier_rows,
    funnel_sums,
    merge_rows,
    open_halves_by_age,
    transaction_rows,
)
from escrowmq.pipeline.reconcile import records
from escrowmq.pipeline.reconcile.fates import Fate, fates_of_halves
from escrowmq.pipeline.reconcile.gather import Gatherer
from escrowmq.pipeline.reconcile.lease import require_lease
from escrowmq.pipeline.reconcile.live_messages import TransactionSource, without_skipped
from escrowmq.pipeline.reconcile.partitioned_table import PartitionedTable
from escrowmq.pipeline.reconcile.progress import RunProgress, make_window, to_spark_time
from escrowmq.pipeline.reconcile.staging import StagedTable, last_progress

RUNS: Final = "startedAt timestamp, untilMs bigint, progress string, day date, run bigint"
GRACE_S: Final = 10.0
LOOKBACK_S: Final = 3_600.0
DELIVERY_COLUMNS: Final = (
    "topic string, brokerName string, queueId int, queueOffset bigint, msgId string, "
    "storeTimestamp timestamp, reconsumeTimes int, properties map<string,string>"
)
"""The columns that `count_deliveries` needs."""

_DAY_MS: Final = 86_400_000
_OF: Final = "transactions"


class FunnelJob:
    """Maintains `transactions` and `funnel` in a result folder, both partitioned by the day on
    which a transaction started."""

    def __init__(
        self,
        spark: SparkSession,
        source: TransactionSource,
        root: str,
        *,
        kind: str = "parquet",
        since_ms: int = 0,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        def table(name: str, schema: str, *by: str) -> PartitionedTable:
            return PartitionedTable(spark, root, name, schema=schema, by=by, kind=kind)

        self.transactions = table("transactions", TRANSACTIONS, "day")
        self.funnel = table("funnel", FUNNEL, "day")
        self.duplicates = table("twice", TWICE, "day")
        self.retries = table("given_back", GIVEN_BACK, "day")
        self._runs = table("runs", RUNS, "day", "run")
        self._spark = spark
        self._source = source
        self._gatherer = Gatherer(spark, root)
        self._staging = StagedTable(spark, root, "transactions", self.transactions)
        self._since_ms = since_ms
        self._now_ms = now_ms or SystemClock().now_ms
        self.since_day_ms = 0
        """The start of the first day whose rows the last run replaced; 0 for all days."""

    def run(
        self,
        *,
        lease: Lease,
        on_step: Callable[[str], None] = lambda _: None,
        deliveries: Callable[[], DataFrame] | None = None,
    ) -> RunProgress:
        """Update the tables. A run that dies is repeated, with the same result. `deliveries`
        returns the messages for `count_deliveries`, which then runs under the same lease."""
        with lease:
            progress = self._run(lease, on_step)
            if deliveries is not None:
                on_step("counting deliveries")
                self.count_deliveries(deliveries(), lease=lease)
        return progress

    def reference_time(self) -> dt.datetime:
        """The time relative to which ages are computed."""
        return to_spark_time(self._now_ms())

    def open_halves_by_age(self) -> DataFrame:
        """Halves that are open now, by age."""
        return open_halves_by_age(self.transactions.read(), now=self.reference_time())

    def transaction_topics(self) -> list[str]:
        """The topics of transactions."""
        rows = self.transactions.read().select("topic").distinct().collect()
        return sorted(row["topic"] for row in rows if row["topic"])

    def count_deliveries(self, messages: DataFrame, *, lease: Lease) -> None:
        """Replace the tables of duplicate and retried deliveries, of the days from `since_day_ms`
        on. `messages` must be all messages of those days in the transactions' topics and the retry
        topics, with the columns of `DELIVERY_COLUMNS`; others are left out. Raises if the lease is
        lost."""
        # If a broker's clock was set back, a queue has older messages after those of the first day;
        # the earlier days that they belong to were not read completely.
        first = F.lit(to_spark_time(self.since_day_ms))
        messages = messages.where(F.col("storeTimestamp") >= first)
        require_lease(lease)
        self.duplicates.replace(duplicate_messages(messages))
        require_lease(lease)
        self.retries.replace(retry_counts(messages))

    def _run(self, lease: Lease, on_step: Callable[[str], None]) -> RunProgress:
        on_step("reading")
        before = last_progress(self._runs, of=_OF)
        run = before.run + 1
        self._staging.recover(run)
        now_ms = self._now_ms()
        window = make_window(
            before, now_ms=now_ms, grace_ms=int(GRACE_S * 1000),
            lookback_ms=int(LOOKBACK_S * 1000), since_ms=self._since_ms,
        )  # fmt: skip
        self.since_day_ms = max(0, window.reread_from_ms - window.reread_from_ms % _DAY_MS)
        gathered = self._gatherer.gather(self._source, window)
        on_step("counting")
        messages = without_skipped(gathered.messages, self._source)
        known = self.transactions.read()
        read = self._transaction_rows(messages).persist()
        earlier = earlier_rows(read, known).persist()
        found = merge_rows(read, earlier).persist()
        on_step("writing")
        require_lease(lease)
        days = F.broadcast(found.select("day").union(earlier.select("day")).distinct())
        kept = known.join(days, "day", "left_semi").join(
            found.select("broker", "messageId"), ["broker", "messageId"], "left_anti"
        )
        merged = self._staging.replace(found.unionByName(kept.select(*found.columns)), run=run)
        self.funnel.replace(funnel_sums(merged))
        is_open = F.col("fate").isin(Fate.PENDING, Fate.PARKED)
        key = ["broker", "messageId"]
        open_ids = found.where(is_open).select(*key)
        left_out = records.halves(gathered.messages).join(
            records.halves(messages), key, "left_anti"
        )
        self._gatherer.store_for_next_run(
            gathered, open_ids.union(left_out.select(*key)), window=window
        )
        for frame in (found, earlier, read):
            frame.unpersist()
        require_lease(lease)
        progress = RunProgress(run=run, until_ms=window.until_ms, ends=gathered.ends, of=_OF)
        self._commit(progress, to_spark_time(now_ms))
        return progress

    def _transaction_rows(self, messages: DataFrame) -> DataFrame:
        judged = fates_of_halves(
            records.halves(messages),
            records.ops(messages),
            records.finals(messages),
            records.discards(messages),
            parked=self._source.parked_halves(),
        )
        return transaction_rows(judged)

    def _commit(self, progress: RunProgress, now: dt.datetime) -> None:
        text = msgspec.json.encode(progress).decode()
        cells = (now, progress.until_ms, text, now.date(), progress.run)
        self._runs.replace(self._spark.createDataFrame([cells], RUNS).coalesce(1))
