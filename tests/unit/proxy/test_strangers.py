"""What those without an account are told, what their calls cost, and how long what they have heard
of a signature is worth anything."""

from __future__ import annotations

import gzip
import re
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.delivery.topics import TopicConfig
from escrowmq.http2.limits import STRANGERS_STREAMS_MAX
from escrowmq.proxy.gen import reflection, v2
from escrowmq.testing.disk import SimDisk
from tests.harness.work import lines_run

from .client import V5, World, message, receiving, status_of
from .test_accounts import FILE, USERS, signed

LINES_OF_A_TURN_MAX = 250_000
"""Some 20 ms of a processor that takes 80 ns for a line."""


def make(*, is_new: bool = False, **more: Any) -> World:
    disk = SimDisk()
    disk.small["plain_acl.yml"] = FILE
    disk.small["config/auth.json"] = USERS
    settings = BrokerSettings(
        acl_enabled=not is_new, authenticates=is_new, authorizes=is_new, **more
    )
    world = World(settings, disk=disk)
    for topic, kind in (("T", "NORMAL"), ("F", "FIFO"), ("H", "TRANSACTION")):
        config = TopicConfig(
            topic_name=topic, read_queue_nums=4, write_queue_nums=4,
            attributes={"message.type": kind},
        )  # fmt: skip
        world.exchange.core.broker.topics.put(config, world.exchange.now_ms)
    return world


@pytest.fixture(name="world", params=["1.0", "2.0"])
def make_world(request: pytest.FixtureRequest) -> World:
    return make(is_new=request.param == "2.0")


# -- what is said of topics -----------------------------------------------------------------------


def _sent(client: V5, topic: str) -> v2.Status:
    return client.send(message(topic)).status


def _sent_packed(client: V5, topic: str) -> v2.Status:
    packed = message(topic, gzip.compress(b"x"))
    packed.system_properties.body_encoding = v2.GZIP
    return client.send(packed).status


def _sent_together(client: V5, topic: str) -> v2.Status:
    return client.send(message(topic), message(topic)).status


def _received(client: V5, topic: str) -> v2.Status:
    return status_of(client.start("ReceiveMessage", receiving(topic)))


def _pulled(client: V5, topic: str) -> v2.Status:
    request = v2.PullMessageRequest(offset=0, batch_size=1)
    request.group.name = "CG"
    _name(request.message_queue, topic)
    stream = client.start("PullMessage", request)
    return stream.messages(v2.PullMessageResponse)[0].status


def _updated(client: V5, topic: str) -> v2.Status:
    request = v2.UpdateOffsetRequest(offset=0)
    request.group.name = "CG"
    _name(request.message_queue, topic)
    return client.ask("UpdateOffset", request, v2.UpdateOffsetResponse).status


def _got(client: V5, topic: str) -> v2.Status:
    request = v2.GetOffsetRequest()
    request.group.name = "CG"
    _name(request.message_queue, topic)
    return client.ask("GetOffset", request, v2.GetOffsetResponse).status


def _queried(client: V5, topic: str) -> v2.Status:
    request = v2.QueryOffsetRequest(query_offset_policy=v2.END)
    _name(request.message_queue, topic)
    return client.ask("QueryOffset", request, v2.QueryOffsetResponse).status


def _routed(client: V5, topic: str) -> v2.Status:
    request = v2.QueryRouteRequest()
    request.topic.name = topic
    return client.ask("QueryRoute", request, v2.QueryRouteResponse).status


def _name(queue: v2.MessageQueue, topic: str) -> None:
    """A queue that no topic has."""
    queue.topic.name, queue.id = topic, 77


@pytest.mark.parametrize("fields", [{}, signed("owner-1", "wrong"), signed("owner-2")])
@pytest.mark.parametrize(
    "ask",
    [
        _sent, _sent_packed, _sent_together, _received, _pulled, _updated, _got, _queried, _routed,
    ],
)  # fmt: skip
def test_who_may_not_use_a_topic_is_told_nothing_about_it(
    world: World, ask: Callable[[V5, str], v2.Status], fields: dict[str, str]
) -> None:
    """The same of one that is there, one of another type, and one that is not there."""
    client = world.connect("c", metadata=fields)
    said = []
    for topic in ("T", "F", "H", "no-such-topic"):
        status = ask(client, topic)
        said.append((status.code, re.sub(rf"\b{topic}\b", "...", status.message)))
    assert len(set(said)) == 1, said
    assert said[0][0] == v2.UNAUTHORIZED


