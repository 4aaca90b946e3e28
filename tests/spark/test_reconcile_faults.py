"""Brokers that are away, stores that are damaged, topics that are gone: told, never passed over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import escrowmq
from tests.interop import servers
from tests.interop.process import until
from tests.interop.servers import Server

from .injected import BROKER, Injected, reconciler

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

from escrowmq.errors import EscrowMQError, RouteMissing, UsageError
from escrowmq.net.clock import SystemClock
from escrowmq.pipeline.reconcile.lease import FileLease
from escrowmq.pipeline.reconcile.live_messages import BrokerMessages
from escrowmq.pipeline.reconcile.run import Reconciler, ReconcileSettings, RunReport
from escrowmq.pipeline.reconcile.stored_messages import FileMessages

SETTINGS = ReconcileSettings(grace_s=0, overdue_s=0)


def run(spark: SparkSession, server: Server, out: Path, *, skipped: list[str]) -> RunReport:
    with escrowmq.Admin(server.nameserver) as admin:
        source = BrokerMessages(
            spark, {"nameServer": server.nameserver}, admin=admin, skipped=skipped
        )
        return Reconciler(spark, source, str(out), settings=SETTINGS).run(lease=FileLease(out))


@pytest.mark.long
def test_a_broker_that_was_away_is_gone_on_with_and_a_topic_that_is_gone_is_told(
    spark: SparkSession, own_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = own_server(transactionTimeOut=3_600_000)
    out = tmp_path / "out"
    for topic in ("paid", "shipped"):
        servers.new_topic(server, topic)
        with escrowmq.Producer(server.nameserver, group=topic) as producer:
            for is_open in (True, False):
                with producer.transaction(topic, b"x") as tx:
                    if is_open:
                        tx.unknown()
    clock = SystemClock()
    stored_ms = clock.now_ms()
    until("they are a second old", lambda: clock.now_ms() > stored_ms + 1_500)
    first = run(spark, server, out, skipped=[])
    assert first.classes == {"overdue": 2}
    assert (first.balance.halves, first.balance.committed) == (4, 2)

    server.kill()
    with pytest.raises((EscrowMQError, PySparkException)):
        run(spark, server, out, skipped=[])
    server._parts.clear()
    server.start()
    with escrowmq.Admin(server.nameserver) as admin:
        for item in list(admin.transactions.pending(topic="paid")):
            admin.transactions.commit(item.message_id, topic="paid")
        admin.topics.delete("shipped")
    with pytest.raises(RouteMissing, match="'shipped', for which there are half messages"):
        run(spark, server, out, skipped=[])
    second = run(spark, server, out, skipped=["shipped"])
    assert second.run == first.run + 1
    assert second.classes == {}
    assert second.balance.committed == 2
    rows = spark.read.parquet(str(out / "differences")).collect()
    assert {row["topic"]: row["goneAt"] is not None for row in rows} == {
        "paid": True,
        "shipped": False,
    }, "what is left out is not judged"


def test_a_damaged_store_is_told(spark: SparkSession, tmp_path: Path) -> None:
    injected = Injected(tmp_path / "store", count=60)
    file = next((tmp_path / "store" / "commitlog").iterdir())
    with file.open("r+b") as log:
        log.seek(5_000)
        log.write(b"\xff" * 40)
    job = reconciler(spark, injected, tmp_path / "out")
    with pytest.raises(PySparkException, match="CorruptRecord"):
        job.run(lease=FileLease(tmp_path / "out"))
    assert job.results.runs.read().count() == 0


def test_a_folder_without_a_store_is_told(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no log"):
        FileMessages(spark, {BROKER: str(tmp_path)})
