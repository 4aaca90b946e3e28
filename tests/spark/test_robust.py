"""What fails around a query is waited for, or told; accounts and TLS let through who may."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import escrowmq
from tests.harness.certificates import OPENSSL, Authority
from tests.interop.drivers import unique
from tests.interop.process import until
from tests.interop.servers import Server
from tests.sdk.parts import Cluster

from .test_source import failure
from .topics import copied_numbers, numbers_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECRET = "secret-7-of-them"


@pytest.fixture
def parts(tmp_path: Path) -> Any:
    cluster = Cluster(tmp_path / "cluster", fileReservedTime=72)
    yield cluster
    cluster.kill()


def test_a_broker_that_is_killed_and_comes_back_stops_no_stream(
    spark: SparkSession, parts: Cluster, tmp_path: Path
) -> None:
    topic = unique("restarts")
    with escrowmq.Admin(parts.nameserver) as admin:
        admin.topics.create(topic, queues=4)

    def send(numbers: range) -> None:
        with escrowmq.Producer(parts.nameserver, group="g", timeout_ms=20_000) as producer:
            for number in numbers:
                producer.send(topic, str(number).encode())

    reader = spark.readStream.format("escrowmq").option("nameServer", parts.nameserver)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    writer = reader.load().selectExpr("cast(body as string) as n").writeStream.format("text")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start(str(tmp_path / "out"))
    try:
        send(range(100))
        until("the first are there", lambda: copied_numbers(tmp_path) == [*range(100)])
        parts.brokers[0].kill()
        parts.brokers[0].start()
        parts.wait_registered(1)
        send(range(100, 150))
        until("all are there", lambda: copied_numbers(tmp_path) == [*range(150)], within_s=60)
        assert query.exception() is None
    finally:
        query.stop()


def test_rows_wait_for_a_cluster_that_is_starting(
    parts: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    pa = pytest.importorskip("pyarrow")
    from escrowmq.pipeline.sink.acknowledged_sink import send_plain
    from escrowmq.pipeline.sink.options import parse_sink_options

    topic = unique("waits")
    with escrowmq.Admin(parts.nameserver) as admin:
        admin.topics.create(topic, queues=2)
    options = {"nameServer": parts.nameserver, "topic": topic, "sendTimeoutMs": "300ms"}
    sink = parse_sink_options(options, is_stream=False, columns=["body"])
    batch = pa.record_batch([pa.array([str(number) for number in range(100)])], names=["body"])
    parts.brokers[0].kill()
    parts.names.kill()
    with ThreadPoolExecutor() as pool:
        written = pool.submit(send_plain, [batch], sink)
        until("it has failed once", lambda: "sending again" in caplog.text)
        parts.names.start()
        parts.brokers[0].start()
        assert written.result(timeout=60) == 100
    consumer = escrowmq.Consumer(
        parts.nameserver, group=unique("g"), topic=topic, consume_from="first"
    )
    missing = {*range(100)}
    with consumer:
        for message in consumer:  # a row whose answer came too late is there twice
            missing.discard(int(message.body))
            if not missing:
                break


def reading(spark: SparkSession, server: Server, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("escrowmq").option("nameServer", server.nameserver)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.option("subscribe", topic).load()


def test_accounts(
    spark: SparkSession,
    own_server: Callable[..., Server],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accounts = tmp_path / "accounts"
    accounts.mkdir()
    (accounts / "plain_acl.yml").write_text(
        f"accounts:\n"
        f"- {{accessKey: operator, secretKey: {SECRET}, admin: true}}\n"
        f"- {{accessKey: reader-only, secretKey: {SECRET}, defaultTopicPerm: SUB, "
        f"defaultGroupPerm: SUB}}\n"
    )
    server = own_server(aclEnable=True, escrowAclFolder=accounts)
    operator = escrowmq.Credentials("operator", SECRET)
    topic = unique("guarded")
    with escrowmq.Admin(server.nameserver, credentials=operator) as admin:
        admin.topics.create(topic, queues=2)
    (tmp_path / "good").write_text(SECRET)
    (tmp_path / "bad").write_text("another")
    account = {"accessKey": "operator", "secretKeyFile": str(tmp_path / "good")}
    frame = spark.range(20).selectExpr("cast(id as string) as body")
    for more in ({}, {"transactional": "true", "producerGroup": "exact"}):
        writer = frame.write.format("escrowmq").option("nameServer", server.nameserver)
        for name, value in {**account, **more, "topic": topic}.items():
            writer = writer.option(name, value)
        writer.mode("append").save()
    reader = {"accessKey": "reader-only", "secretKeyFile": str(tmp_path / "good")}
    assert numbers_of(reading(spark, server, topic, **reader)) == sorted([*range(20)] * 2)
    wrong = {"accessKey": "operator", "secretKeyFile": str(tmp_path / "bad")}
    text = failure(lambda: reading(spark, server, topic, **wrong).collect())
    assert "PermissionDenied" in text
    text = failure(lambda: reading(spark, server, topic).collect())
    assert "PermissionDenied" in text


@pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificates")
def test_tls(spark: SparkSession, own_server: Callable[..., Server], tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    shown, own = authority.sign("server"), authority.sign("client")
    file = tmp_path / "tls.properties"
    file.write_text(
        "tls.server.need.client.auth=require\n"
        "tls.server.authClient=true\n"
        f"tls.server.trustCertPath={authority.root}\n"
        f"tls.server.certPath={shown.certificate}\n"
        f"tls.server.keyPath={shown.key}\n"
        f"tls.client.certPath={own.certificate}\n"
        f"tls.client.keyPath={own.key}\n"
        "tls.client.authServer=true\n"
        f"tls.client.trustCertPath={authority.root}\n"
    )
    server = own_server(**{"tls.server.mode": "enforcing", "tls.config.file": file})
    topic = unique("secret")
    whole = {
        "useTls": "true",
        "tlsCaFile": str(authority.root),
        "tlsCertFile": str(own.certificate),
        "tlsKeyFile": str(own.key),
    }
    frame = spark.range(20).selectExpr("cast(id as string) as body")
    writer = frame.write.format("escrowmq").option("nameServer", server.nameserver)
    for name, value in whole.items():
        writer = writer.option(name, value)
    writer.option("topic", topic).mode("append").save()
    assert numbers_of(reading(spark, server, topic, **whole)) == [*range(20)]
    options = {"fetchOffset.numRetries": "0", "useTls": "true"}
    text = failure(lambda: reading(spark, server, topic, **options).collect())
    assert "certificate" in text
    missing = whole | {"tlsKeyFile": str(tmp_path / "none")}
    text = failure(lambda: reading(spark, server, topic, **missing).collect())
    assert "every executor need them" in text
