"""`escrowmq pipeline` on a live broker whose store has known transactions, some of them wrong."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

import escrowmq
from escrowmq.cli.main import main
from escrowmq.client.lease_base import LeaseTaken
from escrowmq.net.clock import SystemClock
from tests.interop import servers
from tests.interop.drivers import unique
from tests.interop.process import until
from tests.interop.servers import Server

from .injected import GROUP, QUEUES, TOPICS, Injected, named
from .messages import START
from .topics import send_numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

from escrowmq.pipeline.copies.export import exported
from escrowmq.pipeline.copies.replay import SOURCE_COLUMNS, mark_copied, with_copy_keys
from escrowmq.pipeline.reconcile.lease import FileLease
from escrowmq.pipeline.reconcile.partitioned_table import PartitionedTable

SEGMENT_SIZE = 8 << 20
YOUNG_MS = 1_200_000
PATIENT = ("--grace", 900, "--overdue", 3600, "--lookback", 1800, "--timeout", 60)
"""Many minutes lie between the ages in the store and these bounds: on a busy machine a test stands
still for a while, and what was young when the store was written must be young when it is judged."""

NONE_SENT = "0 messages sent ({} skipped: the target has them)\n"
SETTINGS = {"mappedFileSizeCommitLog": SEGMENT_SIZE, "transactionTimeOut": 36_000_000}


class World:
    """A broker that was started on an injected store."""

    def __init__(self, folder: Path) -> None:
        self.server = Server("escrow", folder, dict(SETTINGS))
        self.injected = Injected(
            self.server.store, count=400, now_ms=SystemClock().now_ms(), segment_size=SEGMENT_SIZE,
            young_ms=YOUNG_MS,
        )  # fmt: skip
        self.server.start()
        for topic in TOPICS:
            servers.new_topic(self.server, topic, queues=QUEUES)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("world"))
    yield made
    made.server.kill()


@pytest.fixture
def pipeline(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs a command in this process and session: exit code, output, errors."""

    def run(*words: object) -> tuple[int, str, str]:
        code = main(["pipeline", *map(str, words)])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


class Shop:
    """A business with a table of its own."""

    done: ClassVar[set[str]] = set()

    def apply(self, message: escrowmq.ReceivedMessage) -> bool:
        is_new = message.message_id not in self.done
        self.done.add(message.message_id)
        return is_new


@pytest.mark.long
def test_what_is_wrong_is_named_and_what_can_be_is_redone(
    spark: SparkSession, world: World, pipeline: Callable[..., Any], tmp_path: Path
) -> None:
    injected, out = world.injected, tmp_path / "out"
    rows = tmp_path / "rows"
    injected.rows_table(spark).write.parquet(str(rows))
    common = [
        "reconcile", "-n", world.server.nameserver, "--out", out, "--rows", f"parquet:{rows}",
        "--group", GROUP, "--json", "--business", f"{__name__}:Shop", *PATIENT,
    ]  # fmt: skip
    code, told, errors = pipeline(*common, "--fail-on", "overdue=0,two-finals=100", "--dry-run")
    assert code == 1
    assert "overdue: " in errors
    assert "two-finals" not in errors.replace('"class"', "")
    differences = spark.read.parquet(str(out / "differences"))
    assert injected.wrong(named(differences)) == []
    report = json.loads(told)
    wanted = {kind for kind, _ in injected.expected}
    assert report["classes"].keys() == wanted
    without = {key for kind, key in injected.expected if kind == "message-without-row"}
    lost = {key for kind, key in injected.expected if kind == "committed-without-final"}
    assert report["deeds"]["would be redone"] >= len(without | lost)
    assert Shop.done == set()

    code, told, _ = pipeline(*common, "--redo", "--rate", "0")
    assert code == 0
    assert Shop.done == without
    code, told, _ = pipeline(*common, "--fail-on", "committed-without-final=0")
    assert code == 0, "their messages were stored again, under their own ids"
    table = spark.read.parquet(str(out / "differences"))
    gone = named(table.where("goneAt is not null"))
    assert {key for kind, key in gone if kind == "committed-without-final"} == lost
    doubled = {key for kind, key in injected.expected if kind == "two-finals"}
    seen = {key for kind, key in named(table) if kind == "two-finals"}
    assert seen == doubled, "the redo stored nothing twice"


