"""`escrowmq pipeline` on two brokers behind one name server: what is equal on both is not mixed up,
and a broker that is down is not passed over."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import escrowmq
from escrowmq.cli.main import main
from escrowmq.net.clock import SystemClock
from tests.interop.process import until

from .clusters import Cluster, Shop, by_broker
from .injected import GROUP, QUEUES, TOPICS, Injected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

SEGMENT_SIZE = 1 << 20
A, B = "broker-a", "broker-b"
PATIENT = ("--grace", 900, "--overdue", 3600, "--lookback", 1800, "--timeout", 60)
OF_ROWS = ("message-without-row", "row-without-message")

Pipeline = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def pipeline(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Pipeline:
    """Runs a command in this process and session: exit code, what it says in JSON, errors."""

    def run(action: str, *words: object) -> tuple[int, Any, str]:
        code = main(["pipeline", action, "--json", *map(str, words)])
        told = capsys.readouterr()
        return code, [json.loads(line) for line in told.out.splitlines()], told.err

    return run


class Alike:
    """Two brokers with stores in which the same ids stand at the same offsets, and ended in
    different ways."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(folder, mappedFileSizeCommitLog=SEGMENT_SIZE)
        now_ms = SystemClock().now_ms()
        self.stores = {
            name: Injected(
                self.cluster.store(name), count=60, seed=seed, now_ms=now_ms,
                segment_size=SEGMENT_SIZE, young_ms=1_200_000,
            )
            for seed, name in enumerate((A, B))
        }  # fmt: skip
        for name in self.stores:
            self.cluster.start(name)
        for topic in TOPICS:
            self.cluster.new_topic(topic, queues=QUEUES)

    def expected(self, *kinds: str) -> set[tuple[str, str, str]]:
        return {
            (name, kind, key)
            for name, store in self.stores.items()
            for kind, key in store.expected
            if kind not in OF_ROWS and (not kinds or kind in kinds)
        }


@pytest.fixture
def alike(tmp_path: Path) -> Iterator[Alike]:
    made = Alike(tmp_path)
    yield made
    made.cluster.close()


