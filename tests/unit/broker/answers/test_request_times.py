"""How long requests took, under RocketMQ's names."""

from __future__ import annotations

import math

import pytest

from escrowmq.base.measure import Distribution
from escrowmq.base.store_settings import StoreSettings
from escrowmq.broker.answers.request_times import BOUNDS_MS
from tests.harness.exchange import Exchange

Labels = tuple[str, ...]


def told(exchange: Exchange) -> dict[Labels, Distribution]:
    name = "rocketmq_rpc_latency_milliseconds"
    (family,) = [f for f in exchange.core.measure(exchange.now_ms) if f.name == name]
    assert family.kind == "histogram"
    assert family.labels == (
        "protocol_type", "request_code", "response_code", "is_long_polling", "result"
    )  # fmt: skip
    return {s.of: s for s in family.samples if isinstance(s, Distribution)}


def of(
    request: str, response: str = "success", *, held: str = "false", result: str = "success"
) -> Labels:
    return ("remoting", request, response, held, result)


def test_what_is_answered_at_once_took_no_time() -> None:
    exchange = Exchange()
    exchange.create_topic("T", 1)
    caller = exchange.connect()
    for _ in range(3):
        caller.send("T")
    caller.ask(9_999)
    caller.ask(8_888)
    caller.begin_send("T", is_one_way=True)
    found = told(exchange)
    sent = found[of("send_message_v2")]
    assert [bound for bound, _ in sent.buckets] == [*map(float, BOUNDS_MS), math.inf]
    assert [count for _, count in sent.buckets] == [3] * 10
    assert sent.sum == 0
    assert found[of("other", "request_code_not_supported")].buckets[-1][1] == 2
    assert found[of("send_message_v2", result="oneway")].buckets[-1][1] == 1


def test_a_request_for_messages_that_waited_was_a_long_poll() -> None:
    exchange = Exchange()
    exchange.create_topic("T", 1)
    caller = exchange.connect()
    caller.begin_pull("T", hold_ms=5_000)
    exchange.advance(250)
    caller.send("T")
    assert told(exchange)[of("pull_message", held="true")].sum == 250


@pytest.mark.parametrize(("wait_ms", "bucket"), [(1, 0), (2, 1), (100, 5), (101, 6), (4_000, 9)])
def test_an_answer_that_waited_for_the_disk_is_in_the_bucket_of_its_time(
    wait_ms: int, bucket: int
) -> None:
    exchange = Exchange(store_settings=StoreSettings(is_sync_flush=True, log_segment_size=65_536))
    exchange.create_topic("T", 1)
    exchange.holds_syncs = True
    caller = exchange.connect()
    pending = caller.begin_send("T")
    exchange.advance(wait_ms)
    while exchange.syncs:
        exchange.sync()
    assert pending.now.code == 0
    sent = told(exchange)[of("send_message_v2")]
    assert sent.sum == wait_ms
    assert [count for _, count in sent.buckets] == [0] * bucket + [1] * (10 - bucket)
