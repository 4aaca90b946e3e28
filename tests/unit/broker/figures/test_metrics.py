from __future__ import annotations

import json
import math

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.measure import Distribution, Sample
from escrowmq.broker.figures import transaction_metrics_file
from escrowmq.testing.disk import CrashLoss
from tests.harness.exchange import COMMIT, ROLLBACK, UNKNOWN, Exchange


def figures(exchange: Exchange) -> dict[tuple[str, ...], float]:
    return {
        (family.name, *sample.of): sample.value
        for family in exchange.core.measure(exchange.now_ms)
        for sample in family.samples
        if isinstance(sample, Sample)
    }


def test_figures_of_transactions_are_those_of_the_log_after_any_end() -> None:
    exchange = Exchange(BrokerSettings(transaction_checks_max=1))
    producer = exchange.connect()
    halves = [producer.prepare("T", b"%d" % n) for n in range(5)]
    producer.prepare("U")
    exchange.now_ms += 2_000
    for _ in range(2):  # a repetition is no second commit
        producer.end(halves[0], COMMIT)
        producer.end(halves[1], ROLLBACK)
    producer.end(halves[1], COMMIT)
    found = figures(exchange)
    assert found["rocketmq_half_messages", "T"] == 3
    assert found["rocketmq_half_messages", "U"] == 1
    assert found["rocketmq_commit_messages", "T"] == 1
    assert found["rocketmq_rollback_messages", "T"] == 1
    assert found["escrowmq_repeated_ends",] == 2
    assert found["escrowmq_contradictory_ends",] == 1
    assert found["escrowmq_oldest_pending_seconds",] == 2.0
    exchange.advance(10_000)
    found = figures(exchange)
    assert (found["escrowmq_deserted_groups",], found["escrowmq_parked_messages", "PG"]) == (1, 4)
    producer.heartbeat(producer="PG")
    exchange.advance(100_000)
    found = figures(exchange)
    assert found["escrowmq_checks_sent",] == 4
    assert found["escrowmq_checks_expired",] == 4
    assert found["escrowmq_discarded_messages", "T"] == 3
    assert found["rocketmq_half_messages", "T"] == 0


def test_answers_that_decide_nothing_and_ages_are_counted() -> None:
    exchange = Exchange()
    producer = exchange.connect()
    producer.heartbeat(producer="PG")
    halves = [producer.prepare("T") for _ in range(3)]
    exchange.advance(6_500)
    found = figures(exchange)
    assert found["escrowmq_checks_sent",] == 3
    for half, verdict in zip(halves, (UNKNOWN, UNKNOWN, COMMIT), strict=True):
        producer.begin_end(half, verdict, is_from_check=True)
    found = figures(exchange)
    assert (found["escrowmq_checks_answered",], found["escrowmq_checks_unknown",]) == (3, 2)
    producer.begin_end(halves[0], UNKNOWN)  # an END of the producer's own is no answer
    assert figures(exchange)["escrowmq_checks_unknown",] == 2
    assert found["escrowmq_pending_older_than", "60"] == 0
    exchange.now_ms += 60_000
    producer.prepare("T")
    found = figures(exchange)
    assert found["escrowmq_pending_older_than", "60"] == 2
    assert found["escrowmq_pending_older_than", "300"] == 0


def test_time_to_commit_is_a_distribution() -> None:
    exchange = Exchange()
    producer = exchange.connect()
    halves = [producer.prepare("T") for _ in range(3)]
    producer.end(halves[0], COMMIT)
    exchange.now_ms += 5_001
    producer.end(halves[1], COMMIT)
    exchange.now_ms += 100_000_000
    producer.end(halves[2], COMMIT)
    (latency,) = [
        f
        for f in exchange.core.measure(exchange.now_ms)
        if f.name.endswith("finish_message_latency")
    ]
    (sample,) = latency.samples
    assert isinstance(sample, Distribution)
    buckets = dict(sample.buckets)
    assert (buckets[5.0], buckets[60.0], buckets[86_400.0], buckets[math.inf]) == (1, 2, 2, 3)
    assert sample.sum == 100_010.002


