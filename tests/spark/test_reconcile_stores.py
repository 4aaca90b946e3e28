"""Runs over store files one after the other, while brokers write and remove segments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

from escrowmq.base.message import Message, Topic
from escrowmq.errors import DataLost, UsageError
from escrowmq.pipeline.reconcile.lease import FileLease
from escrowmq.pipeline.reconcile.run import Reconciler, ReconcileSettings, RunReport
from escrowmq.pipeline.reconcile.stored_messages import FileMessages

from .injected import NOW_MS, StoreWriter

MINUTE_MS = 60_000
SEGMENT_SIZE = 4096


class Store:
    """The files of one broker, and runs over them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder / "store"
        self.out = folder / "out"
        self.log = StoreWriter(self.folder, segment_size=SEGMENT_SIZE)

    def half(self, key: str, *, at_ms: int) -> None:
        """A half that nobody ends."""
        properties = {"UNIQ_KEY": key, "PGROUP": "orders", "REAL_TOPIC": "paid", "REAL_QID": "0"}
        self.log.put(Message(topic=Topic.HALF, body=b"b", properties=properties), stored_ms=at_ms)

    def fill(self, *, at_ms: int, segments: int = 1) -> None:
        """Plain messages, until the log has so many segments more."""
        before = len(self.segments())
        while len(self.segments()) < before + segments:
            self.log.put(Message(topic="plain", body=bytes(500)), stored_ms=at_ms)

    def segments(self) -> list[Path]:
        return sorted((self.folder / "commitlog").iterdir())

    def run(
        self, *, now_ms: int, skipped: tuple[str, ...] = (), options: dict[str, str] | None = None
    ) -> RunReport:
        source = FileMessages(
            self.spark, {"broker-a": str(self.folder)}, options=options, skipped=skipped
        )
        job = Reconciler(
            self.spark, source, str(self.out), settings=ReconcileSettings(), now_ms=lambda: now_ms
        )
        self.results = job.results
        return job.run(lease=FileLease(self.out))

    def open_ids(self) -> set[tuple[str, str]]:
        rows = self.results.differences.read().where("goneAt is null").collect()
        return {(row["class"], row["messageId"]) for row in rows}


@pytest.fixture
def store(spark: SparkSession, tmp_path: Path) -> Store:
    return Store(spark, tmp_path)


@pytest.mark.long
def test_what_is_open_outlives_runs_that_leave_its_topic_out(store: Store) -> None:
    store.half("open", at_ms=NOW_MS - 30 * MINUTE_MS)
    store.fill(at_ms=NOW_MS - 30 * MINUTE_MS)
    assert store.run(now_ms=NOW_MS).classes == {"overdue": 1}
    for after_min in (10, 180):
        assert store.run(now_ms=NOW_MS + after_min * MINUTE_MS, skipped=("paid",)).classes == {}
        assert store.open_ids() == {("overdue", "open")}
    assert store.run(now_ms=NOW_MS + 360 * MINUTE_MS).classes == {"overdue": 1}
    assert store.open_ids() == {("overdue", "open")}, "nobody has ended it"


@pytest.mark.long
def test_segments_that_went_before_they_were_read_are_told(store: Store) -> None:
    store.half("seen", at_ms=NOW_MS - 30 * MINUTE_MS)
    store.fill(at_ms=NOW_MS - 30 * MINUTE_MS)
    store.run(now_ms=NOW_MS)
    later_ms = NOW_MS + 300 * MINUTE_MS
    store.half("unseen", at_ms=NOW_MS + MINUTE_MS)
    store.fill(at_ms=NOW_MS + MINUTE_MS, segments=3)
    for segment in store.segments()[:-1]:
        segment.unlink()
    with pytest.raises(DataLost, match=r"removed before it was read .*failOnDataLoss=false"):
        store.run(now_ms=later_ms)
    assert store.open_ids() == {("overdue", "seen")}
    assert store.run(now_ms=later_ms, options={"failOnDataLoss": "false"}).classes == {"overdue": 1}
    assert store.run(now_ms=later_ms + MINUTE_MS).classes == {"overdue": 1}, "it is told once"


