"""One run of the reconciliation. It examines the messages since the last run, and those whose
transactions were open then."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from escrowmq.client.lease_base import Lease
from escrowmq.errors import UsageError
from escrowmq.net.clock import SystemClock
from escrowmq.pipeline.reconcile import differences, records
from escrowmq.pipeline.reconcile.business import BusinessRows
from escrowmq.pipeline.reconcile.differences import DifferenceClass
from escrowmq.pipeline.reconcile.fates import fates_of_halves
from escrowmq.pipeline.reconcile.gather import Gatherer, RunInput
from escrowmq.pipeline.reconcile.lease import require_lease
from escrowmq.pipeline.reconcile.live_messages import TransactionSource, without_skipped
from escrowmq.pipeline.reconcile.progress import RunProgress, RunWindow, make_window, to_spark_time
from escrowmq.pipeline.reconcile.results import ResultTables, RunRow, RunScope
from escrowmq.pipeline.reconcile.sum_check import Balance, check_balance

GRACE_S: Final = 120.0
OVERDUE_S: Final = 600.0
LOOKBACK_S: Final = 3_600.0


class ReconcileSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The thresholds and ranges of runs."""

    grace_s: float = GRACE_S
    """Messages younger than this many seconds are not judged: they may still be in flight."""

    overdue_s: float = OVERDUE_S
    """A half that is open for longer than this many seconds is overdue."""

    lookback_s: float = LOOKBACK_S
    """How much of the last run's range is read again, because a second final message may come late.
    It must be longer than consumers need to write their rows."""

    since_ms: int = 0
    """Where the first run begins; 0 is the oldest message."""

    until_ms: int = 0
    """An earlier end of the range than the grace allows; 0 for none."""

    groups: tuple[str, ...] = ()
    """Consumer groups that must have consumed the committed messages."""


class RunReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a run."""

    run: int
    since_ms: int
    until_ms: int
    balance: Balance
    classes: dict[str, int]
    """The number of differences of each class that this run found."""

    open_classes: dict[str, int]
    """The number of all unrepaired differences of each class, also of those that are older than the
    range of this run."""

    odd: dict[str, int]
    """The numbers of malformed records."""


class Reconciler:
    """Makes runs, one after another, with the same result folder.

    >>> reconciler = Reconciler(spark, source, "/data/reconciled")
    >>> report = reconciler.run(lease=FileLease("/data/reconciled"))
    """

    def __init__(
        self,
        spark: SparkSession,
        source: TransactionSource,
        root: str,
        *,
        settings: ReconcileSettings | None = None,
        rows: BusinessRows | None = None,
        kind: str = "parquet",
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self.results = ResultTables(spark, root, kind=kind)
        self._spark = spark
        self._source = source
        self._settings = settings or ReconcileSettings()
        self._rows = rows
        self._gatherer = Gatherer(spark, root)
        self._now_ms = now_ms or SystemClock().now_ms

    def run(self, *, lease: Lease, on_step: Callable[[str], None] = lambda _: None) -> RunReport:
        """Examine the messages. A run counts only with its last step, the row in `runs`: one that
        dies before is repeated, and finds the same."""
        with lease:
            return self._run(lease, on_step)

    def _run(self, lease: Lease, on_step: Callable[[str], None]) -> RunReport:
        on_step("reading")
        window = self._window(self.results.progress())
        run = window.before.run + 1
        now = to_spark_time(window.now_ms)
        gathered = self._gatherer.gather(self._source, window)
        on_step("comparing")
        with _CachedTables() as kept:
            messages = without_skipped(gathered.messages, self._source)
            halves = kept.cache(records.halves(messages))
            finals = kept.cache(records.finals(messages))
            judged = kept.cache(self._fates(messages, halves, finals))
            summed = check_balance(halves, judged)
            odd = records.malformed_counts(gathered.new).collect()[0].asDict()
            found = kept.cache(self._differences(gathered, halves, finals, judged, window))
            classes = {r["class"]: r["count"] for r in found.groupBy("class").count().collect()}
            on_step("writing")
            require_lease(lease)
            examined = RunScope(
                groups=self._settings.groups,
                has_rows=self._rows is not None,
                skipped=tuple(sorted(self._source.skipped)),
                skipped_brokers=tuple(sorted(self._source.skipped_brokers)),
            )
            still_open = self.results.merge(found, examined, now=now, run=run)
            self._gatherer.store_for_next_run(gathered, still_open, window=window)
        require_lease(lease)
        progress = RunProgress(run=run, until_ms=window.until_ms, ends=gathered.ends)
        self.results.commit(
            RunRow(
                started_ms=window.now_ms,
                since_ms=window.reread_from_ms,
                balance=summed,
                classes=classes,
                progress=progress,
            )
        )
        return RunReport(
            run=run, since_ms=window.reread_from_ms, until_ms=window.until_ms, balance=summed,
            classes=classes, open_classes=self.results.open_classes(), odd=odd,
        )  # fmt: skip

    def _window(self, before: RunProgress) -> RunWindow:
        settings = self._settings
        return make_window(
            before,
            now_ms=self._now_ms(),
            grace_ms=int(settings.grace_s * 1000),
            lookback_ms=int(settings.lookback_s * 1000),
            since_ms=settings.since_ms,
            until_ms=settings.until_ms,
        )

    def _fates(self, messages: DataFrame, halves: DataFrame, finals: DataFrame) -> DataFrame:
        ops, discards = records.ops(messages), records.discards(messages)
        return fates_of_halves(halves, ops, finals, discards, parked=self._source.parked_halves())

    def _differences(
        self,
        gathered: RunInput,
        halves: DataFrame,
        finals: DataFrame,
        judged: DataFrame,
        window: RunWindow,
    ) -> DataFrame:
        now, settings = to_spark_time(window.now_ms), self._settings
        read_halves = records.halves(gathered.read)
        ops = []
        if not self._source.skipped:  # otherwise halves that are left out would count as missing
            until = to_spark_time(window.until_ms)
            read_ops = records.ops(gathered.new)
            ops.append(differences.ops_without_half(read_ops, read_halves, until=until))
        return differences.combine(
            differences.transaction_differences(
                judged,
                now=now,
                overdue_s=int(settings.overdue_s),
                grace_s=int(settings.grace_s),
                begin_times=self._source.topic_begin_times(),
            ),
            differences.finals_elsewhere(halves, finals),
            *ops,
            differences.finals_without_half(
                halves.unionByName(read_halves),
                finals,
                read=_read_log_ranges(read_halves),
                until=to_spark_time(window.until_ms),
                new_since=self._halves_complete_since(window),
            ),
            *self._differences_of_groups(finals, now),
            *self._differences_of_business(finals, window),
        )

    def _halves_complete_since(self, window: RunWindow) -> dt.datetime | None:
        """Return where the last run ended, if all runs together have read every half since the
        log's beginning; otherwise None."""
        is_whole = not (self._settings.since_ms or self._source.skipped)
        if not window.before.run or not is_whole or self._source.skipped_brokers:
            return None
        return to_spark_time(window.before.until_ms)

    def _differences_of_groups(self, finals: DataFrame, now: dt.datetime) -> list[DataFrame]:
        settings = self._settings
        if not settings.groups:
            return []
        offsets = self._source.group_offsets(settings.groups)
        known = {row["consumerGroup"] for row in offsets.select("consumerGroup").collect()}
        for group in settings.groups:
            if group not in known:
                raise UsageError(
                    f"no broker keeps an offset of the group {group!r}, so it is unknown "
                    "what it reads; check the name for typos, let the group consume once, "
                    "or leave it out (--group)"
                )
        grace_s = int(settings.grace_s)
        return [differences.unconsumed_finals(finals, offsets, now=now, grace_s=grace_s)]

    def _differences_of_business(self, finals: DataFrame, window: RunWindow) -> list[DataFrame]:
        if self._rows is None:
            return []
        now, grace_s = to_spark_time(window.now_ms), int(self._settings.grace_s)
        again = to_spark_time(max(0, window.reread_from_ms))
        rows = self._rows(self._spark, again)
        # Rows of messages that are stored for another reason are older than the rows read here, so
        # only those that lacked a row before are compared.
        old = finals.where(F.col("storedAt") < F.lit(again))
        lacking = self.results.messages_with_open(DifferenceClass.MESSAGE_WITHOUT_ROW)
        finals = finals.where(F.col("storedAt") >= F.lit(again)).unionByName(
            old.join(F.broadcast(lacking), ["broker", "messageId"], "left_semi")
        )
        # The message of a row may be older than the messages read; with a row younger than the
        # lookback, it is not.
        since_ms = window.reread_from_ms + int(self._settings.lookback_s * 1000)
        young = rows.where(
            F.col("at") >= F.lit(to_spark_time(since_ms if window.reread_from_ms else 0))
        )
        return [
            differences.messages_without_row(finals, rows, now=now, grace_s=grace_s),
            differences.rows_without_message(young, finals, now=now, grace_s=grace_s),
            differences.duplicate_rows(rows),
        ]


class _CachedTables:
    """Tables that are computed once, and released at the end in any case."""

    def __init__(self) -> None:
        self._frames: list[DataFrame] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for frame in reversed(self._frames):  # else Spark plans again those that build on it
            frame.unpersist()

    def cache(self, frame: DataFrame) -> DataFrame:
        """Return the table in a form that is computed once and then stored."""
        self._frames.append(frame.persist())
        return frame


def _read_log_ranges(halves: DataFrame) -> DataFrame:
    """The range of each log in which halves were read."""
    places = halves.groupBy("broker")
    return places.agg(F.min("logOffset").alias("logBegin"), F.max("logOffset").alias("logEnd"))
