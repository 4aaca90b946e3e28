"""Runs over generated stores: everything that is wrong is named, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

from escrowmq.pipeline.reconcile.lease import FileLease

from .injected import Injected, named, reconciler


@pytest.mark.parametrize("count", [2_000, pytest.param(20_000, marks=pytest.mark.long)])
def test_exactly_the_injected_differences_are_named(
    spark: SparkSession, tmp_path: Path, count: int
) -> None:
    injected = Injected(tmp_path / "store", count=count)
    out = tmp_path / "out"
    job = reconciler(spark, injected, out)
    report = job.run(lease=FileLease(out))
    assert injected.wrong(named(job.results.differences.read())) == []
    fates = injected.fates
    assert (report.balance.committed, report.balance.rolled_back) == (
        fates["committed"], fates["rolled back"],
    )  # fmt: skip
    assert (report.balance.pending, report.balance.expired) == (
        fates["pending"], fates["expired"],
    )  # fmt: skip
    assert set(report.odd.values()) == {0}

    before = job.results.differences.read().drop("lastSeen", "lastRun").collect()
    again = job.run(lease=FileLease(out))
    after = job.results.differences.read().drop("lastSeen", "lastRun").collect()
    assert sorted(map(repr, after)) == sorted(map(repr, before))
    assert again.run == report.run + 1
    assert again.open_classes == report.open_classes == report.classes
    assert "two-finals" in report.classes
    assert "two-finals" not in again.classes, "older than what a second run reads"
