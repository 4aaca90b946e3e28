"""Who is left of a route for a client of a zone."""

from __future__ import annotations

from escrowmq.codec.routes import BrokerData, QueueData, TopicRoute
from escrowmq.registry.zone_routes import route_in_zone


def broker(name: str, zone: str | None, *ids: int) -> BrokerData:
    addresses = {number: f"{name}{number}:1" for number in ids}
    return BrokerData(cluster="c", broker_name=name, broker_addrs=addresses, zone_name=zone)


def test_masters_of_other_zones_go_with_their_queues_and_filter_servers() -> None:
    route = TopicRoute(
        broker_datas=[broker("a", "Z1", 0), broker("b", "z2", 0, 1), broker("c", None, 0),
                      broker("d", "z2", 1)],
        queue_datas=[QueueData(broker_name=name) for name in "abcd"],
        filter_server_table={"a0:1": ["x"], "b1:1": ["y"]},
    )  # fmt: skip
    found = route_in_zone(route, "z1")
    assert [each.broker_name for each in found.broker_datas or ()] == ["a", "d"]
    assert [each.broker_name for each in found.queue_datas or ()] == ["a", "d"]
    assert found.filter_server_table == {"a0:1": ["x"]}
    assert len(route.broker_datas or ()) == 4
