"""Figures of topics and groups that are deleted go with them."""

from __future__ import annotations

import json

from escrowmq.base.codes import Request
from escrowmq.base.measure import MetricFamily, Sample
from tests.harness.exchange import COMMIT, ROLLBACK, Exchange, Half
from tests.harness.exchange import Caller as Client


def pop(client: Client, now_ms: int) -> None:
    ext = {
        "consumerGroup": "G", "topic": "T", "queueId": "-1", "maxMsgNums": "1",
        "invisibleTime": "10000", "pollTime": "0", "bornTime": str(now_ms), "initMode": "0",
        "order": "false", "exp": "*", "expType": "TAG",
    }  # fmt: skip
    assert client.ask(Request.POP_MESSAGE, ext).code == 0


def used() -> tuple[Exchange, Client, Half]:
    """A broker whose topic T and groups G and PG did all that is counted; with a pending half."""
    exchange = Exchange()
    exchange.create_topic("T")
    client = exchange.connect()
    client.heartbeat(producer="PG", consumer="G", topics={"T": "*"})
    for _ in range(3):
        client.send("T", b"x")
    client.send("T", b"x", DELAY="1")
    client.send("T", b"x", TIMER_DELAY_SEC="2")
    client.send("T", b"x", TIMER_DELAY_SEC="3600")
    for outcome in (COMMIT, ROLLBACK):
        client.end(client.prepare("T", b"x", group="PG"), outcome)
    half = client.prepare("T", b"x", group="PG")
    exchange.advance(3_000)
    client.pull("T", 0, group="G")
    pop(client, exchange.now_ms)
    exchange.advance(15_000)
    pop(client, exchange.now_ms)
    return exchange, client, half


def delete(exchange: Exchange, client: Client) -> Client:
    exchange.leave(client)
    client = exchange.connect()
    for topic in ("T", "%RETRY%G", "%RETRY%G_T"):
        assert client.ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": topic}).code == 0
    ext = {"groupName": "G", "cleanOffset": "true"}
    assert client.ask(Request.DELETE_SUBSCRIPTIONGROUP, ext).code == 0
    return client


def names_of(families: list[MetricFamily]) -> dict[str, set[str]]:
    """The families that name T or G."""
    found: dict[str, set[str]] = {}
    for family in families:
        for sample in family.samples:
            if marks := {label for label in sample.of if label in ("T", "G", "%RETRY%G_T")}:
                found.setdefault(family.name, set()).update(marks)
    return found


def test_figures_of_deleted_topics_and_groups_go() -> None:
    exchange, client, half = used()
    assert len(names_of(exchange.core.measure(exchange.now_ms))) > 15
    client.end(half, COMMIT)
    delete(exchange, client)
    exchange.advance(1_000)
    left = names_of(exchange.core.measure(exchange.now_ms))
    assert left.keys() <= {"rocketmq_timing_messages"}, left  # one waits
    exchange.advance(3_600_000)
    assert names_of(exchange.core.measure(exchange.now_ms)) == {}
    file = json.loads(exchange.disk.read("config/transactionMetrics") or b"")
    assert file["transactionCount"] == {}


def test_a_half_that_outlives_its_topic_is_counted_until_it_ends() -> None:
    exchange, client, half = used()
    client = delete(exchange, client)
    families = {family.name: family for family in exchange.core.measure(exchange.now_ms)}
    (sample,) = families["rocketmq_half_messages"].samples
    assert sample == Sample(("T",), 1)
    client.end(half, ROLLBACK)
    meter = exchange.core.transactions.engine.halves.meter
    assert (meter.pending, meter.rolled_back, meter.groups) == ({}, {}, {})
    exchange.advance(3_600_000)
    assert names_of(exchange.core.measure(exchange.now_ms)) == {}