def test_who_may_use_it_is_told_what_is_wrong() -> None:
    world = make()
    client = world.connect("c", metadata=signed("owner-1"))
    assert client.send(message("H")).status.code == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert _updated(client, "T").message == "topic T has queues 0 to 3, and no 77"
    assert _queried(client, "T").message == "topic T has queues 0 to 3, and no 77"


def test_who_may_not_end_a_transaction_hears_so_even_if_nothing_would_happen(world: World) -> None:
    owner = world.connect("owner", metadata=signed("owner-1"))
    name = owner.send(message("H", kind=v2.TRANSACTION)).entries[0].transaction_id
    unspecified = v2.TRANSACTION_RESOLUTION_UNSPECIFIED
    for fields in ({}, signed("owner-1", "wrong"), signed("owner-2")):
        stranger = world.connect("stranger", metadata=fields)
        assert stranger.end("H", name, unspecified).code == v2.UNAUTHORIZED
    assert owner.end("H", name, unspecified).code == v2.OK


# -- what it costs --------------------------------------------------------------------------------


def acks(count: int) -> v2.AckMessageRequest:
    request = v2.AckMessageRequest()
    request.group.name, request.topic.name = "CG", "T"
    for nth in range(count):
        request.entries.add(
            message_id=f"{nth}", receipt_handle=f"0 1700000000000 60000 0 0 broker-a 0 {nth} {nth}"
        )
    return request


@pytest.mark.parametrize("fields", [{}, signed("owner-1", "wrong")])
def test_a_call_is_judged_once_however_much_is_in_it(fields: dict[str, str]) -> None:
    world = make()
    client = world.connect("c", metadata=fields)
    lines = {}
    for count in (2, 4_096):
        lines[count] = lines_run(partial(client.start, "AckMessage", acks(count)))
    assert lines[4_096] < lines[2] + 4_096  # the frames that it comes in
    many = v2.SendMessageRequest(messages=[message("T") for _ in range(1_000)])
    assert lines_run(lambda: client.start("SendMessage", many)) < lines[2] + 4_096


def test_nothing_is_unpacked_for_a_stranger() -> None:
    world = make()
    broken = message("T", b"\x1f\x8b is no gzip")
    broken.system_properties.body_encoding = v2.GZIP
    assert world.connect("a").send(broken).status.code == v2.UNAUTHORIZED
    client = world.connect("b", metadata=signed("owner-1"))
    assert client.send(broken).status.code == v2.MESSAGE_CORRUPTED


def test_others_have_their_turn_between_bodies_that_unpack_to_much() -> None:
    world = make()
    client = world.connect("c", metadata=signed("owner-1"))
    bomb = message("T", gzip.compress(bytes(4_000_000)))
    bomb.system_properties.body_encoding = v2.GZIP
    before = world.exchange.holds_count
    with client.at_once():
        for _ in range(10):
            client.start("SendMessage", v2.SendMessageRequest(messages=[bomb]))
    assert world.exchange.holds_count >= before + 9


