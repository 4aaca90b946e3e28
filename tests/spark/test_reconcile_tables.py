"""What runs keep between them: differences that come and go, runs that die, the business's rows."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.compensation.services import PostgresServer, missing

from .messages import START, Log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

from escrowmq.client.lease_base import LeaseTaken
from escrowmq.errors import StorageError, UsageError
from escrowmq.pipeline.analytics.job import DELIVERY_COLUMNS, FunnelJob
from escrowmq.pipeline.reconcile import business, differences
from escrowmq.pipeline.reconcile.lease import FileLease
from escrowmq.pipeline.reconcile.live_messages import OFFSETS, PARKED, TableBatch
from escrowmq.pipeline.reconcile.partitioned_table import PartitionedTable
from escrowmq.pipeline.reconcile.progress import Offsets, RunWindow
from escrowmq.pipeline.reconcile.results import ResultTables, RunScope
from escrowmq.pipeline.reconcile.run import Reconciler, ReconcileSettings, RunReport
from escrowmq.pipeline.reconcile.staging import StagedTable
from escrowmq.pipeline.reconcile.stored_messages import FileMessages

NOW_MS = int(START.timestamp() * 1000)
HOUR_MS = 3_600_000


class Memory:
    """A source whose messages are a log in the making: everything of it is read in every run."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.skipped: frozenset[str] = frozenset()
        self.skipped_brokers: frozenset[str] = frozenset()
        self.log = Log()
        self.parked_offsets: list[int] | None = None
        self.committed: dict[str, int] = {}
        self.read_from = 0

    def read_transactions(self, window: RunWindow) -> TableBatch:
        """Each run reads what the last one has not read."""
        rows, self.log.rows = self.log.rows, self.log.rows[self.read_from :]
        frame = self.log.table(self._spark)
        self.log.rows = rows
        return TableBatch(frame, {}, {})

    def read_topics(self, names: Any, has_late: bool, window: RunWindow) -> TableBatch | None:
        return None

    def carried_not_reread(self, carried: DataFrame, batches: Any, window: RunWindow) -> DataFrame:
        return carried

    def next_offsets(self, batches: Any, new: DataFrame, window: RunWindow) -> Offsets:
        self.read_from = len(self.log.rows)
        return {}

    def group_offsets(self, groups: Any) -> DataFrame:
        known = [group for group in groups if self.committed[group] >= 0]
        rows = [(group, "broker-a", "paid", 0, self.committed[group]) for group in known]
        return self._spark.createDataFrame(rows, OFFSETS)

    def parked_halves(self) -> DataFrame | None:
        if self.parked_offsets is None:
            return None
        rows = [("broker-a", offset) for offset in self.parked_offsets]
        return self._spark.createDataFrame(rows, PARKED)

    def topic_begin_times(self) -> DataFrame | None:
        return None


class Job:
    def __init__(self, spark: SparkSession, folder: Path, **more: Any) -> None:
        self.source = Memory(spark)
        self.folder = folder
        self.now_ms = NOW_MS
        self.settings = ReconcileSettings(groups=("mailer",))
        self.source.committed["mailer"] = 0
        self.more = more
        self.spark = spark

    def run(self, settings: ReconcileSettings | None = None) -> RunReport:
        self.now_ms += HOUR_MS
        job = Reconciler(
            self.spark, self.source, str(self.folder), settings=settings or self.settings,
            now_ms=lambda: self.now_ms, **self.more,
        )  # fmt: skip
        self.results = job.results
        return job.run(lease=FileLease(self.folder))

    def state(self) -> dict[tuple[str, str], tuple[int, int, bool]]:
        """Class and message: first run, last run, whether it is gone."""
        return {
            (row["class"], row["messageId"]): (
                row["firstRun"], row["lastRun"], row["goneAt"] is not None,
            )
            for row in self.results.differences.read().collect()
        }  # fmt: skip


