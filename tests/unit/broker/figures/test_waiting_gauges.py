from __future__ import annotations

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.measure import Distribution, Sample
from tests.harness.exchange import Exchange

LOCAL = ("local", "disk")


def figures(exchange: Exchange) -> dict[tuple[str, ...], float]:
    return {
        (family.name.removeprefix("rocketmq_"), *sample.of): sample.value
        for family in exchange.core.measure(exchange.now_ms)
        for sample in family.samples
        if isinstance(sample, Sample)
    }


def test_the_timer_tells_what_waits_and_what_is_late() -> None:
    exchange = Exchange()
    client = exchange.connect()
    client.send("T", b"later", TIMER_DELAY_MS="60000")
    client.send("T", b"later", TIMER_DELAY_MS="90000")
    found = figures(exchange)
    assert found["timer_enqueue_lag", *LOCAL] == 2
    exchange.now_ms += 700
    assert figures(exchange)["timer_enqueue_latency_milliseconds", *LOCAL] == 700
    exchange.advance(1_000)
    found = figures(exchange)
    assert found["timer_enqueue_lag", *LOCAL] == 0
    assert found["timer_enqueue_latency_milliseconds", *LOCAL] == 0
    assert found["timer_dequeue_lag", *LOCAL] == 2
    assert found["timer_dequeue_latency_milliseconds", *LOCAL] == 0
    assert found["timing_messages", *LOCAL, "T"] == 2
    assert found["timer_enqueue", *LOCAL, "T"] == 2
    exchange.now_ms += 70_000
    assert figures(exchange)["timer_dequeue_latency_milliseconds", *LOCAL] > 10_000
    exchange.advance(1_000)
    found = figures(exchange)
    assert found["timer_dequeue_lag", *LOCAL] == found["timing_messages", *LOCAL, "T"] == 1
    assert found["timer_dequeue", *LOCAL, "T"] == 1


def test_the_timer_tells_how_far_ahead_messages_are_due() -> None:
    exchange = Exchange()
    client = exchange.connect()
    for delay_ms in (30_000, 50_000, 3_000_000):
        client.send("T", b"later", TIMER_DELAY_MS=str(delay_ms))
    client.send("U", b"later", TIMER_DELAY_MS="90000")
    exchange.advance(1_000)
    found = figures(exchange)
    ahead = {
        name[-1]: value for name, value in found.items() if name[0] == "timer_message_snapshot"
    }
    assert ahead == {
        "5": 0, "60": 2, "300": 1, "900": 0, "3600": 1, "14400": 0, "28800": 0, "86400": 0,
    }  # fmt: skip
    exchange.advance(100_000)
    found = figures(exchange)
    assert found["timer_message_snapshot", *LOCAL, "60"] == 0
    assert found["timer_message_snapshot", *LOCAL, "3600"] == 1
    (family,) = (
        one for one in exchange.core.measure(exchange.now_ms)
        if one.name == "rocketmq_delay_message_latency_seconds"
    )  # fmt: skip
    of_t, of_u = family.samples
    assert isinstance(of_t, Distribution)
    assert isinstance(of_u, Distribution)
    assert (of_t.of, of_t.buckets[0], of_t.buckets[2], of_t.buckets[-1][1]) == (
        (*LOCAL, "T"), (60.0, 2), (3_600.0, 3), 3,
    )  # fmt: skip
    assert of_u.buckets[:2] == ((60.0, 0), (600.0, 1))


def test_pops_tell_what_is_open_and_what_came_again() -> None:
    exchange = Exchange(BrokerSettings(revive_queues_count=1))
    exchange.create_topic("T", 1)
    client = exchange.connect()
    client.send("T", b"x")
    ext = {
        "consumerGroup": "CG", "topic": "T", "queueId": "-1", "maxMsgNums": "32", "pollTime": "0",
        "invisibleTime": "10000", "bornTime": "0", "initMode": "0", "order": "false",
    }  # fmt: skip
    assert client.ask(Request.POP_MESSAGE, ext).code == 0
    found = figures(exchange)
    assert found["pop_checkpoint_buffer_size",] == 1
    assert found["pop_revive_lag_milliseconds", "0"] == 1
    assert found["pop_revive_latency_milliseconds", "0"] == 0
    assert found["pop_revive_in_message", "CG", "T", "CK", "OK"] == 1
    exchange.now_ms += 20_000
    assert figures(exchange)["pop_revive_latency_milliseconds", "0"] > 5_000
    exchange.advance(1_000)
    found = figures(exchange)
    assert found["pop_checkpoint_buffer_size",] == 0
    assert found["pop_revive_lag_milliseconds", "0"] == 0
    assert found["pop_revive_retry_messages", "CG", "T", "OK"] == 1
    assert found["pop_revive_in_message", "CG", "T", "ACK", "OK"] == 1


def test_a_broker_without_a_timer_has_no_figures_of_it() -> None:
    exchange = Exchange()
    exchange.core.broker.settings.has_timer = False
    assert not [name for name, *_ in figures(exchange) if name.startswith("timer")]
