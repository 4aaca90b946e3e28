"""The same runs with tables in Delta and Iceberg, in a process of their own that has the jars."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from escrowmq.net.clock import SystemClock
from tests.interop import jars, servers
from tests.interop.drivers import unique
from tests.interop.servers import Server

from . import tablejars
from .commands import Commands, run_and_die
from .injected import BROKER, Injected
from .topics import send_numbers

pytest.importorskip("pyspark")

import pyspark

from escrowmq.pipeline.formats import PACKAGES
from escrowmq.pipeline.reconcile.run import GRACE_S

RELEASE = ".".join(pyspark.__version__.split(".")[:2])
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(jars.missing_tools("java", "mvn")), reason="needs Java and Maven"),
]


class Side:
    """A process for one format, and the folder that its results are in."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.settings = {"spark.jars": tablejars.files(PACKAGES[kind][RELEASE])}
        if kind == "delta":
            self.settings["spark.databricks.delta.snapshotPartitions"] = "2"
        if kind == "iceberg":
            # Result folders are namespaces of this catalog.
            self.settings |= {
                "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
                "spark.sql.catalog.lake.type": "hadoop",
                "spark.sql.catalog.lake.warehouse": str(folder),
                "spark.sql.catalog.lake.cache-enabled": "false",
            }
        self.commands = Commands(folder / "process", kind, self.settings)

    def words(self, action: str, out: Path, *words: object) -> list[str]:
        return [action, "--format", self.kind, "--out", str(out), *map(str, words)]

    def run(self, action: str, out: Path, *words: object) -> str:
        code, told, errors = self.commands.run(*self.words(action, out, *words))
        assert code == 0, errors
        return told

    def table(self, out: Path, name: str) -> str:
        """A table of a result folder, as SQL has it."""
        return f"lake.{out.name}.{name}" if self.kind == "iceberg" else f"delta.`{out / name}`"

    def rows(self, out: Path, name: str, what: str = "*") -> list[dict[str, Any]]:
        return self.commands.sql(f"select {what} from {self.table(out, name)}")

    def columns_that_divide(self, out: Path, name: str) -> list[str]:
        if self.kind == "iceberg":
            parts = self.commands.sql(f"select partition from {self.table(out, name)}.partitions")
            return list(parts[0]["partition"])
        detail = self.commands.sql(f"describe detail {self.table(out, name)}")
        return list(detail[0]["partitionColumns"])


KINDS = [
    # Delta's runs take minutes, and are the same in every release that has it.
    pytest.param(kind, marks=pytest.mark.versions if kind == "iceberg" else ())
    for kind in PACKAGES
    if RELEASE in PACKAGES[kind]
]


@pytest.fixture(scope="module", params=KINDS)
def side(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Side]:
    made = Side(request.param, tmp_path_factory.mktemp(request.param))
    yield made
    made.commands.stop()


@pytest.fixture
def out(side: Side) -> Path:
    """A result folder of this test alone."""
    return side.folder / unique("out").replace("-", "_")


def stored(folder: Path) -> tuple[Injected, list[str]]:
    """A store with transactions, some of them wrong, and the words that name it."""
    injected = Injected(folder, count=300, now_ms=SystemClock().now_ms(), segment_size=8 << 20)
    return injected, ["--store", f"{BROKER}={folder}", "--json"]


def reconciled(folder: Path) -> tuple[Injected, list[str]]:
    """The same, for a run that finds the same however much later it is."""
    injected, words = stored(folder)
    until_ms = injected.now_ms - int(GRACE_S * 1000)
    return injected, [*words, "--until", str(until_ms), "--overdue", "3600"]


def expected(injected: Injected) -> set[tuple[str, str]]:
    """What a run without rows and groups finds."""
    unseen = ("message-without-row", "row-without-message", "not-consumed")
    return {each for each in injected.expected if each[0] not in unseen}


def test_a_second_run_changes_nothing(side: Side, out: Path, tmp_path: Path) -> None:
    injected, words = reconciled(tmp_path / "store")
    seen = []
    for number in (1, 2):
        report = json.loads(side.run("reconcile", out, *words))
        assert report["run"] == number
        seen.append(side.rows(out, "differences", "class, messageId, firstRun, goneAt, day"))
    assert {(row["class"], row["messageId"]) for row in seen[0]} == expected(injected)
    assert len(seen[0]) == len(expected(injected))
    assert sorted(map(repr, seen[1])) == sorted(map(repr, seen[0]))
    assert sorted(row["run"] for row in side.rows(out, "runs", "run")) == [1, 2]
    assert side.columns_that_divide(out, "differences") == ["day"]
    assert side.columns_that_divide(out, "runs") == ["day", "run"]


