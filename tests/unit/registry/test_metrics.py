from __future__ import annotations

from escrowmq.base.measure import Sample
from escrowmq.base.nameserver_settings import NameServerGuardSettings
from escrowmq.registry.guard import RegistryGuard

from .exchange import Exchange, register


def figures(exchange: Exchange) -> dict[tuple[str, ...], float]:
    return {
        (family.name.removeprefix("escrowmq_nameserver_"), *sample.of): sample.value
        for family in exchange.core.measure()
        for sample in family.samples
        if isinstance(sample, Sample)
    }


def test_a_name_server_tells_what_it_knows_and_what_it_was_asked() -> None:
    exchange = Exchange()
    register(exchange, {"T": 4, "U": 2}, name="broker-a")
    register(exchange, {"T": 4, "U": 2}, name="broker-b", address="127.0.0.3:10911", peer=2)
    exchange.ask(105, {"topic": "T"}, peer=3)
    found = figures(exchange)
    assert (found["clusters",], found["brokers",], found["connections",]) == (1, 2, 3)
    assert (found["topics",], found["routes",]) == (2, 4)
    assert (found["requests", "103"], found["requests", "105"]) == (2, 1)
    exchange.lose(2)
    found = figures(exchange)
    assert (found["brokers",], found["connections",], found["gone_brokers",]) == (1, 2, 1)


def test_what_is_refused_is_counted_apart_and_odd_codes_together() -> None:
    guard = RegistryGuard(NameServerGuardSettings(changes_from="10.9.9.9"))
    exchange = Exchange(guard=guard)
    register(exchange, {"T": 4})
    for code in (7_001, 7_002):
        exchange.ask(code)
    found = figures(exchange)
    assert found["refused_requests", "103"] == 1
    assert found.get(("requests", "other"), 0) + found.get(("refused_requests", "other"), 0) == 2
    assert found["brokers",] == 0
