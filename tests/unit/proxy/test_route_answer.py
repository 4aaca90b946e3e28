"""Routes of topics with many queues: as protobuf encodes them, and a few in a turn."""

from __future__ import annotations

import pytest

from escrowmq.proxy.gen import v2
from escrowmq.proxy.route_answer import encode_queues

from .client import World


def queue_of(number: int, permission: v2.Permission = v2.READ_WRITE) -> v2.MessageQueue:
    queue = v2.MessageQueue(id=number, permission=permission)
    queue.topic.name, queue.broker.name = "T", "broker-a"
    queue.broker.endpoints.addresses.add(host="10.0.0.1", port=8081)
    queue.accept_message_types.append(v2.NORMAL)
    return queue


@pytest.mark.parametrize("count", [0, 1, 300])
def test_queues_are_encoded_as_by_protobuf(count: int) -> None:
    wanted = v2.QueryRouteResponse()
    wanted.message_queues.extend(map(queue_of, range(count)))
    found = b"".join(encode_queues(queue_of(0), range(count), is_assigned=False))
    assert v2.QueryRouteResponse.FromString(found) == wanted
    assigned = v2.QueryAssignmentResponse()
    assigned.assignments.extend(v2.Assignment(message_queue=queue_of(n)) for n in range(count))
    found = b"".join(encode_queues(queue_of(0), range(count), is_assigned=True))
    assert v2.QueryAssignmentResponse.FromString(found) == assigned


@pytest.mark.parametrize(
    ("read", "write", "wanted"),
    [
        (3, 2, [v2.READ_WRITE, v2.READ_WRITE, v2.READ]),
        (1, 3, [v2.READ_WRITE, v2.WRITE, v2.WRITE]),
    ],
)
def test_each_queue_has_its_own_permission(
    read: int, write: int, wanted: list[v2.Permission]
) -> None:
    world = World()
    world.exchange.create_topic("T", read, writeQueueNums=str(write))
    request = v2.QueryRouteRequest()
    request.topic.name = "T"
    route = world.connect().ask("QueryRoute", request, v2.QueryRouteResponse)
    assert [queue.permission for queue in route.message_queues] == wanted
    assert [queue.id for queue in route.message_queues] == list(range(len(wanted)))


def test_routes_of_a_wide_topic_take_turns() -> None:
    world = World()
    world.topic("T", queues=16_384)
    client = world.connect()
    request = v2.QueryRouteRequest()
    request.topic.name = "T"
    before = world.exchange.holds_count
    with client.at_once():
        calls = [client.start("QueryRoute", request) for _ in range(10)]
    (route,) = calls[-1].messages(v2.QueryRouteResponse)
    assert len(route.message_queues) == 16_384
    assert world.exchange.holds_count >= before + 4