def counts(exchange: Exchange) -> dict[str, int]:
    found = json.loads(exchange.disk.read(transaction_metrics_file.PATH) or b"{}")
    return {topic: item["count"] for topic, item in found["transactionCount"].items()}


def test_file_of_the_counts_does_not_drift() -> None:
    exchange = Exchange()
    producer = exchange.connect()
    halves = [producer.prepare("T") for _ in range(3)]
    exchange.advance(3_100)
    assert counts(exchange) == {"T": 3}
    producer.end(halves[0], COMMIT)
    producer.end(halves[0], COMMIT)
    producer.end(halves[0], ROLLBACK)
    exchange.crash(CrashLoss.NOTHING)
    exchange.advance(3_100)
    assert counts(exchange) == {"T": 2}
    producer = exchange.connect()
    producer.end(halves[1], ROLLBACK)
    producer.end(halves[2], ROLLBACK)
    exchange.reopen()
    assert counts(exchange) == {"T": 0}
    version = json.loads(exchange.disk.read(transaction_metrics_file.PATH) or b"")["dataVersion"][
        "counter"
    ]
    exchange.advance(20_000)
    again = json.loads(exchange.disk.read(transaction_metrics_file.PATH) or b"")["dataVersion"][
        "counter"
    ]
    assert again == version, "nothing changed, nothing is written"


def test_store_and_readers_have_their_figures() -> None:
    exchange = Exchange()
    client = exchange.connect()
    client.send("T", b"one")
    client.send("T", b"two")
    client.send("%DLQ%G", b"dead")
    client.send("T", b"later", DELAY="5")
    exchange.core.broker.offsets.commit("G", "T", 0, 0, exchange.now_ms)
    exchange.core.broker.offsets.commit("G", "%RETRY%G", 0, 0, exchange.now_ms)
    exchange.now_ms += 500
    found = figures(exchange)
    store = exchange.core.broker.store
    assert found["rocketmq_storage_size_bytes", "local", "disk"] == store.end_offset > 0
    assert found["rocketmq_storage_dispatch_behind_bytes", "local", "disk"] == 0
    assert found["rocketmq_storage_message_reserve_time_milliseconds", "local", "disk"] >= 500
    assert found["rocketmq_topic_number",] == len(exchange.core.broker.topics.names())
    assert found["rocketmq_consumer_group_number",] >= 8
    assert found["rocketmq_consumer_lag_messages", "T", "G", "false"] == 2
    assert found["rocketmq_consumer_lag_messages", "%RETRY%G", "G", "true"] == 0
    assert found["rocketmq_send_to_dlq_messages", "G"] == 1
    assert found["escrowmq_delayed_messages", "5"] == 1
    assert found["escrowmq_read_only",] == 0
    assert found["escrowmq_disk_used_percent",] == 10
    assert exchange.core.write_refusal_reason() == ""
    exchange.disk.used_percent = 99
    exchange.advance(60_000)
    assert figures(exchange)["escrowmq_read_only",] == 1
    assert "the disk is full" in exchange.core.write_refusal_reason()


def test_sizes_of_messages_are_a_distribution() -> None:
    exchange = Exchange()
    client = exchange.connect()
    for size in (1, 600, 2_000, 5_000):
        client.send("T", b"x" * size)
    (sizes,) = [
        family
        for family in exchange.core.measure(exchange.now_ms)
        if family.name == "rocketmq_message_size"
    ]
    (found,) = [each for each in sizes.samples if each.of == ("T",)]
    assert isinstance(found, Distribution)
    counts = dict(found.buckets)
    assert (counts[1_024.0], counts[4_096.0], counts[524_288.0]) == (2, 3, 4)
    assert counts[math.inf] == 4
    assert found.sum > 7_601
