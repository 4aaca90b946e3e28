"""Messages whose attempts are used up: the front moves them to the dead letters, once, and
acknowledges them whatever becomes of the call that found them."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.proxy.gen import v2

from .client import V5, World, message, messages_of, status_of


def make(kind: str = "", retries_max: int = 1) -> tuple[World, V5]:
    world = World()
    world.topic("T", kind)
    client = world.connect()
    client.consume("CG", "T")
    is_orderly = b"true" if kind == "FIFO" else b"false"
    world.exchange.connect("operator").ask(
        200,
        {},
        b'{"groupName":"CG","retryMaxTimes":%d,"consumeMessageOrderly":%b}'
        % (retries_max, is_orderly),
    )
    return world, client


def send(client: V5, body: bytes, kind: str = "") -> None:
    if kind == "FIFO":
        client.send(message("T", body, kind=v2.FIFO, message_group="g"))
    else:
        client.send(message("T", body))


def receive(world: World, client: V5, **more: Any) -> list[tuple[bytes, int]]:
    """Bodies and attempts of what comes; then let their time pass."""
    stream = client.receive("T", poll_s=5, **more)
    if not stream.is_over:
        world.exchange.advance(6_000)
    found = messages_of(stream)
    world.exchange.advance(40_000)
    return [(one.body, one.system_properties.delivery_attempt) for one in found]


def buried(world: World) -> list[bytes]:
    return world.exchange.connect().bodies("%DLQ%CG")


def test_what_failed_too_often_goes_to_the_dead_letters() -> None:
    world, client = make()
    send(client, b"poison")
    for attempt in (1, 2):
        assert receive(world, client) == [(b"poison", attempt)]
    stream = client.receive("T", poll_s=5)
    assert (messages_of(stream), status_of(stream).message) == ([], "no match message")
    assert buried(world) == [b"poison"]


@pytest.mark.parametrize("kind", ["", "FIFO"])
def test_a_message_is_buried_once(kind: str) -> None:
    """The first one creates topics, so the broker answers after it has saved them: the call has
    ended by then."""
    world, client = make(kind)
    for body in (b"first", b"second"):
        send(client, body, kind)
        seen = [receive(world, client) for _ in range(4)]
        assert seen == [[(body, 1)], [(body, 2)], [], []]
    assert buried(world) == [b"first", b"second"]


def test_a_burial_is_stored_before_the_next_input() -> None:
    world, client = make()
    send(client, b"poison")
    for _ in range(2):
        receive(world, client)
    client.receive("T", poll_s=5)
    world.restart()
    client = world.connect()
    client.consume("CG", "T")
    world.exchange.advance(40_000)
    assert [receive(world, client) for _ in range(2)] == [[], []]
    assert buried(world) == [b"poison"]


def test_attempts_of_an_orderly_group_count_and_end() -> None:
    world, client = make("FIFO", retries_max=2)
    for body in (b"poison", b"next"):
        send(client, body, "FIFO")
    for attempt in (1, 2, 3):
        found = receive(world, client, count=1, attempt_id=f"a{attempt}")
        assert found == [(b"poison", attempt)]
    assert receive(world, client, count=1, attempt_id="a4") == []
    assert buried(world) == [b"poison"]
    assert receive(world, client, count=1, attempt_id="a5") == [(b"next", 1)]


def test_the_same_attempt_at_an_orderly_queue_is_no_other() -> None:
    world, client = make("FIFO")
    send(client, b"body", "FIFO")
    for _ in range(3):
        assert receive(world, client, attempt_id="a") == [(b"body", 1)]


def test_a_burial_frees_the_queue_of_an_orderly_group_for_those_who_wait() -> None:
    world, client = make("FIFO", retries_max=0)
    send(client, b"poison", "FIFO")
    assert receive(world, client) == [(b"poison", 1)]
    send(client, b"next", "FIFO")
    with client.at_once():
        first = client.receive("T", count=1, attempt_id="1")
        second = client.receive("T", count=1, attempt_id="2")
    assert messages_of(first) == []
    assert [one.body for one in messages_of(second)] == [b"next"]


@pytest.mark.parametrize("kind", ["", "FIFO"])
def test_what_cannot_be_buried_is_tried_again_although_it_would_be_renewed(kind: str) -> None:
    world, client = make(kind, retries_max=0)
    send(client, b"poison", kind)
    assert receive(world, client) == [(b"poison", 1)]
    operator = world.exchange.connect("operator")
    no_writes = {"topic": "%RETRY%CG", "readQueueNums": "1", "writeQueueNums": "1", "perm": "4"}
    assert operator.ask(17, {**no_writes, "topicFilterType": "SINGLE_TAG"}).code == 0
    assert receive(world, client, renew=True) == []
    assert buried(world) == []
    may_write = {**no_writes, "perm": "6", "topicFilterType": "SINGLE_TAG"}
    assert operator.ask(17, may_write).code == 0
    world.exchange.advance(60_000)
    assert receive(world, client, renew=True) == []
    assert buried(world) == [b"poison"]


def test_many_messages_that_clients_bury_take_turns() -> None:
    """Each call is a few bytes, and may copy a message of 4 MiB."""
    world, client = make()
    send(client, b"big")
    (popped,) = client.received("T")
    request = v2.ForwardMessageToDeadLetterQueueRequest(
        message_id="m", receipt_handle=popped.system_properties.receipt_handle
    )
    request.group.name, request.topic.name = "CG", "T"
    before = world.exchange.holds_count
    with client.at_once():
        calls = [client.start("ForwardMessageToDeadLetterQueue", request) for _ in range(30)]
    assert all(call.is_over for call in calls)
    assert world.exchange.holds_count >= before + 4
