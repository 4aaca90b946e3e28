from __future__ import annotations

from escrowmq.base.codes import Request
from escrowmq.codec.routes import DepartedBroker, decode_departed_brokers
from escrowmq.registry.gone_brokers import GONE_MAX, KEPT_MS, GoneBrokers

from .exchange import Exchange, register

B = "127.0.0.3:10911"


def gone(exchange: Exchange) -> list[tuple[str, str, int, bool]]:
    reply = exchange.ask(Request.ESCROW_GONE_BROKERS, peer=9)
    found = decode_departed_brokers(reply.body)
    return [(one.name, one.address, one.since_ms, one.has_said_so) for one in found]


def two_brokers() -> Exchange:
    exchange = Exchange()
    register(exchange, {"T": 4, "U": 2}, name="broker-a")
    register(exchange, {"T": 4, "U": 2}, name="broker-b", address=B, peer=2)
    assert gone(exchange) == []
    exchange.now_ms = 5_000
    return exchange


def test_a_broker_that_dies_is_known_for_an_hour() -> None:
    exchange = two_brokers()
    exchange.lose(2)
    assert gone(exchange) == [("broker-b", B, 5_000, False)]
    exchange.now_ms += KEPT_MS
    assert gone(exchange) == [("broker-b", B, 5_000, False)]
    exchange.now_ms += 1
    assert gone(exchange) == []


def test_one_that_takes_its_leave_is_told_apart() -> None:
    exchange = two_brokers()
    fields = {"clusterName": "DefaultCluster", "brokerName": "broker-b", "brokerAddr": B}
    exchange.ask(104, {**fields, "brokerId": "0"}, peer=2)
    exchange.lose(2)
    assert gone(exchange) == [("broker-b", B, 5_000, True)]


def test_one_that_falls_silent_left_when_that_was_seen() -> None:
    exchange = two_brokers()
    exchange.now_ms = 121_000
    exchange.core.wake(exchange.now_ms)
    exchange.core.take_effects()
    exchange.peers.clear()
    assert {row[0]: row[2] for row in gone(exchange)} == {"broker-a": 121_000, "broker-b": 121_000}


def test_one_that_is_closed_for_bad_bytes_left_then() -> None:
    exchange = two_brokers()
    exchange.feed(b"\xff" * 64, peer=2)
    assert gone(exchange) == [("broker-b", B, 5_000, False)]


def test_one_that_is_back_is_gone_no_longer_wherever_it_runs_now() -> None:
    exchange = two_brokers()
    exchange.lose(2)
    register(exchange, {"T": 4, "U": 2}, name="broker-b", address="127.0.0.4:1", peer=3, counter=2)
    assert gone(exchange) == []


def test_what_is_remembered_has_a_bound() -> None:
    table = GoneBrokers()
    for number in range(GONE_MAX + 5):
        table.note_departure(
            DepartedBroker(name=f"b{number}", cluster="c", id=0, address="x", since_ms=number)
        )
    assert len(table) == GONE_MAX
    assert table.recent(GONE_MAX)[0].name == "b5"
