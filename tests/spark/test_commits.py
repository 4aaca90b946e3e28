"""`escrowmq pipeline reconcile --sets | --announcements`: commits that a broker never heard of."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import escrowmq
from escrowmq.cli.main import main
from escrowmq.client.announced_commits import Compared
from tests.compensation.forgetful import is_forgotten
from tests.compensation.services import RedisServer, forgotten_commit, missing, start_forgetful

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
pytest.importorskip("redis")

from escrowmq.compensation import Announcer, Member, RedisSets
from escrowmq.net.clock import SystemClock
from escrowmq.pipeline.reconcile.commits import CommitReconciler
from escrowmq.pipeline.reconcile.lease import FileLease
from escrowmq.pipeline.reconcile.lost_commits import ComputedSets

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"not on this machine: {missing()}")
SHARE = 0.3
ORDERS = 30
DAY_MS = 86_400_000
BODIES = [b"order %d" % number for number in range(ORDERS)]
EMPTY = "empty"
ANNOUNCED = "member string, announcedAt timestamp"
CONSUMED = "member string, messageId string"
NO_FINAL, NOT_CONSUMED = "committed-without-final", "not-consumed"


class Shop:
    """A broker that forgets ENDs, and what a shop has done with it."""

    def __init__(self, folder: Path) -> None:
        self.redis = RedisServer(folder / "redis")
        self.process, self.nameserver = start_forgetful(folder, share=SHARE)
        self.sets = RedisSets(self.redis.url)
        self.admin = escrowmq.Admin(self.nameserver)
        for topic in ("paid", "escrow-announced"):
            self.admin.topics.create(topic, queues=2)
        with escrowmq.Producer(self.nameserver, group="orders") as producer:
            announcer = Announcer(producer)
            bodies = {self.order(announcer, body): body for body in BODIES}
        self.ids = list(bodies)
        self.forgotten = {one for one, body in bodies.items() if is_forgotten(body, SHARE)}
        self.slow = next(one for one in self.ids if one not in self.forgotten)
        """The message that no consumer has come to."""

    @staticmethod
    def order(announcer: Announcer, body: bytes) -> str:
        with announcer.transaction("paid", body) as tx:
            pass
        return tx.results[0].message_id

    @property
    def done(self) -> set[str]:
        return set(self.ids) - self.forgotten - {self.slow}

    def close(self) -> None:
        self.sets.close()
        self.admin.close()
        self.process.kill()
        self.redis.kill()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    made = Shop(tmp_path_factory.mktemp("shop"))
    yield made
    made.close()


@pytest.fixture
def reconcile(
    spark: SparkSession, shop: Shop, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, dict[str, Any], str]]:
    """Runs the command: exit code, report, errors."""

    def run(*words: object, out: str = "out") -> tuple[int, dict[str, Any], str]:
        common = ["-n", shop.nameserver, "--out", tmp_path / out, "--grace", "0", "--json"]
        code = main(["pipeline", "reconcile", *map(str, [*common, *words])])
        told = capsys.readouterr()
        return code, json.loads(told.out or "{}"), told.err

    return run


def member(message_id: str) -> str:
    return str(Member(message_id, "paid"))


def named(spark: SparkSession, folder: Path) -> dict[str, set[str]]:
    """What the table says is open."""
    found: dict[str, set[str]] = {}
    for row in spark.read.parquet(str(folder / "differences")).where("goneAt is null").collect():
        found.setdefault(row["class"], set()).add(row["messageId"])
    return found


def test_lost_commits_are_named_and_made_visible(
    spark: SparkSession, shop: Shop, reconcile: Callable[..., Any], tmp_path: Path
) -> None:
    assert len(shop.forgotten) >= 2
    sets = ("--sets", shop.redis.url)
    code, _, errors = reconcile(*sets)
    assert code == 2, "nobody keeps them up to date"
    assert "not whole" in errors
    shop.sets.announce(map(member, shop.ids))
    shop.sets.mark_whole()
    shop.sets.consume(map(member, shop.done))
    code, report, errors = reconcile(*sets, "--fail-on", f"{NO_FINAL.replace(' ', '-')}=0")
    assert code == 1, errors
    assert named(spark, tmp_path / "out") == {NO_FINAL: shop.forgotten, NOT_CONSUMED: {shop.slow}}
    balance = report["balance"]
    assert (balance["halves"], balance["pending"]) == (ORDERS, len(shop.forgotten))
    assert balance["committed"] == len(shop.done) + 1

    code, report, errors = reconcile(*sets, "--dry-run")
    assert report["deeds"] == {"would be redone": len(shop.forgotten), "proposed": 1}
    code, report, errors = reconcile(*sets, "--redo", "--rate", "0")
    assert report["deeds"] == {"redone": len(shop.forgotten), "proposed": 1}
    for each in shop.forgotten:
        assert shop.admin.messages.get(each, topic="paid").message_id == each
    code, report, _ = reconcile(*sets)
    assert report["classes"] == {NOT_CONSUMED: len(shop.forgotten) + 1}
    assert named(spark, tmp_path / "out") == {NOT_CONSUMED: shop.forgotten | {shop.slow}}
    shop.sets.consume(map(member, shop.ids))
    code, report, _ = reconcile(*sets)
    assert code == 0
    assert named(spark, tmp_path / "out") == {}


def test_a_commit_whose_message_is_gone_is_for_people(
    spark: SparkSession, shop: Shop, reconcile: Callable[..., Any], tmp_path: Path
) -> None:
    sets = RedisSets(shop.redis.url, name="gone")
    sets.mark_whole()
    sets.announce([member("F" * 32), str(Member("E" * 32, "no-such-topic"))])
    code, report, errors = reconcile("--sets", shop.redis.url, "--sets-name", "gone", "--redo")
    assert code == 0, errors
    assert report["classes"] == {NO_FINAL: 2}
    assert report["deeds"] == {"proposed": 2}
    tomorrow_ms = SystemClock().now_ms() + DAY_MS
    out = tmp_path / "out"
    job = CommitReconciler(spark, sets, str(out), admin=shop.admin, now_ms=lambda: tomorrow_ms)
    assert job.run(lease=FileLease(out)).classes == {NO_FINAL: 2}
    sets.close()
    rows = spark.read.parquet(str(out / "differences")).collect()
    assert len(rows) == 2, "they stay on the day when they were found first"
    assert {row["repair"] for row in rows} == {"decide by hand"}
    assert all(row["evidence"]["lookUp"] for row in rows)


def test_a_lost_commit_is_open_until_it_is_consumed_whatever_is_read_of_the_topic(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    lost = member("F" * 32)
    now = dt.datetime.now(dt.UTC)

    def run(announced: list[str], consumed: list[str]) -> dict[str, int]:
        sets = ComputedSets(
            spark.createDataFrame([(one, now) for one in announced], ANNOUNCED),
            spark.createDataFrame([(one, None) for one in consumed], CONSUMED),
        )
        job = CommitReconciler(spark, sets, str(tmp_path), admin=shop.admin)
        return job.run(lease=FileLease(tmp_path)).open_classes

    assert run([lost], []) == {NO_FINAL: 1}
    assert run([], []) == {NO_FINAL: 1}, "retention has removed its announcement"
    assert run([lost], []) == {NO_FINAL: 1}
    assert run([], [lost]) == {}


def test_an_announcement_that_its_broker_contradicts_is_for_people(
    shop: Shop, reconcile: Callable[..., Any]
) -> None:
    assert not is_forgotten(BODIES[0], SHARE)
    with (
        escrowmq.Producer(shop.nameserver, group="orders") as producer,
        producer.transaction("paid", BODIES[0]) as tx,
    ):
        tx.rollback()
    ended = tx.results[0].message_id
    sets = RedisSets(shop.redis.url, name="contradicted")
    sets.mark_whole()
    sets.announce([member(ended)])
    words = ("--sets", shop.redis.url, "--sets-name", "contradicted")
    code, report, errors = reconcile(*words, "--redo", out="contradicted")
    assert code == 0, errors
    assert report["classes"] == {"announced-but-rolled-back": 1}
    assert report["deeds"] == {"proposed": 1}
    sets.consume([member(ended)])  # somebody has decided
    code, report, errors = reconcile(
        *words, "--fail-on", "announced-but-rolled-back=0", out="contradicted"
    )
    assert code == 0, errors
    sets.close()


def test_the_topic_of_announcements_and_the_rows_say_the_same(
    spark: SparkSession, shop: Shop, reconcile: Callable[..., Any], tmp_path: Path
) -> None:
    rows = [(one, "paid", dt.datetime.now(dt.UTC)) for one in shop.done]
    table = spark.createDataFrame(rows, "messageId string, topic string, at timestamp")
    table.write.parquet(str(tmp_path / "rows"))
    code, report, errors = reconcile(
        "--announcements", "escrow-announced", "--rows", tmp_path / "rows"
    )
    assert code == 0, errors
    assert report["balance"]["halves"] == ORDERS
    found = named(spark, tmp_path / "out")
    assert set().union(*found.values()) == shop.forgotten | {shop.slow}
    assert shop.slow in found[NOT_CONSUMED]
    code, _, errors = reconcile()
    assert code == 2
    assert "its own folder" in errors


def test_a_commit_is_young_by_the_clock_of_its_broker(spark: SparkSession, tmp_path: Path) -> None:
    with forgotten_commit(tmp_path, ahead_ms=-180_000) as (admin, message_id):
        sets = SetsOfOne(member(message_id))
        job = CommitReconciler(spark, sets, str(tmp_path / "out"), admin=admin)
        lease = FileLease(tmp_path / "out")
        assert job.run(lease=lease).classes == {"pending": 1}, "stored a moment ago"


def test_a_commit_waits_until_its_delay_is_over(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    body = next(one for one in BODIES if not is_forgotten(one, SHARE))
    with (
        escrowmq.Producer(shop.nameserver, group="orders") as producer,
        producer.transaction(escrowmq.Message("paid", body, delay=3_600)) as tx,
    ):
        pass
    sets = SetsOfOne(member(tx.results[0].message_id))

    def run(later_s: int) -> dict[str, int]:
        job = CommitReconciler(
            spark, sets, str(tmp_path), admin=shop.admin, grace_s=1,
            now_ms=lambda: SystemClock().now_ms() + later_s * 1_000,
        )  # fmt: skip
        return job.run(lease=FileLease(tmp_path)).classes

    assert run(later_s=3_000) == {"pending": 1}
    assert run(later_s=4_000) == {NO_FINAL: 1}


class SetsOfOne:
    """A commit that was announced, and that nobody consumed."""

    def __init__(self, text: str) -> None:
        self._text = text

    def announce(self, members: Iterable[str]) -> None:
        raise AssertionError

    def consume(self, members: Iterable[str]) -> None:
        raise AssertionError

    def compare(self) -> Iterator[Compared]:
        yield Compared([self._text], 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--sets", "redis://127.0.0.1:1/0"), "Connection refused"),
        (("--sets", "what"), "redis://"),
        (("--sets", "redis://127.0.0.1:1/0", "--group", "g"), "--group has no meaning"),
        (("--announcements", "escrow-announced"), "--rows"),
        (("--announcements", "no-such", "--rows", EMPTY), "no-such"),
        (("--announcements", "escrow-announced", "--rows", __file__), "Could not read footer"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    spark: SparkSession,
    reconcile: Callable[..., Any],
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
) -> None:
    if EMPTY in words:
        table = spark.createDataFrame([], "messageId string, at timestamp")
        table.write.parquet(str(tmp_path / EMPTY))
    code, _, errors = reconcile(*(tmp_path / word if word == EMPTY else word for word in words))
    assert code == 2
    assert said in errors
    assert len(errors.strip().splitlines()) == 1, errors
