"""What is said about tables that cannot be written here, and tables that are not to be mixed up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop import servers
from tests.interop.drivers import unique
from tests.interop.servers import Server

from .injected import BROKER, Injected
from .topics import send_numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

import pyspark
from pyspark.errors import PySparkException

from escrowmq.cli.main import main
from escrowmq.errors import UsageError
from escrowmq.pipeline.formats import (
    FORMATS,
    PACKAGES,
    TableFormat,
    explain_jar_errors,
    parse_format,
)
from escrowmq.pipeline.reconcile.progress import RunProgress
from escrowmq.pipeline.reconcile.results import ResultTables, RunRow
from escrowmq.pipeline.reconcile.sum_check import Balance

RELEASE = ".".join(pyspark.__version__.split(".")[:2])
WITH_JARS = [kind for kind in PACKAGES if RELEASE in PACKAGES[kind]]
WITHOUT_JARS = [kind for kind in PACKAGES if RELEASE not in PACKAGES[kind]]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("orc", "one of parquet, delta, iceberg, iceberg:CATALOG.NAMESPACE is expected"),
        ("parquet:lake.mq", "only tables of Iceberg can be in a catalog"),
        ("iceberg:lake", "a catalog and a namespace in it are expected, as iceberg:lake.mq"),
        ("iceberg:lake.m-q", "a catalog and a namespace"),
        ("iceberg:", "a catalog and a namespace"),
    ],
)
def test_formats_that_do_not_exist_are_told(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse_format(text)


def test_formats_without_jars_for_this_release_are_told() -> None:
    for kind in WITHOUT_JARS:
        with pytest.raises(UsageError, match=r"has no jars that run with PySpark 4\..*; ins"):
            parse_format(kind)
    assert [parse_format(kind) for kind in ("parquet", *WITH_JARS)] == [
        TableFormat(kind) for kind in ("parquet", *WITH_JARS)
    ]
    assert set(WITH_JARS + WITHOUT_JARS) == set(FORMATS) - {"parquet"}


@pytest.fixture
def lent(spark: SparkSession) -> Iterator[None]:
    """Takes back what a command has set in the session of these tests."""
    yield
    spark.conf.unset("spark.sql.catalog.spark_catalog")


@pytest.mark.usefixtures("lent")
@pytest.mark.parametrize("kind", WITH_JARS)
def test_jars_that_are_missing_are_one_line_that_names_them(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Injected(tmp_path / "store", count=30)
    common = ["--out", str(tmp_path / "out"), "--format", kind]
    for action in ("reconcile", "funnel"):
        words = ["--store", f"{BROKER}={tmp_path / 'store'}"]
        assert main(["pipeline", action, *common, *words]) == 2
        errors = capsys.readouterr().err
        assert f"no {kind} jars" in errors
        assert f"--conf spark.jars.packages={PACKAGES[kind][RELEASE]}" in errors
        assert errors.count("\n") == 1


@pytest.mark.skipif(not WITH_JARS, reason="no format has jars for this release")
def test_jars_of_another_release_are_told() -> None:
    said = "java.lang.NoSuchMethodError: 'java.lang.Object org.apache.spark.X.y()'"
    with (
        pytest.raises(UsageError, match=r"jars that do not fit PySpark 4.*\(NoSuchMethodError\)"),
        explain_jar_errors(TableFormat(WITH_JARS[0])),
    ):
        raise PySparkException(said)
    with pytest.raises(PySparkException), explain_jar_errors(TableFormat("parquet")):
        raise PySparkException(said)


def test_jobs_do_not_go_on_from_each_others_runs(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_halves = RunRow(
        started_ms=1,
        since_ms=0,
        balance=Balance(halves=0, committed=0, rolled_back=0, pending=0, parked=0, expired=0),
        classes={},
        progress=RunProgress(run=1),
    )
    ResultTables(spark, str(tmp_path)).commit(of_halves)
    log = tmp_path / "commitlog" / f"{0:020d}"
    log.parent.mkdir()
    log.write_bytes(bytes(4096))
    words = ["pipeline", "funnel", "--store", str(tmp_path), "--out", str(tmp_path)]
    assert main(words) == 2
    errors = capsys.readouterr().err
    assert "has runs over halves, not over transactions; give each its own folder" in errors
    assert errors.count("\n") == 1


def export_of(server: Server, folder: Path, numbers: Iterable[int], **settings: int) -> list[str]:
    """The command that exports a new topic with these numbers."""
    topic = servers.new_topic(server, unique("lake"), **settings)
    send_numbers(server, topic, numbers)
    return ["pipeline", "export", "-n", server.nameserver, "--out", str(folder), topic]


def test_a_range_does_not_replace_what_exports_add_to(
    spark: SparkSession, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = export_of(server, tmp_path, range(3))
    assert main(words) == 0
    capsys.readouterr()
    assert main([*words, "--to", "latest"]) == 2
    assert "a range would replace it; name another folder" in capsys.readouterr().err
    assert spark.read.parquet(str(tmp_path / "messages")).count() == 3


def test_an_export_does_not_add_to_a_range(
    spark: SparkSession, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rows of the range were there twice, and Spark no longer read the first ones."""
    words = export_of(server, tmp_path, range(5), queues=1)
    assert main([*words, "--to", "latest"]) == 0
    assert main(words) == 2
    assert "is a range, and an export without an end would add its rows again" in (
        capsys.readouterr().err
    )
    assert main([*words, "--to", "latest"]) == 0, "a range is written again"
    assert spark.read.parquet(str(tmp_path / "messages")).count() == 5


@pytest.mark.long
def test_an_export_of_many_batches_counts_them_all(
    spark: SparkSession, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = export_of(server, tmp_path, range(104), queues=1)
    assert main([*words, "--option", "maxOffsetsPerTrigger=1"]) == 0
    assert capsys.readouterr().out == "104 messages added\n"