def test_the_funnel_counts_each_transaction_once(
    spark: SparkSession, world: World, pipeline: Callable[..., Any], tmp_path: Path
) -> None:
    out, page = tmp_path / "out", tmp_path / "report.html"
    common = ["funnel", "--store", f"broker-a={world.server.store}", "--out", out, "--json"]
    code, told, errors = pipeline(*common, "--deliveries", "--report", page)
    assert code == 0, errors
    first = [json.loads(line) for line in told.splitlines()]
    fates = world.injected.fates
    assert sum(row["expired"] for row in first) == fates["expired"]
    assert sum(row["pending"] for row in first) >= fates["pending"]
    doubled = {key for kind, key in world.injected.expected if kind == "two-finals"}
    assert sum(row["doubled"] for row in first) == len(doubled)
    twice = spark.read.parquet(str(out / "twice"))
    assert {row["messageId"] for row in twice.collect()} == doubled
    assert {place.split("/")[0] for row in twice.collect() for place in row["places"]} == {
        "broker-a"
    }
    text = page.read_text()
    assert text.count("<svg") == 3
    assert "src=" not in text
    assert "#010203" not in text
    code, told, _ = pipeline(*common)
    assert [json.loads(line) for line in told.splitlines()] == first


def test_deliveries_are_counted_while_the_lease_is_held(
    world: World, pipeline: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, held = PartitionedTable.replace, {}

    def watched(self: PartitionedTable, rows: Any) -> None:
        try:
            with FileLease(tmp_path):
                held[Path(self.path).name] = False
        except LeaseTaken:
            held[Path(self.path).name] = True
        replace(self, rows)

    monkeypatch.setattr(PartitionedTable, "replace", watched)
    words = ["--store", f"broker-a={world.server.store}", "--out", tmp_path, "--deliveries"]
    assert pipeline("funnel", *words)[0] == 0
    assert held.keys() >= {"funnel", "twice", "given_back"}
    assert all(held.values()), held


def test_a_topic_is_exported_once(
    spark: SparkSession, server: Server, topic: str, pipeline: Callable[..., Any], tmp_path: Path
) -> None:
    common = ["export", "-n", server.nameserver, "--out", tmp_path, topic]
    send_numbers(server, topic, range(10))
    assert pipeline(*common)[:2] == (0, "10 messages added\n")
    send_numbers(server, topic, range(10, 15))
    assert pipeline(*common)[:2] == (0, "5 messages added\n")
    assert pipeline(*common)[:2] == (0, "0 messages added\n")
    table = spark.read.parquet(str(tmp_path / "messages"))
    assert sorted(int(row.body) for row in table.collect()) == [*range(15)]
    assert {"topic", "day"} <= set(table.columns)


def test_an_export_has_the_days_of_utc_and_topics_as_text(
    spark: SparkSession, server: Server, pipeline: Callable[..., Any], tmp_path: Path
) -> None:
    topic = servers.new_topic(server, "007", queues=1)
    send_numbers(server, topic, range(4))
    zone = spark.conf.get("spark.sql.session.timeZone")
    assert zone is not None
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Kiritimati")  # 14 hours ahead
    try:
        pipeline("export", "-n", server.nameserver, "--out", tmp_path, topic)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    table = exported(spark, str(tmp_path))
    assert {row.topic for row in table.collect()} == {"007"}
    assert table.where("day = to_date(storeTimestamp)").count() == 4


def test_an_export_begins_where_an_option_says_in_whatever_case(
    server: Server, topic: str, pipeline: Callable[..., Any], tmp_path: Path
) -> None:
    send_numbers(server, topic, range(10))
    words = ["export", "-n", server.nameserver, "--out", tmp_path, topic]
    words += ["--option", "STARTINGOFFSETS=latest"]
    assert pipeline(*words)[:2] == (0, "0 messages added\n")


def test_a_replay_sends_each_message_once(
    spark: SparkSession, server: Server, topic: str, pipeline: Callable[..., Any]
) -> None:
    target = servers.new_topic(server, unique("again"))
    send_numbers(server, topic, range(20))
    common = ["replay", "-n", server.nameserver, topic, "--to-topic", target]
    code, told, _ = pipeline(*common, "--tags", "b")
    assert (code, told) == (0, "10 messages would be sent; --send sends them\n")
    assert pipeline(*common, "--tags", "b", "--send")[1] == "10 messages sent\n"
    some = "10 messages sent (10 skipped: the target has them)\n"
    assert pipeline(*common, "--send", "--rate", "10000")[1] == some
    assert pipeline(*common, "--send")[1] == NONE_SENT.format(20)
    assert pipeline(*common)[1] == (
        "0 messages would be sent (20 skipped: the target has them); --send sends them\n"
    )
    assert pipeline(*common, "--send", "--twice")[1] == "20 messages sent\n"
    reader = spark.read.format("escrowmq").option("nameServer", server.nameserver)
    found = reader.option("subscribe", target).load().collect()
    assert len(found) == 40
    assert len({row.msgId for row in found}) == 20, "consumers can tell what they have seen"
    assert sorted({int(row.body) for row in found}) == [*range(20)]


@pytest.mark.parametrize(
    "option",
    ["endingTimestamp={end}", 'EndingOffsets={{"{topic}": {{"broker-a": {{"0": 5}}}}}}'],
)
def test_what_is_chosen_of_the_source_does_not_hide_what_the_target_has(
    server: Server, pipeline: Callable[..., Any], option: str
) -> None:
    topic, target = (servers.new_topic(server, unique("some"), queues=1) for _ in range(2))
    send_numbers(server, topic, range(10))
    end_ms = SystemClock().now_ms() + 1
    until("the end is over", lambda: SystemClock().now_ms() > end_ms)
    words = ["replay", "-n", server.nameserver, topic, "--to-topic", target, "--send"]
    words += ["--option", option.format(end=end_ms, topic=topic)]
    count = 10 if option.startswith("ending") else 5
    assert pipeline(*words)[1] == f"{count} messages sent\n"
    assert pipeline(*words)[1] == NONE_SENT.format(count)


def test_a_replay_takes_a_new_topic_of_an_old_name_for_other_messages(
    spark: SparkSession, pipeline: Callable[..., Any], own_server: Callable[..., Server]
) -> None:
    server = own_server()
    topic, target = (servers.new_topic(server, name, queues=1) for name in ("T", "again"))
    words = ["replay", "-n", server.nameserver, topic, "--to-topic", target, "--send"]
    send_numbers(server, topic, range(3))
    assert pipeline(*words)[1] == "3 messages sent\n"
    with escrowmq.Admin(server.nameserver) as admin:
        admin.topics.delete(topic)
        servers.new_topic(server, topic, queues=1)
    send_numbers(server, topic, range(3, 6))
    assert pipeline(*words)[1] == "3 messages sent\n"
    assert pipeline(*words)[1] == NONE_SENT.format(3)
    reader = spark.read.format("escrowmq").option("nameServer", server.nameserver)
    found = reader.option("subscribe", target).load().collect()
    assert sorted(int(row.body) for row in found) == [*range(6)]


def test_copies_of_older_releases_are_recognised_by_position_and_time(spark: SparkSession) -> None:
    places = [(number, START + dt.timedelta(seconds=number)) for number in range(3)]
    rows: list[tuple[Any, ...]] = [
        ("T", "broker-a", 0, number, at, "", [], b"", {}, 0) for number, at in places
    ]
    keyed = with_copy_keys(spark.createDataFrame(rows, SOURCE_COLUMNS), topic="again")
    keys = [row.olderKey for row in keyed.orderBy("queueOffset").collect()]
    assert keys[0] == "9F0088BBBFD543E6B79C06653AAA5D0F", "as release 0.1.0 made it"
    # The last is the copy of a message in a deleted topic.
    copies = [(keys[0], START), (keys[0], START), (keys[2], START)]
    present = spark.createDataFrame(copies, "msgId string, storeTimestamp timestamp")
    found = mark_copied(keyed, present)
    assert [row.isCopied for row in found.orderBy("queueOffset").collect()] == [True, False, False]


@pytest.mark.parametrize("words", [[], ["--rate", "100000"]])
def test_a_replay_keeps_order_keys_and_queues_in_order(
    spark: SparkSession, server: Server, pipeline: Callable[..., Any], words: list[str]
) -> None:
    source, target = (servers.new_topic(server, unique("order"), queues=count) for count in (4, 3))
    with escrowmq.Producer(server.nameserver, group="g") as producer:
        for number in range(40):
            key = "odd" if number % 2 else "even"
            producer.send(escrowmq.Message(source, b"%d" % number, tag=key, order_key=key, flag=7))
            queue = escrowmq.MessageQueue(source, "broker-a", number % 4)
            producer.send(source, b"%d" % number, tag=f"in {number % 4}", queue=queue)
    # Each of many short tasks has a piece of a queue, unless replay puts them together again.
    cut = ["--option", "maxRecordsPerPartition=3"]
    common = ["replay", "-n", server.nameserver, source, "--to-topic", target, "--send"]
    assert pipeline(*common, *cut, *words)[1] == "80 messages sent\n"
    reader = spark.read.format("escrowmq").option("nameServer", server.nameserver)
    found: dict[str, list[tuple[int, int, int]]] = {}
    for row in reader.option("subscribe", target).load().collect():
        found.setdefault(row.tags, []).append((row.queueId, row.queueOffset, int(row.body)))
        assert row.flag == (7 if row.tags in ("odd", "even") else 0)
    assert len(found) == 6
    for tag, rows in found.items():
        assert len({queue_id for queue_id, _, _ in rows}) == 1, tag
        numbers = [number for _, _, number in sorted(rows)]
        assert numbers == sorted(numbers), tag
    for number in range(4):
        assert found[f"in {number}"][0][0] == number % 3
    with escrowmq.Producer(server.nameserver, group="g") as producer:
        sent = producer.send(target, b"40", order_key="even")
    assert sent.queue.queue_id == found["even"][0][0], "what comes later goes there as well"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["reconcile", "--out", "x"], "no name server is given"),
        (["reconcile", "--out", "x", "--store", "s", "--redo"], "only a live cluster"),
        (["reconcile", "--out", "x", "--store", "s", "--query", "q"], "go together"),
        (["reconcile", "--out", "s3://x", "--store", "s"], "no lease can be stored"),
        (["reconcile", "--out", "x", "--store", "s", "--store", "t"], "have no name"),
        (["funnel", "--out", "x", "--store", "a=s", "--store", "a=t"], "have the name 'a'"),
        (["funnel", "--out", "{tmp}", "--store", "{tmp}/none"], "cannot be read"),
        (["export", "-n", "127.0.0.1:1", "--out", "{tmp}", "t", "--from", "noon"], "is not a time"),
        (["replay", "t", "--to-topic", "u"], "no name server is given"),
        (["replay", "t, u", "--to-topic", "u"], "u would be replayed into itself"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_code_2(
    pipeline: Callable[..., Any], words: list[str], text: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.chdir(tmp_path)
    code, _, errors = pipeline(*[word.format(tmp=tmp_path) for word in words])
    assert code == 2
    assert text in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize("text", ["overdue", "nothing=1", "overdue=x", "overdue=0,=1"])
def test_thresholds_that_make_no_sense_are_usage_errors(text: str) -> None:
    with pytest.raises(SystemExit) as seen:
        main(["pipeline", "reconcile", "--out", "x", "--fail-on", text])
    assert seen.value.code == 2