@pytest.mark.long
def test_differences_come_and_go(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    log = job.source.log
    open_half, lost = log.half("open"), log.half("lost")
    log.op(lost, outcomes="c")
    job.source.parked_offsets = [open_half["queueOffset"]]
    first = job.run()
    assert first.classes == {"parked": 1, "committed-without-final": 1}
    job.source.parked_offsets = []
    second = job.run()
    assert second.classes == {"overdue": 1, "committed-without-final": 1}
    log.put("paid", age_s=-3600, UNIQ_KEY="lost", escrowRedone="true")
    log.final(open_half, age_s=-3600)
    log.op(open_half, outcomes="c")
    third = job.run(ReconcileSettings())
    assert third.classes == {}
    assert third.balance.committed == 2
    assert job.state() == {
        ("parked", "open"): (1, 1, True),
        ("overdue", "open"): (2, 2, True),
        ("committed-without-final", "lost"): (1, 2, True),
    }
    assert job.run().balance.halves == 0, "what is settled is kept no longer"
    runs = job.results.runs.read().orderBy("run").collect()
    assert [row["run"] for row in runs] == [1, 2, 3, 4]


@pytest.mark.long
def test_what_is_left_out_is_not_judged_by_half_of_its_records(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = Job(spark, tmp_path)
    log, source = job.source.log, job.source
    half = log.half("open")
    source.parked_offsets = [half["queueOffset"]]
    assert job.run().classes == {"parked": 1}
    source.parked_offsets = []
    log.op(half, outcomes="c")  # its final message is in a topic that is not read
    source.skipped = frozenset({"paid"})
    assert job.run().classes == {}
    source.skipped, source.skipped_brokers = frozenset(), frozenset({"broker-a"})
    assert job.run().classes == {}
    assert job.state() == {("parked", "open"): (1, 1, False)}, "it stays as it is"
    source.skipped_brokers = frozenset()
    log.final(half)
    source.committed["mailer"] = 1
    assert job.run().classes == {}
    assert job.state() == {("parked", "open"): (1, 1, True)}


@pytest.mark.long
def test_what_a_run_does_not_judge_stays_open(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    half = job.source.log.half("k")
    job.source.log.final(half)
    job.source.log.op(half, outcomes="c")
    assert job.run().classes == {"not-consumed": 1}
    assert job.run(ReconcileSettings()).classes == {}
    assert job.state() == {("not-consumed", "k"): (1, 1, False)}
    assert job.run().classes == {"not-consumed": 1}
    job.source.committed["mailer"] = 1
    assert job.run().classes == {}
    assert job.state() == {("not-consumed", "k"): (1, 3, True)}


def test_what_is_found_again_on_another_day_is_the_same_difference(
    spark: SparkSession, tmp_path: Path
) -> None:
    results = ResultTables(spark, str(tmp_path))
    days = [START + dt.timedelta(days=number) for number in range(3)]
    schema = "messageId string, topic string, at timestamp"

    def merge(run: int, *at: dt.datetime) -> None:
        rows = spark.createDataFrame([("order", "paid", time) for time in at], schema)
        found = differences.duplicate_rows(rows)
        results.merge(found, RunScope(has_rows=True), now=days[run - 1], run=run)

    merge(1, days[0], days[0])
    merge(2, days[0], days[0], days[1])
    merge(3, days[1], days[2])
    assert results.open_classes() == {"row-twice": 1}
    (row,) = results.differences.read().collect()
    assert (row["firstRun"], row["lastRun"], row["day"]) == (1, 3, days[0].date())


def test_a_run_that_lost_its_lease_counts_for_nothing(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    job.source.log.half("k")
    reconciler = Reconciler(spark, job.source, str(tmp_path), now_ms=lambda: NOW_MS + HOUR_MS)
    lease = FileLease(tmp_path)

    def lose(step: str) -> None:
        if step == "writing":
            lease._held_until_s = 0.0

    with pytest.raises(LeaseTaken):
        reconciler.run(lease=lease, on_step=lose)
    assert reconciler.results.differences.read().count() == 0
    assert reconciler.results.progress().run == 0


def test_a_replacement_that_was_cut_short_is_finished(spark: SparkSession, tmp_path: Path) -> None:
    schema = "n bigint, day date"
    table = PartitionedTable(spark, str(tmp_path), "table", schema=schema, by=("day",))
    staging = StagedTable(spark, str(tmp_path), "table", table)
    day, other = dt.date(2026, 11, 21), dt.date(2026, 11, 22)
    table.replace(spark.createDataFrame([(1, day), (2, other)], schema))
    dead = Dead(spark, str(tmp_path), "table", schema=schema, by=("day",))
    with pytest.raises(InterruptedError):
        StagedTable(spark, str(tmp_path), "table", dead).replace(
            spark.createDataFrame([(1, day), (3, day)], schema), run=5
        )
    for run in (4, 5, 5):
        staging.recover(run)
    found = [tuple(row) for row in table.read().orderBy("n").collect()]
    assert found == [(1, day), (2, other), (3, day)]


class Dead(PartitionedTable):
    """Its process dies before the table is touched."""

    def replace(self, rows: DataFrame) -> None:
        raise InterruptedError


@pytest.mark.long
def test_a_table_of_runs_that_cannot_be_understood_is_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = Job(spark, tmp_path)
    job.run()
    broken = job.results.runs.read().selectExpr("* except (progress, run)", "'x' as progress",
                                                "9L as run")  # fmt: skip
    job.results.runs.replace(broken)
    with pytest.raises(StorageError, match="has 'x' as the position to continue from"):
        job.run()
    job.results.runs.replace(broken.withColumn("progress", F.lit(None).cast("string")))
    with pytest.raises(StorageError, match="has '' as the position to continue from"):
        job.run()


def test_rows_of_any_database_that_speaks_db_api(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    with sqlite3.connect(file) as db:
        db.execute("create table done (id text, topic text, at text)")
        db.execute("insert into done values ('k', 'paid', '2026-11-21T12:00:00+00:00')")

    def connect() -> Any:
        return Texts(sqlite3.connect(file))

    rows = business.from_database(connect, "select id, topic, at from done where at >= ?")
    found = rows(spark, dt.datetime(2026, 1, 1, tzinfo=dt.UTC)).collect()
    assert [(row["messageId"], row["topic"]) for row in found] == [("k", "paid")]
    assert found[0]["at"].timestamp() == START.timestamp()
    assert rows(spark, dt.datetime(2027, 1, 1, tzinfo=dt.UTC)).count() == 0
    few = business.from_database(connect, "select id, topic from done where at >= ?")
    with pytest.raises(UsageError, match="gives rows of 2 columns"):
        few(spark, START)


class Texts:
    """SQLite has no times: they are texts there."""

    def __init__(self, inner: sqlite3.Connection) -> None:
        self._inner = inner

    def cursor(self) -> Texts:
        return Texts(self._inner)

    def execute(self, query: str, given: tuple[dt.datetime]) -> None:
        self._cursor = self._inner.execute(query, (given[0].isoformat(),))

    def fetchmany(self, count: int) -> list[tuple[Any, ...]]:
        rows = self._cursor.fetchmany(count)
        return [(*row[:2], *(dt.datetime.fromisoformat(at) for at in row[2:])) for row in rows]

    def close(self) -> None:
        self._inner.close()  # the cursor first, then the connection: twice does no harm


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    server = PostgresServer(tmp_path_factory.mktemp("postgres"))
    yield server
    server.stop()


@pytest.mark.skipif(bool(missing()), reason=f"not on this machine: {missing()}")
def test_rows_of_postgres_come_page_by_page(
    spark: SparkSession, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    url = postgres.new_database()
    with psycopg.connect(url) as db:
        db.execute("create table done (id text, at timestamptz)")
        db.execute(
            "insert into done select 'k' || n, timestamptz '2026-11-21 12:00Z' + n * interval '1s' "
            "from generate_series(1, 1000) n"
        )
    monkeypatch.setattr(business, "PAGE_COUNT", 64)
    rows = business.from_database(
        lambda: psycopg.connect(url), "select id, null, at from done where at >= %s"
    )
    found = rows(spark, START + dt.timedelta(seconds=501))
    assert found.count() == 500
    assert found.selectExpr("max(at)").head()[0].timestamp() == START.timestamp() + 1000
    postgres.stop()
    with pytest.raises(psycopg.OperationalError):
        rows(spark, START)


def test_rows_of_files(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "rows")
    frame = spark.createDataFrame([("k", START), ("old", START - dt.timedelta(days=1))],
                                  "id string, made timestamp")  # fmt: skip
    frame.write.option("header", "true").csv(place)
    rows = business.from_files(f"csv:{place}", message_id="id", at="made")
    assert [row["messageId"] for row in rows(spark, START).collect()] == ["k"]
    with pytest.raises(UsageError, match="has no column 'messageId'; it has id, made"):
        business.from_files(f"csv:{place}")(spark, START)


def test_stores_without_saved_offsets_are_told(spark: SparkSession, tmp_path: Path) -> None:
    files = FileMessages(spark, {"broker-a": str(a_store(tmp_path))})
    with pytest.raises(UsageError, match="cannot be read for the offsets of consumer groups"):
        files.group_offsets(["mailer"])
    with pytest.raises(UsageError, match="no store folder is given"):
        FileMessages(spark, {})


@pytest.mark.parametrize(
    "saved",
    [
        b"[]",
        b'{"offsetTable":[]}',
        b'{"offsetTable":{"paid@mailer":7}}',
        b'{"offsetTable":{"paid@mailer":{"zero":7}}}',
        b'{"offsetTable":{"paid@mailer":{0:"seven"}}}',
        b'{"offsetTable":{"paid@mailer":{0:null}}}',
        b'{"offsetTable":{"paid@mailer":{0:99999999999999999999}}}',
    ],
)
def test_damaged_offsets_of_a_store_are_told(
    spark: SparkSession, tmp_path: Path, saved: bytes
) -> None:
    files = FileMessages(spark, {"broker-a": str(a_store(tmp_path))})
    file = tmp_path / "config" / "consumerOffset.json"
    file.parent.mkdir()
    file.write_bytes(b'{"dataVersion":{},"offsetTable":{"paid@mailer":{0:7,1:0}}}')
    rows = files.group_offsets(["mailer"]).orderBy("queueId").collect()
    assert [tuple(row) for row in rows] == [
        ("mailer", "broker-a", "paid", 0, 7), ("mailer", "broker-a", "paid", 1, 0),
    ]  # fmt: skip
    file.write_bytes(saved)
    with pytest.raises(UsageError, match=r"consumerOffset\.json cannot be read for .* leave"):
        files.group_offsets(["mailer"])


@pytest.mark.parametrize("row", [(17, "paid", START), ("k", "paid", "noon"), ("k", 3, START)])
def test_rows_of_other_types_are_told(spark: SparkSession, row: Any) -> None:
    with pytest.raises(UsageError, match=r"gives rows like .* so cast the columns"):
        business.from_rows(lambda _: [row])(spark, START)


def a_store(folder: Path) -> Path:
    """The folder of a store with an empty log."""
    log = folder / "commitlog" / f"{0:020d}"
    log.parent.mkdir()
    log.write_bytes(bytes(4096))
    return folder


def test_a_group_that_nobody_knows_is_told(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    half = job.source.log.half("k")
    job.source.log.final(half)
    job.source.committed["mialer"] = -1
    with pytest.raises(UsageError, match="keeps an offset of the group 'mialer'"):
        job.run(ReconcileSettings(groups=("mailer", "mialer")))


@pytest.mark.long
def test_days_are_those_of_utc_whatever_the_session_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = Job(spark, tmp_path)
    half = job.source.log.half("k")
    for _ in range(2):
        job.source.log.final(half)
    job.source.log.op(half, outcomes="c")
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        for zone in ("UTC", "Pacific/Kiritimati"):
            spark.conf.set("spark.sql.session.timeZone", zone)
            job.source.read_from = 0
            assert job.run(ReconcileSettings()).classes == {"two-finals": 1}
            assert job.results.open_classes() == {"two-finals": 1}
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_days_of_deliveries_are_replaced_whole_whatever_the_session_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = Log()
    for key, hour in (("a", 4), ("b", 13)):
        for _ in range(2):
            log.put("paid", age_s=-3600 * hour, UNIQ_KEY=key)
    messages, midnight = log.table(spark), "timestamp '2026-11-22 00:00:00 UTC'"
    job = FunnelJob(spark, Memory(spark), str(tmp_path))
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        with FileLease(tmp_path) as lease:
            job.count_deliveries(messages, lease=lease)
            job.count_deliveries(messages.where(f"storeTimestamp >= {midnight}"), lease=lease)
        found = {row["messageId"]: str(row["day"]) for row in job.duplicates.read().collect()}
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert found == {"a": "2026-11-21", "b": "2026-11-22"}


def test_a_day_that_is_read_in_part_keeps_its_counts(spark: SparkSession, tmp_path: Path) -> None:
    """A broker's clock was set back over midnight: of yesterday only what follows was read."""
    rows: list[tuple[Any, ...]] = [
        ("%RETRY%g", "b", 0, offset, str(offset), NIGHT + dt.timedelta(hours=hour), 1, {})
        for offset, hour in enumerate((22, 23, 24, 23.9, 25))
    ]
    messages = spark.createDataFrame(rows, DELIVERY_COLUMNS)
    job = FunnelJob(spark, Memory(spark), str(tmp_path))
    with FileLease(tmp_path) as lease:
        job.count_deliveries(messages, lease=lease)
        job.since_day_ms = int((NIGHT.timestamp() + 86_400) * 1_000)
        job.count_deliveries(messages.where("queueOffset >= 2"), lease=lease)
    found = {str(row["day"]): row["count"] for row in job.retries.read().collect()}
    assert found == {"2026-11-21": 3, "2026-11-22": 2}


NIGHT = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)


def test_a_half_that_was_stored_again_keeps_its_beginning_and_its_day(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A later run reads, by its lookback, only the newer copies of a half stored days ago."""
    source = Memory(spark)
    log, days = source.log, {"k": "2026-11-18", "open": "2026-11-20"}
    job = FunnelJob(spark, source, str(tmp_path))
    log.half("k", age_s=3 * 86_400)
    log.half("open", age_s=86_400)
    job.run(lease=FileLease(tmp_path))
    newer = len(log.rows)
    again = log.half("k", age_s=1_800, TRAN_PREPARED_QUEUE_OFFSET="0")
    log.half("open", age_s=1_800, TRAN_PREPARED_QUEUE_OFFSET="1")
    log.final(again, age_s=1_700)
    log.op(again, outcomes="c")
    for _ in range(2):
        source.read_from = newer
        job.run(lease=FileLease(tmp_path))
        rows = job.transactions.read().collect()
        assert {row["messageId"]: str(row["day"]) for row in rows} == days
        assert len(rows) == len(days)
        sums = {str(row["day"]): row for row in job.funnel.read().collect()}
        assert (sums[days["k"]]["committed"], sums[days["open"]]["pending"]) == (1, 1)
        assert sums[days["k"]]["commitMs"][0] == (3 * 86_400 - 1_700) * 1_000
