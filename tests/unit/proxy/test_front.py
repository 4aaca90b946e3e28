"""Calls over a connection: who is served, and how it is refused."""

from __future__ import annotations

import pytest

from escrowmq.proxy.gen import v2

from .client import World, message, status_of


def test_a_route_names_this_front_and_what_the_topic_takes() -> None:
    world = World()
    world.topic("T", "FIFO", queues=2)
    request = v2.QueryRouteRequest()
    request.topic.name = "T"
    route = world.connect().ask("QueryRoute", request, v2.QueryRouteResponse)
    assert route.status.code == v2.OK
    assert [queue.id for queue in route.message_queues] == [0, 1]
    queue = route.message_queues[0]
    assert (queue.permission, list(queue.accept_message_types)) == (v2.READ_WRITE, [v2.FIFO])
    assert (queue.broker.name, queue.broker.id) == ("broker-a", 0)
    (address,) = queue.broker.endpoints.addresses
    assert (queue.broker.endpoints.scheme, address.host, address.port) == (
        v2.IPv4, "10.0.0.1", 8081,
    )  # fmt: skip


def test_a_route_of_a_group_names_what_the_client_was_given() -> None:
    """An END goes where its half went: after a fail-over, to another of these addresses."""
    world = World(is_of_group=True)
    world.topic("T")
    request = v2.QueryRouteRequest()
    request.topic.name = "T"
    client = world.connect()
    (queue,) = client.ask("QueryRoute", request, v2.QueryRouteResponse).message_queues
    assert [a.host for a in queue.broker.endpoints.addresses] == ["10.0.0.1"]  # it named none
    request.endpoints.scheme = v2.IPv4
    for host in ("10.0.0.7", "10.0.0.8"):
        request.endpoints.addresses.add(host=host, port=8081)
    (queue,) = client.ask("QueryRoute", request, v2.QueryRouteResponse).message_queues
    assert queue.broker.endpoints == request.endpoints
    asked = v2.QueryAssignmentRequest(endpoints=request.endpoints)
    asked.topic.name, asked.group.name = "T", "CG"
    (found,) = client.ask("QueryAssignment", asked, v2.QueryAssignmentResponse).assignments
    assert found.message_queue.broker.endpoints == request.endpoints


def test_addresses_that_are_too_large_are_not_repeated_for_each_queue() -> None:
    world = World(is_of_group=True)
    world.topic("T")
    client = world.connect()
    request = v2.QueryRouteRequest()
    request.topic.name = "T"
    request.endpoints.addresses.add(host="h" * 10_000, port=8081)
    status = client.ask("QueryRoute", request, v2.QueryRouteResponse).status
    assert status.code == v2.ILLEGAL_ACCESS_POINT
    assert "8192 are allowed" in status.message
    asked = v2.QueryAssignmentRequest(endpoints=request.endpoints)
    asked.topic.name, asked.group.name = "T", "CG"
    found = client.ask("QueryAssignment", asked, v2.QueryAssignmentResponse)
    assert found.status.code == v2.ILLEGAL_ACCESS_POINT


def test_a_topic_that_is_not_there_has_no_route() -> None:
    request = v2.QueryRouteRequest()
    request.topic.name = "nowhere"
    route = World().connect().ask("QueryRoute", request, v2.QueryRouteResponse)
    assert route.status.code == v2.TOPIC_NOT_FOUND
    assert "No topic route info in name server for the topic: nowhere" in route.status.message


def test_a_call_without_a_client_id_is_refused_in_its_response() -> None:
    world = World()
    client = world.connect("")
    response = client.ask("Heartbeat", v2.HeartbeatRequest(), v2.HeartbeatResponse)
    assert response.status.code == v2.CLIENT_ID_REQUIRED
    assert response.status.message == "client id cannot be empty"


def test_what_is_not_served_is_unimplemented() -> None:
    client = World().connect()
    stream = client.streams[client.begin("Nothing")]
    assert stream.code == 12
    assert "MessagingService/Nothing is unimplemented" in stream.fields["grpc-message"]


def test_bytes_that_are_no_message_end_the_call() -> None:
    client = World().connect()
    number = client.begin("QueryRoute")
    client._feed(client.data(number, b"\0\0\0\0\3\xff\xff\xff", is_end=True))
    assert client.streams[number].code == 13


def test_a_call_without_a_message_ends() -> None:
    client = World().connect()
    number = client.begin("QueryRoute")
    client._feed(client.data(number, b"", is_end=True))
    assert client.streams[number].code == 13
    assert client.streams[number].fields["grpc-message"] == "Half-closed without a request"


@pytest.mark.parametrize("is_at_once", [True, False])
def test_a_call_with_two_messages_is_refused_and_does_nothing(*, is_at_once: bool) -> None:
    """Both were stored, and the client got one answer. grpc-java refuses it."""
    world = World()
    world.topic("T")
    client = world.connect()
    number = client.begin("SendMessage")
    first, second = (v2.SendMessageRequest(messages=[message("T")]) for _ in range(2))
    if is_at_once:
        with client.at_once():
            client.write(number, first)
            client.write(number, second, is_end=True)
    else:
        client.write(number, first)
        client.write(number, second, is_end=True)
    assert client.streams[number].code == 13
    assert client.streams[number].fields["grpc-message"] == "Too many requests"
    assert world.exchange.core.broker.store.bounds("T", 0) == (0, 0)
    assert world.front.room.size == 0
    client.send(message("T"))
    assert world.exchange.core.broker.store.bounds("T", 0) == (0, 1)


