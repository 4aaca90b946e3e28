from __future__ import annotations

import pytest

from escrowmq.base.fixed_limits import BROKER_SILENT_MS
from escrowmq.base.nameserver_settings import NameServerSettings
from escrowmq.codec.routes import QueueData, RegisteredTopic, RegistrationBody, TableVersion
from escrowmq.errors import UsageError
from escrowmq.registry import route_table
from escrowmq.registry.live_brokers import RegisteringBroker
from escrowmq.registry.route_table import RegistrationResult, RouteTable


def body(*topics: str, state: int = 0) -> RegistrationBody:
    return RegistrationBody(
        version=TableVersion(1, state, 1),
        topics={topic: RegisteredTopic(topic_name=topic) for topic in topics},
    )


def broker(
    address: str, broker_id: int = 0, name: str = "b", cluster: str = "c"
) -> RegisteringBroker:
    return RegisteringBroker(
        cluster=cluster, address=address, name=name, broker_id=broker_id, ha_address="h"
    )


def test_brokers_and_topics_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    table = RouteTable(NameServerSettings())
    monkeypatch.setattr(route_table, "BROKERS_MAX", 1)
    monkeypatch.setattr(route_table, "ALL_TOPICS_MAX", 2)
    table.register(broker("x"), body("A", "B"), peer=1, now_ms=0)
    with pytest.raises(UsageError, match="broker names"):
        table.register(broker("y", name="b2"), body("A", "B"), peer=1, now_ms=0)
    with pytest.raises(UsageError, match="3 topics"):
        table.register(broker("x"), body("A", "B", "C"), peer=1, now_ms=0)
    assert table.topics() == ["A", "B"]


def test_a_name_whose_registration_was_refused_takes_no_room_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = RouteTable(NameServerSettings())
    monkeypatch.setattr(route_table, "BROKERS_MAX", 1)
    assert table.register(broker("x", name="b1"), body("A"), peer=1, now_ms=0) is None
    assert not table.expire(0)
    info = table.cluster_info()
    assert not info.broker_addr_table
    assert not info.cluster_addr_table
    assert table.register(broker("y", name="b4"), body("A", "B"), peer=1, now_ms=0) is not None


def test_topics_of_one_broker_are_bounded_and_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = RouteTable(NameServerSettings())
    monkeypatch.setattr(route_table, "BROKER_TOPICS_MAX", 3)
    table.register(broker("x"), body("A", "B", "C"), peer=1, now_ms=0)
    table.register(broker("x"), body("A", "B", "C", state=1), peer=1, now_ms=0)
    with pytest.raises(UsageError, match="4 topics of one broker; 3 are allowed"):
        table.register(broker("x"), body("D", state=2), peer=1, now_ms=0)
    table.register(broker("y", name="b2"), body("A", "D"), peer=2, now_ms=0)
    table.delete_topic("A", None)
    table.register(broker("x"), body("D", state=3), peer=1, now_ms=0)
    table.delete_topic("D", "c")
    table.register_topic("E", [QueueData("b", 6, 4, 0, 4)])
    with pytest.raises(UsageError, match="4 topics of one broker"):
        table.register(broker("x"), body("F", state=4), peer=1, now_ms=0)
    table.unregister("c", "x", "b", now_ms=0)
    table.unregister("c", "y", "b2", now_ms=0)
    assert not table._topics_counts


def test_a_slave_is_told_its_master_only_while_that_lives() -> None:
    table = RouteTable(NameServerSettings())
    table.register(broker("m"), body("A", "B"), peer=1, now_ms=0)
    assert table.register(broker("s", 1), body("A", "B"), peer=2, now_ms=0) == RegistrationResult(
        "h", "m"
    )
    assert table.remove_connection(1, 0) == 1
    assert table.register(broker("s", 1), body("A", "B"), peer=2, now_ms=0) == RegistrationResult()
    assert table.broker_addresses("b") == {1: "s"}


def test_an_older_claim_to_an_id_is_passed_over() -> None:
    table = RouteTable(NameServerSettings())
    table.register(broker("new"), body("A", "B", state=2), peer=1, now_ms=0)
    assert (
        table.register(broker("old"), body("A", "B", state=1), peer=2, now_ms=0)
        == RegistrationResult()
    )
    assert table.broker_addresses("b") == {0: "new"}


def test_a_live_entry_without_a_broker_is_dropped_too() -> None:
    table = RouteTable(NameServerSettings())
    table.register(broker("one"), body("A", "B"), peer=1, now_ms=0)
    table.register(broker("two"), body("A", "B"), peer=2, now_ms=0)
    assert table.live.version_of("c", "one") is not None
    assert table.expire(BROKER_SILENT_MS + 1) == [1, 2]
    assert table.live.version_of("c", "one") is None
    assert table.topics() == []


def test_brokers_that_change_their_cluster_one_by_one_can_be_lost() -> None:
    table = RouteTable(NameServerSettings())
    table.register(broker("m", cluster="old"), body("A", "B"), peer=1, now_ms=0)
    table.register(broker("s", 1, cluster="old"), body("A", "B"), peer=2, now_ms=0)
    table.remove_connection(1, 10)
    table.register(broker("m", cluster="new"), body("A", "B"), peer=3, now_ms=11)
    table.remove_connection(2, 20)
    table.register(broker("s", 1, cluster="new"), body("A", "B"), peer=4, now_ms=21)
    info = table.cluster_info()
    assert info.cluster_addr_table == {"new": ["b"]}
    assert info.broker_addr_table["b"].broker_addrs == {0: "m", 1: "s"}
    table.remove_connection(3, 30)
    assert table.broker_addresses("b") == {1: "s"}
    table.remove_connection(4, 40)
    assert not table.cluster_info().broker_addr_table
    assert not table.cluster_info().cluster_addr_table
    assert table.route("A") is None


def test_a_broker_that_changes_its_name_is_not_known_by_both() -> None:
    """Its new connection comes before the old one is known to be lost."""
    table = RouteTable(NameServerSettings())
    table.register(broker("m", name="a"), body("A", "B"), peer=1, now_ms=0)
    table.register(broker("m", name="b"), body("A", "B"), peer=2, now_ms=10)
    table.remove_connection(1, 20)
    table.expire(30)
    assert table.cluster_info().cluster_addr_table == {"c": ["b"]}
    assert (table.broker_addresses("a"), table.broker_addresses("b")) == ({}, {0: "m"})
    table.remove_connection(2, 40)
    assert not table.cluster_info().broker_addr_table