@pytest.mark.long
def test_equal_ids_and_offsets_on_two_brokers_are_not_mixed_up(
    spark: SparkSession, alike: Alike, pipeline: Pipeline, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = ("-n", alike.cluster.nameserver, "--out", out, "--group", GROUP, *PATIENT)
    code, (report,), errors = pipeline("reconcile", *words, "--redo", "--rate", 0)
    assert code == 0, errors
    table = spark.read.parquet(str(out / "differences"))
    found = by_broker(table)
    twice = by_broker(table.where("class = 'committed-twice'"))
    assert found - twice == alike.expected()
    of_each = [{key for name, _, key in twice if name == broker} for broker in (A, B)]
    both = alike.stores[A].finals & alike.stores[B].finals
    assert of_each[0] & of_each[1] & both, "the same id, and consumers get it from both"
    fates = [store.fates for store in alike.stores.values()]
    for name, fate in (("committed", "committed"), ("rolledBack", "rolled back")):
        assert report["balance"][name] == sum(each[fate] for each in fates)
    lost = alike.expected("committed-without-final")
    others = {key for name, _, key in lost for store in alike.stores.values() if
              (name, store) not in alike.stores.items() and key in store.finals}  # fmt: skip
    assert others, "of some of the lost ones the other broker has a message"
    assert report["deeds"]["redone"] == len(lost | alike.expected("overdue"))

    code, (report,), errors = pipeline("reconcile", *words)
    assert code == 0, errors
    table = spark.read.parquet(str(out / "differences"))
    asked = alike.expected("overdue")
    gone = by_broker(table.where("goneAt is not null"))
    assert gone == lost | asked, "each was stored again on the broker that had lost it"
    parked = {(name, "overdue", key) for name, _, key in by_broker(table.where("class = 'parked'"))}
    assert parked == asked, "nobody was there to be asked"
    assert by_broker(table.where("class = 'two-finals'")) == alike.expected("two-finals")


class World:
    """Two brokers, and a shop that sends to both."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(folder, A, B)
        self.nameserver = self.cluster.nameserver
        self.cluster.new_topic("paid")
        self.shop = Shop(self.nameserver, "paid", group="orders")

    def park(self, *names: str) -> set[tuple[str, str]]:
        """Ask about one open half of each broker, while nobody is there to answer."""
        with escrowmq.Admin(self.nameserver) as admin:
            for name in names:
                first = next(admin.transactions.pending(broker=name))
                admin.transactions.check(first.message_id, broker=name)

            def parked() -> set[tuple[str, str]] | None:
                found = admin.transactions.pending(state="parked")
                places = {(item.broker, item.message_id) for item in found}
                return places if len(places) == len(names) else None

            return until("they are parked", parked)

    def consume(self, count: int) -> None:
        """A group that consumes what is there."""
        seen = 0
        with escrowmq.Consumer(self.nameserver, group="mailer", topic="paid") as consumer:
            for _ in consumer:
                seen += 1
                if seen == count:
                    break

    def let_a_second_pass(self) -> None:
        """Ages are told in whole seconds."""
        clock = SystemClock()
        now_s = clock.now_ms() // 1000
        until("the next second", lambda: clock.now_ms() // 1000 > now_s)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("world"))
    yield made
    made.cluster.close()


@pytest.mark.long
def test_a_broker_that_is_down_is_missed_until_it_is_back(
    spark: SparkSession, world: World, pipeline: Pipeline, tmp_path: Path
) -> None:
    out, shop = tmp_path / "out", world.shop
    shop.send("committed", "rolled back", "open", rounds=4)
    assert all(len(places) == 4 for places in shop.ids.values())
    assert {name for places in shop.ids.values() for name, _ in places} == {A, B}
    world.consume(4)
    consumed = set(shop.ids["committed"])
    parked = world.park(A, B)
    shop.send("committed", rounds=4)
    world.let_a_second_pass()

    def expected() -> set[tuple[str, str, str]]:
        return {
            *((name, "not-consumed", key) for name, key in shop.ids["committed"] - consumed),
            *((name, "parked", key) for name, key in parked),
            *((name, "pending", key) for name, key in shop.ids["open"] - parked),
        }

    def differences(where: str = "goneAt is null") -> set[tuple[str, str, str]]:
        return by_broker(spark.read.parquet(str(out / "differences")).where(where))

    words = ("-n", world.nameserver, "--out", out, "--group", "mailer", "--grace", 0)
    code, (report,), errors = pipeline("reconcile", *words)
    assert code == 0, errors
    assert report["balance"] == {
        "halves": 16, "committed": 8, "rolledBack": 4, "pending": 2, "parked": 2, "expired": 0,
    }  # fmt: skip
    assert differences() == expected()

    world.cluster.kill(B)
    code, _, errors = pipeline("reconcile", *words)
    assert code == 2
    assert "queue 0 of" in errors
    assert f"on broker '{B}', which the last run has read up to" in errors
    assert errors.count("\n") == 1
    code, _, errors = pipeline("reconcile", *words, "--skip-broker", B)
    assert code == 0, errors
    assert differences() == expected(), "of the one that was left out nothing is known to be gone"

    world.cluster.start(B)
    world.consume(4)
    consumed = set(shop.ids["committed"])
    code, (report,), errors = pipeline("reconcile", *words)
    assert code == 0, errors
    # A broker that was started does not know yet that nobody is there.
    parked = {place for place in parked if place[0] == A}
    assert differences() == expected()
    assert {kind for _, kind, _ in differences("goneAt is not null")} == {"not-consumed", "parked"}
    assert report["balance"]["pending"] + report["balance"]["parked"] == 4


@pytest.mark.long
def test_a_producer_that_is_there_is_asked_and_the_next_run_tells_so(
    spark: SparkSession, world: World, pipeline: Pipeline, tmp_path: Path
) -> None:
    world.cluster.new_topic("asked")
    answers = {b"open 0": escrowmq.Outcome.COMMIT, b"open 1": escrowmq.Outcome.ROLLBACK}
    shop = Shop(
        world.nameserver, "asked", group="answering", check=lambda half: answers[half.body],
        topics=["asked"],
    )  # fmt: skip
    words = ("reconcile", "-n", world.nameserver, "--out", tmp_path, "--grace", 0, "--overdue", 0,
             "--skip-topic", "paid", "--skip-topic", "shipped")  # fmt: skip
    with shop.producer() as producer:
        shop.put(producer, "open", 0)
        shop.put(producer, "open", 1)
        world.let_a_second_pass()
        world.let_a_second_pass()
        code, (report,), _ = pipeline(*words, "--redo")
        assert (code, report["classes"], report["deeds"]) == (0, {"overdue": 2}, {"redone": 2})
        with escrowmq.Admin(world.nameserver) as admin:
            until("both are answered", lambda: admin.transactions.count(topic="asked").count == 0)
    code, (report,), _ = pipeline(*words)
    assert (code, report["classes"]) == (0, {})
    assert (report["balance"]["committed"], report["balance"]["rolledBack"]) == (1, 1)
    rows = spark.read.parquet(str(tmp_path / "differences")).collect()
    assert len(rows) == 2
    assert all(row["goneAt"] is not None for row in rows)


@pytest.mark.long
def test_funnel_export_and_replay_take_all_of_both_brokers(
    spark: SparkSession, world: World, pipeline: Pipeline, tmp_path: Path
) -> None:
    shop = Shop(world.nameserver, "shipped", group="shippers")
    for topic in ("shipped", "again"):
        world.cluster.new_topic(topic)
    shop.send("committed", "rolled back", rounds=4)
    where = ("-n", world.nameserver)
    funnel = ("funnel", *where, "--out", tmp_path / "funnel", "--deliveries")
    export = ("export", *where, "--out", tmp_path / "lake", "shipped")
    replay = ("replay", *where, "shipped", "--to-topic", "again", "--send")
    assert pipeline(*export)[1] == [{"count": 4}]
    assert pipeline(*replay)[1] == [{"sent": 4}]
    assert pipeline(*replay)[1] == [{"sent": 0}]
    reader = spark.read.format("escrowmq").option("nameServer", world.nameserver)
    copies = reader.option("subscribe", "again").load().collect()
    assert len({row.msgId for row in copies}) == 4
    # What is younger than ten seconds is on its way.
    until("the funnel has come to all of it", lambda: _counts(pipeline(*funnel)[1]) == (4, 4))

    before = set(shop.ids["committed"])
    shop.send("committed", rounds=4)
    new = [name for name, _ in shop.ids["committed"] - before]
    world.cluster.kill(B)
    code, _, errors = pipeline(*funnel)
    assert (code, errors.count("\n")) == (2, 1)
    assert f"on broker '{B}', which the last run has read up to" in errors
    # An export takes what is there; the rest comes with a later run.
    assert pipeline(*export)[1] == [{"count": new.count(A)}]
    world.cluster.start(B)
    assert pipeline(*export)[1] == [{"count": new.count(B)}]


def _counts(rows: list[dict[str, Any]]) -> tuple[int, int]:
    mine = [row for row in rows if row["topic"] == "shipped"]
    return sum(row["committed"] for row in mine), sum(row["rolledBack"] for row in mine)
