"""How far groups are, in messages and in time."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.base.measure import Sample
from escrowmq.broker.figures import consumer_gauges
from tests.harness.exchange import Exchange

ONE = ("T", "readers", "false")


def figures(exchange: Exchange) -> dict[tuple[str, ...], float]:
    return {
        (family.name, *sample.of): sample.value
        for family in exchange.core.measure(exchange.now_ms)
        for sample in family.samples
        if isinstance(sample, Sample)
    }


def written(count: int) -> tuple[Exchange, Any]:
    """A message a second in one queue."""
    exchange = Exchange()
    client = exchange.connect()
    for n in range(count):
        client.send("T", b"%d" % n, queue_id=0)
        exchange.now_ms += 1_000
    return exchange, client


def test_lag_is_told_in_messages_and_in_time() -> None:
    exchange, _ = written(5)
    offsets, now_ms = exchange.core.broker.offsets, exchange.now_ms
    offsets.commit("readers", "T", 0, 2, now_ms)
    offsets.note_pulled("readers", "T", 0, 4)
    found = figures(exchange)
    assert found["rocketmq_consumer_lag_messages", *ONE] == 3
    assert found["rocketmq_consumer_inflight_messages", *ONE] == 2
    assert found["rocketmq_consumer_ready_messages", *ONE] == 1
    assert found["rocketmq_consumer_lag_latency_milliseconds", *ONE] == 3_000
    assert found["rocketmq_consumer_queueing_latency_milliseconds", *ONE] == 1_000
    assert found["escrowmq_queue_lag_messages", "T", "readers", "0"] == 3
    offsets.commit("readers", "T", 0, 5, now_ms)
    found = figures(exchange)
    assert found["rocketmq_consumer_lag_latency_milliseconds", *ONE] == 0
    assert found["rocketmq_consumer_inflight_messages", *ONE] == 0
    assert ("escrowmq_queue_lag_messages", "T", "readers", "0") not in found


def test_an_offset_outside_of_its_queue_is_no_negative_lag() -> None:
    exchange, _ = written(2)
    exchange.core.broker.offsets.commit("readers", "T", 0, 9, exchange.now_ms)
    exchange.core.broker.offsets.note_pulled("readers", "T", 0, 12)
    found = figures(exchange)
    for name in ("lag", "inflight", "ready"):
        assert found[f"rocketmq_consumer_{name}_messages", *ONE] == 0
    assert found["rocketmq_consumer_lag_latency_milliseconds", *ONE] == 0


def test_of_many_queues_those_that_lag_most_have_a_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_gauges, "QUEUES_MAX", 2)
    exchange = Exchange()
    client = exchange.connect()
    for queue_id in range(4):
        for n in range(queue_id + 1):
            client.send("T", b"%d" % n, queue_id=queue_id)
    for group in ("a", "b"):
        for queue_id in range(4):
            exchange.core.broker.offsets.commit(group, "T", queue_id, 0, exchange.now_ms)
    exchange.core.broker.offsets.commit("b", "T", 3, 4, exchange.now_ms)
    found = figures(exchange)
    lags = {key[1:]: value for key, value in found.items() if key[0].startswith("escrowmq_queue")}
    assert lags == {("T", "a", "3"): 4, ("T", "b", "2"): 3}
