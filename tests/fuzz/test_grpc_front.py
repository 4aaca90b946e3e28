"""Whatever gRPC clients send, calls are refused one by one: nothing raises, no other connection
notices, and what is kept is let go."""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from escrowmq.proxy.gen import v2
from tests.unit.proxy.client import V5, World, message, receiving

from .frames import SEED, spoil, tries

METHODS = (
    "QueryRoute", "Heartbeat", "SendMessage", "QueryAssignment", "ReceiveMessage", "AckMessage",
    "ForwardMessageToDeadLetterQueue", "PullMessage", "UpdateOffset", "GetOffset", "QueryOffset",
    "EndTransaction", "NotifyClientTermination", "ChangeInvisibleDuration", "RecallMessage",
    "SyncLiteSubscription",
)  # fmt: skip
WORDS = (
    "T",
    "H",
    "CG",
    "TBW102",
    "",
    " ",
    "\x01",
    "x" * 300,
    "*",
    "a || b",
    "é",
    "1 2 3 0 0 b 0 0 0",
)
NUMBERS = (0, 1, -1, 7, 2**31 - 1, -(2**31), 20_000)


def filled(chance: random.Random, kind: Any, depth: int = 0) -> Message:
    """A message whose fields hold anything that their types allow."""
    found: Message = kind()
    for field in kind.DESCRIPTOR.fields:
        if chance.random() < 0.25 + 0.1 * depth:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(found, field.name)[chance.choice(WORDS)] = chance.choice(WORDS)
        elif field.message_type is not None:
            fill(chance, found, field, depth)
        elif field.is_repeated:
            getattr(found, field.name).extend(
                value(chance, field) for _ in range(chance.randrange(3))
            )
        else:
            setattr(found, field.name, value(chance, field))
    return found


def fill(chance: random.Random, found: Message, field: FieldDescriptor, depth: int) -> None:
    assert field.message_type is not None
    kind = getattr(v2, field.message_type.name, None)
    part = getattr(found, field.name)
    many = part if field.is_repeated else [part]
    if field.is_repeated:
        for _ in range(chance.randrange(3)):
            part.add()
    for each in many:
        if kind is not None and depth < 4:
            each.CopyFrom(filled(chance, kind, depth + 1))
        elif kind is None:  # times and spans
            each.seconds, each.nanos = chance.choice((0, 5, 30, -9, 2**40)), chance.choice(NUMBERS)


def value(chance: random.Random, field: FieldDescriptor) -> Any:
    if field.type == FieldDescriptor.TYPE_STRING:
        return chance.choice(WORDS)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return chance.choice((b"", b"x", b"\x1f\x8bnothing"))
    if field.type == FieldDescriptor.TYPE_BOOL:
        return chance.random() < 0.5
    if field.type == FieldDescriptor.TYPE_ENUM:
        assert field.enum_type is not None
        return chance.choice([each.number for each in field.enum_type.values] + [99])
    return chance.choice(NUMBERS)


def disturb(chance: random.Random, client: V5) -> None:
    """One call, or a stream, as nobody should make it."""
    method = chance.choice((*METHODS, "Telemetry"))
    request = v2.TelemetryCommand if method == "Telemetry" else getattr(v2, f"{method}Request")
    data = filled(chance, request).SerializeToString()
    if chance.random() < 0.4:
        data = spoil(data, chance)
    number = client.begin(method, timeout_s=chance.choice((1, 5, 30)))
    framed = len(data).to_bytes(5, "big") + data
    client._feed(client.data(number, framed[:16_000], is_end=chance.random() < 0.7))
    if chance.random() < 0.1:
        client.cancel(number)


def test_odd_calls_are_refused_and_hurt_nobody(caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(SEED)
    caplog.set_level(logging.ERROR)
    world = World()
    world.topic("T")
    world.topic("H", "TRANSACTION")
    honest = world.connect("honest")
    honest.consume("CG-honest", "T")
    for number in tries(40):
        client = world.connect(chance.choice(("a", "b", "")))
        for _ in range(20):
            if client.closed is None:
                disturb(chance, client)
        world.exchange.advance(chance.choice((0, 100, 7_000)))
        if client.closed is None:
            client.leave()
        if number % 10 == 9:
            assert honest.send(message("T")).status.code == v2.OK
            stream = honest.start("ReceiveMessage", receiving("T", "CG-honest", poll_s=5))
            assert stream.is_over
    world.exchange.advance(200_000)
    assert world.front.room.size == 0
    assert len(world.front.clients) <= 1
    assert [
        record.getMessage() for record in caplog.records if "failed" in record.getMessage()
    ] == []
