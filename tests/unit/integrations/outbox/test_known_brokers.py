from __future__ import annotations

from escrowmq.integrations.outbox import known_brokers
from escrowmq.integrations.outbox.known_brokers import REREAD_MS, KnownBrokers


def test_a_broker_is_looked_for_again_in_time() -> None:
    now_ms = 0
    known = KnownBrokers(lambda: now_ms)
    known.add("b")
    assert known.names_to_look_up({"b", "a"}) == ["a"]
    now_ms = REREAD_MS - 1
    assert known.names_to_look_up({"b"}) == []
    now_ms = REREAD_MS
    assert known.names_to_look_up({"b"}) == ["b"]
    known.add("b")
    assert known.names_to_look_up({"b"}) == []


def test_all_caches_of_the_process_forget_what_was_declared_gone() -> None:
    caches = [KnownBrokers(lambda: 0) for _ in range(2)]
    for each in caches:
        each.add("b")
    known_brokers.forget_known_brokers()
    assert [each.names_to_look_up({"b"}) for each in caches] == [["b"]] * 2
    caches[0].add("b")
    assert [each.names_to_look_up({"b"}) for each in caches] == [[], ["b"]]