def test_a_run_that_was_killed_is_finished(side: Side, out: Path, tmp_path: Path) -> None:
    injected, words = reconciled(tmp_path / "store")
    command = side.words("reconcile", out, *words)
    for table in ("differences", "runs"):
        run_and_die(tmp_path, side.kind, side.settings, command, before=table)
        assert (out / "state" / "differences.ready").is_dir()
        (out / "lease").unlink()  # a dead owner's lease goes by itself, after a minute
    assert json.loads(side.run("reconcile", out, *words))["run"] == 1
    rows = side.rows(out, "differences")
    assert {(row["class"], row["messageId"]) for row in rows} == expected(injected)
    assert len(rows) == len(expected(injected))
    assert {row["firstRun"] for row in rows} == {1}
    assert len(side.rows(out, "runs")) == 1


def test_the_funnel_goes_on_where_it_was(side: Side, out: Path, tmp_path: Path) -> None:
    injected, words = stored(tmp_path / "store")
    first, second = [
        [json.loads(line) for line in side.run("funnel", out, *words).splitlines()]
        for _ in range(2)
    ]
    assert second == first
    assert sum(row["expired"] for row in first) == injected.fates["expired"]
    whole = len(side.rows(out, "transactions"))
    assert whole == sum(row["started"] for row in first)
    assert side.columns_that_divide(out, "transactions") == ["day"]


def exported(side: Side, server: Server, out: Path, topic: str, *words: object) -> str:
    return side.run("export", out, "-n", server.nameserver, *words, topic)


def numbers(side: Side, out: Path) -> list[int]:
    rows = side.rows(out, "messages", "cast(body as string) as n, topic, day")
    assert {row["day"] is None for row in rows} <= {False}
    return sorted(int(row["n"]) for row in rows)


def test_an_export_adds_each_message_once(side: Side, server: Server, out: Path) -> None:
    topic = servers.new_topic(server, unique("lake"))
    send_numbers(server, topic, range(10))
    assert exported(side, server, out, topic) == "10 messages added\n"
    send_numbers(server, topic, range(10, 15))
    assert exported(side, server, out, topic) == "5 messages added\n"
    assert numbers(side, out) == [*range(15)]
    assert side.columns_that_divide(out, "messages") == ["topic", "day"]

    # As a process leaves it that was killed after the table had the rows, and before the
    # checkpoint said so.
    forget_last_commit(out / "_checkpoint")
    send_numbers(server, topic, range(15, 17))
    exported(side, server, out, topic)
    assert numbers(side, out) == [*range(17)]


def forget_last_commit(checkpoint: Path) -> None:
    commits = checkpoint / "commits"
    last = max((path for path in commits.iterdir() if path.name.isdecimal()),
               key=lambda path: int(path.name))  # fmt: skip
    last.unlink()
    (commits / f".{last.name}.crc").unlink()


def test_a_range_is_a_table_of_its_own(side: Side, server: Server, out: Path) -> None:
    topic = servers.new_topic(server, unique("lake"))
    send_numbers(server, topic, range(10))
    for _ in range(2):
        exported(side, server, out, topic, "--from", "earliest", "--to", "latest", "--tags", "a")
        assert numbers(side, out) == [*range(0, 10, 2)]
    assert side.columns_that_divide(out, "messages") == ["topic", "day"]


def test_tables_stand_in_a_catalog(side: Side, server: Server, out: Path, tmp_path: Path) -> None:
    if side.kind != "iceberg":
        pytest.skip("only Iceberg's tables stand in a catalog")
    topic = servers.new_topic(server, unique("lake"))
    send_numbers(server, topic, range(4))
    kind = f"iceberg:lake.{out.name}"
    words = ["--format", kind, "-n", server.nameserver, topic]
    assert side.run("export", tmp_path / "state", *words) == "4 messages added\n"
    assert numbers(side, out) == [*range(4)]
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["_checkpoint"]
    code, _, errors = side.commands.run(*side.words("export", tmp_path / "b", *words, "--to",
                                                    "latest"))  # fmt: skip
    assert (code, errors.count("\n")) == (2, 1)
    assert "a range would replace it" in errors
    words[1] += "_range"
    side.run("export", tmp_path / "b", *words, "--to", "latest")
    whole = side.commands.sql(f"select * from lake.{out.name}_range.messages")
    assert len(whole) == 4

    _, store = stored(tmp_path / "store")
    side.run("reconcile", tmp_path / "runs", *store, "--format", kind)
    assert len(side.rows(out, "runs")) == 1
    code, _, errors = side.commands.run(
        *side.words("reconcile", tmp_path / "x", *store, "--format", "iceberg:nowhere.mq")
    )
    assert (code, errors.count("\n")) == (2, 1)
    assert "no catalog 'nowhere'; define it with --conf spark.sql.catalog.nowhere=" in errors
