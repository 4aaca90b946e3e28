"""What Apache RocketMQ's own broker leaves behind: copies of halves with every check, op records
that tell no outcome, and no op record at all for what is given up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import escrowmq
from tests.interop import jars, servers
from tests.interop.drivers import unique
from tests.interop.process import until
from tests.interop.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

from escrowmq.client.core.routes import MessageQueue
from escrowmq.errors import EscrowMQError
from escrowmq.pipeline.reconcile.lease import FileLease
from escrowmq.pipeline.reconcile.live_messages import BrokerMessages, TransactionSource
from escrowmq.pipeline.reconcile.run import Reconciler, ReconcileSettings
from escrowmq.pipeline.reconcile.stored_messages import FileMessages
from escrowmq.pipeline.reconcile.sum_check import Balance

pytestmark = [
    pytest.mark.interop,
    pytest.mark.long,
    pytest.mark.skipif(
        bool(jars.missing_tools("java", "mvn", "cc")), reason="needs Java, Maven and a C compiler"
    ),
]
SETTINGS = {
    "transactionCheckInterval": 4_000,
    "transactionTimeOut": 1_000,
    "transactionCheckMax": 2,
}
EXPECTED = Balance(halves=6, committed=3, rolled_back=2, pending=0, parked=0, expired=1)


def has_given_up(admin: escrowmq.Admin) -> bool:
    try:
        queue = MessageQueue("TRANS_CHECK_MAX_TIME_TOPIC", "broker-a", 0)
        return bool(admin.messages.at(queue, 0))
    except EscrowMQError:
        return False


def test_its_broker_and_its_files_are_understood(
    spark: SparkSession, own_server: Callable[..., Server], tmp_path: Path
) -> None:
    java = own_server("java", **SETTINGS)
    topic = servers.new_topic(java, unique("paid"))
    with escrowmq.Producer(java.nameserver, group=unique("orders")) as producer:
        for number in range(6):
            with producer.transaction(topic, str(number).encode()) as tx:
                if number in (3, 4):
                    tx.rollback()
                if number == 5:
                    tx.unknown()
    with escrowmq.Admin(java.nameserver) as admin:
        until("the last one is given up", lambda: has_given_up(admin), within_s=90)
        options = {"nameServer": java.nameserver}
        balances = [judged(spark, BrokerMessages(spark, options, admin=admin), tmp_path / "live")]
    java.stop()
    files = FileMessages(spark, {"broker-a": str(java.store)})
    balances.append(judged(spark, files, tmp_path / "files"))
    assert balances == [EXPECTED, EXPECTED]


def judged(spark: SparkSession, source: TransactionSource, out: Path) -> Balance:
    settings = ReconcileSettings(grace_s=0, overdue_s=600)
    report = Reconciler(spark, source, str(out), settings=settings).run(lease=FileLease(out))
    assert report.classes == {}
    assert set(report.odd.values()) == {0}
    return report.balance