def test_few_questions_of_reflection_are_answered_in_a_turn() -> None:
    world = make()
    client = world.connect("c")
    number = client.begin("ServerReflectionInfo", service="/grpc.reflection.v1.ServerReflection/")
    request = reflection.ServerReflectionRequest(
        file_containing_symbol="apache.rocketmq.v2.MessagingService"
    ).SerializeToString()
    framed = struct.pack(">BI", 0, len(request)) + request
    before = world.exchange.holds_count
    data = client.data(number, framed * (16_000 // len(framed)))
    turns = lines_run(lambda: client._feed(data)) / LINES_OF_A_TURN_MAX
    count = 16_000 // len(framed)
    answers = client.streams[number].messages(reflection.ServerReflectionResponse)
    assert len(answers) == count > 300
    assert world.exchange.holds_count > before + count // 40
    assert turns < 1


def test_many_calls_of_strangers_are_few_at_a_time() -> None:
    world = make()
    client = world.connect("c")
    numbers = [client.begin("SendMessage") for _ in range(STRANGERS_STREAMS_MAX + 20)]
    assert [client.streams[number].is_over for number in numbers].count(True) == 20


# -- who is no stranger ---------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{}, signed("owner-1", "wrong")])
def test_nobody_is_known_by_the_name_of_another(world: World, fields: dict[str, str]) -> None:
    """From the same address, with the client id and the account of one that has proved itself."""
    owner = world.connect("owner", metadata=signed("owner-1"))
    assert owner.send(message("T")).status.code == v2.OK
    thief = world.connect("owner", metadata=fields)
    assert thief.send(message("T")).status.code == v2.UNAUTHORIZED
    assert thief.streams_max == STRANGERS_STREAMS_MAX
    large = v2.SendMessageRequest(messages=[message("T", bytes(3_000_000)) for _ in range(3)])
    assert thief.start("SendMessage", large).code == 8
    thief.metadata = signed("owner-1")
    assert thief.send(message("T")).status.code == v2.OK
    assert thief.streams_max > STRANGERS_STREAMS_MAX
    assert len(thief.send(*large.messages).entries) == 3


@pytest.mark.parametrize("kind", ["gRPC", "remoting"])
def test_the_ports_are_told_who_is_a_stranger(world: World, kind: str) -> None:
    """So that one of them makes room when all places are taken."""
    core = world.exchange.core
    assert core.is_stranger(9_999)
    if kind == "gRPC":
        client = world.connect("c")
        client.send(message("T"))
        assert core.is_stranger(client.id)
        client.metadata = signed("owner-1")
        client.send(message("T"))
        assert not core.is_stranger(client.id)
    else:
        caller = world.exchange.connect()
        caller.send("T")
        assert core.is_stranger(caller.id)
        caller.credentials = "owner-1", "secret-of-all"
        caller.send("T")
        assert not core.is_stranger(caller.id)


def test_where_everything_is_open_nobody_is_a_stranger() -> None:
    assert not World().exchange.core.is_stranger(9_999)


# -- how long a signature holds -------------------------------------------------------------------


def at(world: World, *, ahead_s: int = 0, form: str = "%Y%m%dT%H%M%SZ") -> dict[str, str]:
    moment = datetime.fromtimestamp(world.exchange.now_ms / 1_000, UTC)
    return signed("owner-1", date=(moment + timedelta(seconds=ahead_s)).strftime(form))


def test_a_signature_holds_for_ever_unless_it_is_to_have_a_window(world: World) -> None:
    client = world.connect("c", metadata=signed("owner-1", date="20010101T000000Z"))
    assert client.send(message("T")).status.code == v2.OK


@pytest.mark.parametrize("is_new", [False, True])
def test_a_signature_of_another_time_is_refused(*, is_new: bool) -> None:
    world = make(is_new=is_new, signature_window_s=900)
    client = world.connect("c")
    for ahead_s, code in ((0, v2.OK), (-900, v2.OK), (900, v2.OK), (-901, v2.UNAUTHORIZED),
                          (901, v2.UNAUTHORIZED), (-86_400, v2.UNAUTHORIZED)):  # fmt: skip
        client.metadata = at(world, ahead_s=ahead_s)
        assert client.send(message("T")).status.code == code, ahead_s
    client.metadata = at(world)
    assert client.send(message("T")).status.code == v2.OK
    world.exchange.advance(901_000)
    status = client.send(message("T")).status
    assert status.code == v2.UNAUTHORIZED
    assert "901 s from this broker's time" in status.message
    assert "escrowSignatureWindowSeconds allows 900" in status.message


def test_any_time_is_right_that_says_how_far_it_is_from_utc() -> None:
    world = make(signature_window_s=60)
    moment = datetime.fromtimestamp(world.exchange.now_ms / 1_000, timezone(timedelta(hours=8)))
    client = world.connect("c", metadata=signed("owner-1", date=moment.isoformat()))
    assert client.send(message("T")).status.code == v2.OK


@pytest.mark.parametrize("date", ["", "yesterday", "x" * 5_000, "20260101"])
def test_what_is_no_time_is_refused_where_there_is_a_window(date: str) -> None:
    world = make(signature_window_s=60)
    client = world.connect("c", metadata=signed("owner-1", date=date))
    assert client.send(message("T")).status.code == v2.UNAUTHORIZED


def test_a_receive_that_waits_is_not_refused_when_its_signature_has_grown_old() -> None:
    world = make(signature_window_s=5)
    client = world.connect("c", metadata=at(world))
    stream = client.receive("T", poll_s=20)
    world.exchange.advance(10_000)
    sender = world.connect("s", metadata=at(world))
    assert sender.send(message("T")).status.code == v2.OK
    assert status_of(stream).code == v2.OK
