"""The machine's clock is set forward: what v5 clients were given lasts as long as before."""

from __future__ import annotations

import pytest

from escrowmq.proxy.gen import v2

from .client import V5, World, message, messages_of

LEAP_MS = 600_000


def make(kind: str = "NORMAL") -> tuple[World, V5]:
    world = World()
    world.topic("T", kind)
    if kind == "FIFO":
        operator = world.exchange.connect("operator")
        operator.ask(200, {}, b'{"groupName":"CG","consumeMessageOrderly":true}')
    client = world.connect()
    client.consume("CG", "T")
    return world, client


def leap(world: World, by_ms: int = LEAP_MS) -> None:
    """As the shell tells it: before the clock shows it."""
    world.exchange.core.clock_leapt(by_ms)
    world.exchange.now_ms += by_ms
    world.exchange.advance(0)


def send(client: V5, kind: str = "NORMAL") -> None:
    one = message("T", b"once")
    if kind == "FIFO":
        one.system_properties.message_group = "g"
    assert client.send(one).status.code == v2.OK


def change(client: V5, handle: str, seconds: int) -> v2.ChangeInvisibleDurationResponse:
    request = v2.ChangeInvisibleDurationRequest(receipt_handle=handle)
    request.group.name, request.topic.name = "CG", "T"
    request.invisible_duration.seconds = seconds
    return client.ask("ChangeInvisibleDuration", request, v2.ChangeInvisibleDurationResponse)


kinds = pytest.mark.parametrize("kind", ["NORMAL", "FIFO"])


@kinds
def test_a_message_that_is_still_hidden_is_acknowledged(kind: str) -> None:
    world, client = make(kind)
    send(client, kind)
    (found,) = client.received("T", invisible_s=300, attempt_id="a")
    world.exchange.advance(1_000)
    leap(world)
    world.exchange.advance(100_000)
    leap(world)
    assert client.ack(found).code == v2.OK
    world.exchange.advance(400_000)
    stream = client.receive("T", poll_s=5, attempt_id="b")
    world.exchange.advance(6_000)
    assert messages_of(stream) == []


@kinds
def test_a_message_that_is_still_hidden_can_be_hidden_for_longer(kind: str) -> None:
    world, client = make(kind)
    send(client, kind)
    (found,) = client.received("T", invisible_s=60, attempt_id="a")
    leap(world)
    changed = change(client, found.system_properties.receipt_handle, 120)
    assert changed.status.code == v2.OK
    world.exchange.advance(110_000)
    found.system_properties.receipt_handle = changed.receipt_handle
    assert client.ack(found).code == v2.OK


def test_a_handle_expires_at_the_end_of_its_full_time() -> None:
    world, client = make()
    send(client)
    (found,) = client.received("T", invisible_s=60)
    leap(world)
    world.exchange.advance(70_000)
    assert client.ack(found).code == v2.INVALID_RECEIPT_HANDLE
    (again,) = client.received("T", invisible_s=60)
    world.exchange.advance(70_000)
    assert client.ack(again).code == v2.INVALID_RECEIPT_HANDLE


def test_calls_keep_their_deadlines_and_clients_are_not_silent() -> None:
    world, client = make()
    watch = client.begin("Watch", service="/grpc.health.v1.Health/", timeout_s=300)
    begun = client.begin("SendMessage", timeout_s=300)
    other = world.connect("other")
    send(other)
    for _ in range(2):
        leap(world)
    world.exchange.advance(20_000)
    assert not client.streams[watch].is_over
    assert len(world.front.clients) == 2
    client.write(begun, v2.SendMessageRequest(messages=[message("T")]), is_end=True)
    assert client.streams[begun].code == 0
    world.exchange.advance(300_000)
    assert client.streams[watch].is_over
    assert {each.key.id for each in world.front.clients.registered_clients()} == {"client"}


def test_what_has_begun_may_still_be_ended() -> None:
    world, client = make()
    number = client.begin("SendMessage", timeout_s=300)
    whole = v2.SendMessageRequest(messages=[message("T", b"x" * 100)]).SerializeToString()
    framed = len(whole).to_bytes(5, "big") + whole
    client._feed(client.data(number, framed[:50]))
    world.exchange.advance(15_000)
    leap(world)
    world.exchange.advance(10_000)
    assert client.closed is None
    client._feed(client.data(number, framed[50:], is_end=True))
    assert client.streams[number].code == 0
