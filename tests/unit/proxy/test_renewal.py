"""What a consumer wants hidden until it is done stays hidden as long as its stream lasts, and the
first handle stays good."""

from __future__ import annotations

import pytest

from escrowmq.proxy.gen import v2
from escrowmq.store.results import PutResult, PutStatus
from escrowmq.store.store import Store

from .client import V5, World, message, messages_of


def make(kind: str = "NORMAL") -> tuple[World, V5, int]:
    world = World()
    world.topic("T", kind)
    if kind == "FIFO":
        world.exchange.connect("operator").ask(
            200, {}, b'{"groupName":"CG","consumeMessageOrderly":true}'
        )
    client = world.connect("consumer")
    stream = client.consume("CG", "T", v2.PUSH_CONSUMER)
    for nth in range(3):
        one = message("T", b"%d" % nth)
        if kind == "FIFO":
            one.system_properties.message_group = "g"
        client.send(one)
    return world, client, stream


def nothing_comes(world: World) -> bool:
    other = world.connect("other")
    stream = other.receive("T", poll_s=5)
    world.exchange.advance(6_000)
    return stream.is_over and not messages_of(stream)


def beat(client: V5, world: World, minutes: int) -> None:
    for _ in range(6 * minutes):
        world.exchange.advance(10_000)
        client.ask("Heartbeat", v2.HeartbeatRequest(), v2.HeartbeatResponse)


@pytest.mark.parametrize("kind", ["NORMAL", "FIFO"])
def test_a_message_is_hidden_while_its_consumer_is_at_it(kind: str) -> None:
    world, client, _ = make(kind)
    found = client.received("T", renew=True)
    assert len(found) == 3
    assert client.ack(found[1]).code == v2.OK
    beat(client, world, 20)
    assert nothing_comes(world)
    assert {client.ack(found[0]).code, client.ack(found[2]).code} == {v2.OK}
    beat(client, world, 5)
    assert nothing_comes(world)


@pytest.mark.parametrize("kind", ["NORMAL", "FIFO"])
def test_it_comes_again_soon_after_the_stream_has_ended(kind: str) -> None:
    world, client, stream = make(kind)
    found = client.received("T", renew=True)
    beat(client, world, 10)
    client.ack(found[0])
    client.cancel(stream)
    world.exchange.advance(70_000)
    assert [one.body for one in world.connect("other").received("T")] == [b"1", b"2"]


def test_not_for_ever() -> None:
    world, client, _ = make()
    client.received("T", renew=True)
    beat(client, world, 175)
    assert nothing_comes(world)
    beat(client, world, 10)
    assert len(world.connect("other").received("T")) == 3


def test_the_first_handle_is_good_after_a_restart() -> None:
    world, client, _ = make()
    found = client.received("T", renew=True)
    beat(client, world, 10)
    world.restart()
    client = world.connect("consumer")
    assert {client.ack(one).code for one in found} == {v2.OK}
    world.exchange.advance(200_000)
    assert nothing_comes(world)


def test_after_a_restart_a_message_comes_again_when_nobody_acknowledges_it() -> None:
    world, client, _ = make()
    client.received("T", renew=True)
    beat(client, world, 10)
    world.restart()
    world.exchange.advance(130_000)
    assert len(world.connect("other").received("T")) == 3


def test_a_message_that_is_given_back_comes_again_at_its_own_time() -> None:
    world, client, _ = make()
    found = client.received("T", renew=True)
    request = v2.ChangeInvisibleDurationRequest(
        receipt_handle=found[0].system_properties.receipt_handle
    )
    request.group.name, request.topic.name = "CG", "T"
    request.invisible_duration.seconds = 5
    kind = v2.ChangeInvisibleDurationResponse
    assert client.ask("ChangeInvisibleDuration", request, kind).status.code == v2.OK
    world.exchange.advance(7_000)
    assert [one.body for one in world.connect("other").received("T")] == [b"0"]


def test_who_asks_for_no_renewal_gets_none() -> None:
    world, client, _ = make()
    client.received("T", invisible_s=30)
    world.exchange.advance(35_000)
    assert len(world.connect("other").received("T")) == 3


@pytest.mark.parametrize("kind", ["NORMAL", "FIFO"])
def test_a_clock_that_is_set_forward_takes_nothing_from_a_consumer(kind: str) -> None:
    world, client, stream = make(kind)
    client.received("T", renew=True)
    beat(client, world, 2)
    world.exchange.core.clock_leapt(86_400_000)
    world.exchange.now_ms += 86_400_000
    beat(client, world, 10)
    assert nothing_comes(world)
    client.cancel(stream)
    world.exchange.advance(70_000)
    assert len(world.connect("other").received("T")) == 3


def test_what_a_full_disk_cannot_note_stays_hidden_by_its_old_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, client, _ = make()
    assert len(client.received("T", renew=True)) == 3
    core = world.exchange.core
    popped = core.assembly.pops.ledger.popped
    before = popped.oldest_records()
    full = PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason="full")
    with monkeypatch.context() as patched:
        patched.setattr(Store, "put", lambda *_, **__: full)
        beat(client, world, 2)
        assert popped.oldest_records() == before
    beat(client, world, 1)
    assert min(popped.oldest_records().values()) > min(before.values())
    assert nothing_comes(world)