@pytest.mark.long
def test_segments_without_a_transaction_may_go_when_they_were_read(store: Store) -> None:
    store.half("seen", at_ms=NOW_MS - 30 * MINUTE_MS)
    store.fill(at_ms=NOW_MS - 30 * MINUTE_MS, segments=4)
    store.run(now_ms=NOW_MS)
    for segment in store.segments()[:-1]:
        segment.unlink()
    assert store.run(now_ms=NOW_MS + 300 * MINUTE_MS).classes == {"overdue": 1}
    store.fill(at_ms=NOW_MS + 301 * MINUTE_MS, segments=3)
    for segment in store.segments()[:-1]:
        segment.unlink()
    with pytest.raises(DataLost, match="is another log"):
        store.run(now_ms=NOW_MS + 400 * MINUTE_MS)


def test_a_store_of_an_earlier_run_is_given_or_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    a, b = Store(spark, tmp_path / "a"), Store(spark, tmp_path / "b")
    for store, key in ((a, "of a"), (b, "of b")):
        store.half(key, at_ms=NOW_MS - 30 * MINUTE_MS)
        store.fill(at_ms=NOW_MS - 30 * MINUTE_MS)
    folders = {"a": str(a.folder), "b": str(b.folder)}
    out = tmp_path / "out"

    def run(names: str, now_ms: int, *, without: tuple[str, ...] = ()) -> RunReport:
        chosen = {name: folders[name] for name in names}
        source = FileMessages(spark, chosen, skipped_brokers=without)
        job = Reconciler(spark, source, str(out), now_ms=lambda: now_ms)
        return job.run(lease=FileLease(out))

    assert run("ab", NOW_MS).open_classes == {"overdue": 2}
    with pytest.raises(UsageError, match=r"store of broker 'b' up to \d+, and it is not given now"):
        run("a", NOW_MS + MINUTE_MS)
    with pytest.raises(UsageError, match="broker 'b' is left out, and its store"):
        run("ab", NOW_MS + MINUTE_MS, without=("b",))
    left_out = run("a", NOW_MS + MINUTE_MS, without=("b",))
    assert (left_out.classes, left_out.open_classes) == ({"overdue": 1}, {"overdue": 2})
    assert run("ab", NOW_MS + 2 * MINUTE_MS).classes == {"overdue": 2}, "its half was kept"


@pytest.mark.parametrize(
    "option",
    [{"STARTINGTIMESTAMP": "9999999999999"}, {"tags": "x"}, {"subscribe": "paid"},
     {"sqlFilter": "a > 1"}],
)  # fmt: skip
def test_options_that_leave_out_what_is_compared_are_refused(
    store: Store, option: dict[str, str]
) -> None:
    store.half("open", at_ms=NOW_MS - 30 * MINUTE_MS)
    store.fill(at_ms=NOW_MS)
    with pytest.raises(UsageError, match="would leave out messages that must be compared"):
        store.run(now_ms=NOW_MS, options=option)


def test_live_topics_keep_what_is_left_out_and_take_no_such_option(spark: SparkSession) -> None:
    from escrowmq.pipeline.reconcile.live_messages import BrokerMessages, TableBatch
    from escrowmq.pipeline.reconcile.progress import RunProgress, make_window

    from .messages import Log

    nobody: Any = None
    with pytest.raises(UsageError, match="the option tags would leave out"):
        BrokerMessages(spark, {"nameServer": "h:1", "Tags": "x"}, admin=nobody)
    log = Log()
    log.half("left out")
    log.half("read again", topic="shipped")
    carried = log.table(spark)
    source = BrokerMessages(spark, {"nameServer": "h:1"}, admin=nobody, skipped={"paid"})
    window = make_window(RunProgress(), now_ms=NOW_MS, grace_ms=0, lookback_ms=0)
    begins = {str(Topic.HALF): {"broker-a": {"0": 0}}}
    found = source.carried_not_reread(carried, [TableBatch(carried, {}, begins)], window).collect()
    assert [row["msgId"] for row in found] == ["left out"]
