from __future__ import annotations

from escrowmq.base.answer import Refusal
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.command import Command
from escrowmq.broker.access.rates import AddressRates
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.broker.peer import Peer
from escrowmq.broker.requests.request_table import request_rows
from tests.harness.exchange import Exchange

FLOW_CONTROL = 215


ROWS = {row.code: row for row in request_rows()}


def request(code: int = 310, size: int = 0) -> Command:
    return Command(code=code, opaque=1, body=bytes(size))


def judge(rates: AddressRates, host: str, one: Command, now_ms: int) -> Refusal | None:
    row = ROWS.get(one.code, ROWS[310])
    return rates.judge(IncomingRequest(Peer(1, host, 5), row, one, None, now_ms))


def passed(rates: AddressRates, host: str, count: int, now_ms: int, one: Command) -> int:
    return sum(judge(rates, host, one, now_ms) is None for _ in range(count))


def test_an_address_has_a_seconds_worth_at_once_and_then_its_rate() -> None:
    rates = AddressRates(BrokerSettings(requests_per_s=10))
    assert passed(rates, "10.0.0.1", 30, 0, request()) == 10
    assert passed(rates, "10.0.0.1", 30, 500, request()) == 5
    assert passed(rates, "10.0.0.2", 30, 500, request()) == 10
    assert passed(rates, "10.0.0.1", 30, 60_000, request()) == 10


def test_a_clock_that_stands_gives_nothing() -> None:
    rates = AddressRates(BrokerSettings(requests_per_s=5))
    assert passed(rates, "10.0.0.1", 100, 7, request()) == 5
    assert rates.refused_count == 95


def test_bytes_are_paid_for_afterwards() -> None:
    rates = AddressRates(BrokerSettings(bytes_per_s=1_000))
    assert passed(rates, "10.0.0.1", 3, 0, request(size=4_000)) == 1
    assert passed(rates, "10.0.0.1", 1, 3_000, request(size=1)) == 0
    assert passed(rates, "10.0.0.1", 1, 3_001, request(size=1)) == 1


def test_what_ends_something_is_never_refused_but_counts() -> None:
    rates = AddressRates(BrokerSettings(requests_per_s=2))
    for code in (37, 34, 35, 15, 200051, 42):
        assert passed(rates, "10.0.0.1", 10, 0, request(code)) == 10
    refused = judge(rates, "10.0.0.1", request(), 0)
    assert refused is not None
    # The debt is bounded: a second after a flood of ends there is room again soon.
    assert passed(rates, "10.0.0.1", 1, 1_500, request()) == 1


def test_bytes_of_what_is_never_refused_leave_a_bounded_debt() -> None:
    rates = AddressRates(BrokerSettings(bytes_per_s=1_000))
    assert passed(rates, "10.0.0.1", 100, 0, request(200151, size=10_000)) == 100
    assert passed(rates, "10.0.0.1", 1, 900, request(size=1)) == 0
    assert passed(rates, "10.0.0.1", 1, 1_001, request(size=1)) == 1
    # What a larger body is to be paid with is not forgiven for it.
    assert passed(rates, "10.0.0.2", 1, 0, request(size=9_000)) == 1
    assert passed(rates, "10.0.0.2", 1, 0, request(200151, size=1)) == 1
    assert passed(rates, "10.0.0.2", 1, 7_900, request(size=1)) == 0


def test_nothing_is_owed_from_a_time_without_a_limit() -> None:
    settings = BrokerSettings(requests_per_s=1_000)
    rates = AddressRates(settings)
    assert passed(rates, "10.0.0.1", 100, 0, request(size=1_000_000)) == 100
    settings.bytes_per_s = 1_000_000
    assert passed(rates, "10.0.0.1", 1, 2_001, request(size=1)) == 1


def test_readers_are_told_to_rest_and_senders_that_the_broker_is_busy() -> None:
    rates = AddressRates(BrokerSettings(requests_per_s=1))
    judge(rates, "10.0.0.1", request(), 0)
    for code, expected in ((11, FLOW_CONTROL), (361, FLOW_CONTROL), (310, 2), (17, 2)):
        refused = judge(rates, "10.0.0.1", request(code), 0)
        assert refused is not None
        assert refused.code == expected
        assert "10.0.0.1 asks for more than escrowRequestsPerSecond=1 allows" in refused.remark


def test_addresses_that_were_silent_for_longest_are_forgotten(monkeypatch: object) -> None:
    rates = AddressRates(BrokerSettings(requests_per_s=1))
    import escrowmq.broker.access.rates as module

    monkeypatch.setattr(module, "RATED_CLIENTS_MAX", 2)  # type: ignore[attr-defined]
    for host in ("10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.3"):
        judge(rates, host, request(), 0)
    assert list(rates._buckets._buckets) == ["@10.0.0.1", "@10.0.0.3"]


def test_a_limit_may_be_set_while_the_broker_runs() -> None:
    exchange = Exchange()
    client = exchange.connect(host="10.0.0.5")
    exchange.create_topic("T")
    assert [client.send("T").code for _ in range(5)] == [0] * 5
    operator = exchange.connect(host="127.0.0.1")
    assert operator.ask(25, body=b"escrowRequestsPerSecond=3").code == 0
    exchange.advance(10_000)
    codes = [client.send("T").code for _ in range(5)]
    assert codes == [0, 0, 0, 2, 2]
    assert exchange.connect(host="10.0.0.6").send("T").code == 0
    exchange.advance(1_000)
    assert client.send("T").code == 0
    half = exchange.connect(host="10.0.0.7").prepare("T")
    assert [client.send("T").code for _ in range(3)] == [0, 0, 2]
    assert client.end(half, 8).code == 0