def test_a_call_is_served_when_its_client_has_ended_it() -> None:
    world = World()
    world.topic("T")
    client = world.connect()
    number = client.begin("SendMessage")
    client.write(number, v2.SendMessageRequest(messages=[message("T", b"x" * 50_000)]))
    assert world.exchange.core.broker.store.bounds("T", 0) == (0, 0)
    assert world.front.room.size > 50_000, "it counts among what is kept"
    client._feed(client.data(number, b"", is_end=True))
    assert client.streams[number].code == 0
    assert world.exchange.core.broker.store.bounds("T", 0) == (0, 1)
    assert world.front.room.size == 0


def test_a_client_is_known_by_its_id_whatever_connection_it_comes_by() -> None:
    world = World()
    world.topic("T")
    first, second = world.connect("a"), world.connect("a")
    first.send(message("T"))
    second.send(message("T"))
    assert len(world.front.clients) == 1
    world.connect("a", host="10.0.0.8").send(message("T"))
    assert len(world.front.clients) == 2


def test_clients_that_have_left_are_forgotten() -> None:
    world = World()
    world.topic("T")
    client = world.connect("a")
    client.send(message("T"))
    client.leave()
    assert len(world.front.clients) == 0
    consumer = world.connect("b")
    consumer.consume("CG", "T")
    consumer.leave()
    assert len(world.front.clients) == 1
    world.exchange.advance(130_000)
    assert len(world.front.clients) == 0
    assert len(world.exchange.core.broker.peers.by_id) == 0


def test_calls_of_a_client_that_leaves_are_answered_on_each_of_its_connections() -> None:
    world = World()
    world.topic("T")
    first, second = world.connect("a"), world.connect("a")
    first.consume("CG", "T")
    waiting = [first.receive("T", poll_s=20), second.receive("T", poll_s=20)]
    request, kind = v2.NotifyClientTerminationRequest(), v2.NotifyClientTerminationResponse
    assert first.ask("NotifyClientTermination", request, kind).status.code == v2.OK
    for stream in waiting:
        assert stream.is_over
        assert status_of(stream).message == "the client has left"
    world.connect("b").send(message("T"))
    assert len(world.connect("b").received("T")) == 1


def test_a_client_that_came_again_does_not_leave_with_its_former_self() -> None:
    world = World()
    world.topic("T")
    first, second = world.connect("a"), world.connect("a")
    first.consume("CG", "T")
    request, kind = v2.NotifyClientTerminationRequest(), v2.NotifyClientTerminationResponse
    assert first.ask("NotifyClientTermination", request, kind).status.code == v2.OK
    second.consume("CG", "T")
    first.leave()
    assert len(world.front.clients) == 1
    beat = second.ask("Heartbeat", v2.HeartbeatRequest(), v2.HeartbeatResponse)
    assert beat.status.code == v2.OK


def test_many_commands_at_once_take_turns() -> None:
    world = World()
    world.topic("T")
    client = world.connect()
    number = client.produce("T")
    settings = v2.Settings(client_type=v2.PRODUCER)
    settings.publishing.topics.add(name="T")
    data = v2.TelemetryCommand(settings=settings).SerializeToString()
    framed = len(data).to_bytes(5, "big") + data
    before = world.exchange.holds_count
    client._feed(client.data(number, framed * 700))
    assert world.exchange.holds_count > before
    assert len(client.told(number)) == 701


def test_heartbeats_of_many_subscriptions_take_turns() -> None:
    """Each is a few bytes, and registers them all again; settings name them."""
    world = World()
    client = world.connect()
    settings = v2.Settings(client_type=v2.SIMPLE_CONSUMER)
    settings.subscription.group.name = "CG"
    for nth in range(300):
        entry = settings.subscription.subscriptions.add()
        entry.topic.name = f"t{nth}"
        entry.expression.type, entry.expression.expression = v2.TAG, "*"
    number = client.telemetry(settings)
    before = world.exchange.holds_count
    with client.at_once():
        beats = [client.start("Heartbeat", v2.HeartbeatRequest()) for _ in range(20)]
    assert all(beat.is_over for beat in beats)
    assert world.exchange.holds_count >= before + 9
    before = world.exchange.holds_count
    with client.at_once():
        for _ in range(20):
            client.write(number, v2.TelemetryCommand(settings=settings))
    assert len(client.told(number)) == 21
    assert world.exchange.holds_count >= before + 9


def test_a_deadline_ends_a_call() -> None:
    world = World()
    world.topic("T")
    client = world.connect()
    client.consume("CG", "T")
    stream = client.receive("T", poll_s=20)
    assert not stream.is_over
    world.exchange.advance(21_000)
    assert stream.is_over
