"""A broker of RocketMQ beside one of ours at one name server: what each can tell is used."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import escrowmq
from escrowmq.cli.main import main
from tests.interop import jars
from tests.interop.process import until
from tests.interop.servers import JavaBroker

from .clusters import OWN_TIME_MS, Cluster, Shop, by_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
pytestmark = [
    pytest.mark.interop,
    pytest.mark.long,
    pytest.mark.skipif(
        bool(jars.missing_tools("java", "mvn", "cc")), reason="needs Java, Maven and a C compiler"
    ),
]
OURS, THEIRS = "broker-a", "broker-j"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "cluster", OURS)
    java = None
    try:
        java = JavaBroker(
            tmp_path / "java", made.nameserver, brokerName=THEIRS, transactionTimeOut=OWN_TIME_MS
        )
        yield made
    finally:
        if java is not None:
            java.kill()
        made.close()


def test_ours_are_parked_and_asked_and_theirs_are_proposed(
    spark: SparkSession, cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shop = Shop(cluster.nameserver, "paid", group="orders")
    cluster.new_topic("paid", THEIRS)
    with escrowmq.Admin(cluster.nameserver) as admin:
        # No rollbacks: theirs keeps op records back for some seconds, and a grace is for that.
        shop.send("committed", "open", rounds=4)
        ours = {key for name, key in shop.ids["open"] if name == OURS}
        theirs = {key for name, key in shop.ids["open"] if name == THEIRS}
        assert len(ours) == len(theirs) == 2
        parked, waiting = sorted(ours)
        admin.transactions.check(parked)
        until("it is parked", lambda: list(admin.transactions.pending(state="parked")))
    with escrowmq.Consumer(cluster.nameserver, group="mailer", topic="paid") as consumer:
        for _, _ in zip(range(4), consumer, strict=False):
            pass
    out = tmp_path / "out"
    words = ["pipeline", "reconcile", "-n", cluster.nameserver, "--out", str(out), "--json",
             "--grace", "0", "--overdue", "0", "--group", "mailer"]  # fmt: skip

    def found() -> set[tuple[str, str, str]]:
        table = spark.read.parquet(str(out / "differences")).where("goneAt is null")
        return by_broker(table)

    of_theirs = {(THEIRS, "overdue", key) for key in theirs}
    assert main([*words, "--redo"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["balance"]["halves"], report["balance"]["committed"]) == (8, 4)
    assert found() == of_theirs | {(OURS, "parked", parked), (OURS, "overdue", waiting)}
    assert report["deeds"] == {"redone": 1, "proposed": 3}
    assert main(words) == 0
    assert found() == of_theirs | {(OURS, "parked", key) for key in ours}
