"""What one connection, and all together, may hold, and for how long."""

from __future__ import annotations

import gzip
import struct

import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.wire import Wire
from escrowmq.codec.compression import compress
from escrowmq.codec.frame import PartialFrames
from escrowmq.delivery.topics import TopicConfig
from escrowmq.http2 import frames
from escrowmq.http2.limits import STRANGERS_STREAMS_MAX, STREAMS_MAX
from escrowmq.proxy import clients
from escrowmq.proxy.gen import health, v2
from escrowmq.proxy.open_calls import OpenCallsLimit
from escrowmq.testing.disk import SimDisk

from .client import V5, World, message
from .test_accounts import FILE, signed


def make() -> tuple[World, V5]:
    world = World()
    world.topic("T")
    return world, world.connect()


def test_a_message_that_is_not_ended_ends_the_connection() -> None:
    world, client = make()
    number = client.begin("SendMessage", timeout_s=9_999)
    client._feed(client.data(number, struct.pack(">BI", 0, 1_000)))
    for _ in range(12):
        world.exchange.advance(10_000)
        if client.closed is None:
            client._feed(client.data(number, b"x"))
    assert client.closed == "something was begun and not ended"


def test_a_frame_that_is_not_ended_ends_the_connection() -> None:
    world, client = make()
    client._feed(frames.encode_frame(frames.FrameKind.DATA, b"x" * 100, stream_id=1)[:50])
    world.exchange.advance(90_000)
    assert client.closed == "something was begun and not ended"


def test_a_preface_that_is_not_ended_ends_the_connection() -> None:
    world, _ = make()
    client = V5.__new__(V5)
    client.closed, client.id, client.streams = None, 999, {}
    world.exchange.callers[999] = client  # type: ignore[assignment]
    world.exchange.core.connected(999, "10.0.0.9", 1, world.exchange.now_ms, Wire.GRPC)
    world.exchange.feed(client, frames.PREFACE[:5])  # type: ignore[arg-type]
    world.exchange.advance(90_000)
    assert client.closed == "something was begun and not ended"


def test_large_messages_one_after_another_are_fine() -> None:
    world, client = make()
    for nth in range(12):
        number = client.begin("SendMessage")
        data = v2.SendMessageRequest(messages=[message("T", b"x" * 100_000)]).SerializeToString()
        framed = struct.pack(">BI", 0, len(data)) + data
        client._feed(client.data(number, framed[:16_000]))
        world.exchange.advance(10_000)
        for at in range(16_000, len(framed), 16_000):
            part = framed[at : at + 16_000]
            client._feed(client.data(number, part, is_end=at + 16_000 >= len(framed)))
        assert client.streams[number].is_over, nth
    assert client.closed is None


@pytest.mark.parametrize("count", [3])
def test_of_all_that_hold_too_much_the_first_is_given_up(count: int) -> None:
    world, _ = make()
    world.front.room = PartialFrames(250_000)
    clients = [world.connect(f"c{nth}") for nth in range(count)]
    for client in clients:
        number = client.begin("SendMessage")
        client._feed(client.data(number, struct.pack(">BI", 0, 1_000_000)))
        for _ in range(7):
            client._feed(client.data(number, b"x" * 16_000))
    assert [client.closed is not None for client in clients] == [True, False, False]
    assert world.front.room.size <= 250_000


def test_little_is_unpacked_for_one_call() -> None:
    world, sender = make()
    bomb = gzip.compress(bytes(4_000_000))
    packed = message("T", bomb)
    packed.system_properties.body_encoding = v2.GZIP
    codes = {sender.send(*[packed] * count).status.code for count in (3, 20)}
    assert codes == {v2.MESSAGE_CORRUPTED}
    large = message("T", gzip.compress(bytes(5_000_000)))
    large.system_properties.body_encoding = v2.GZIP
    assert sender.send(large).status.code == v2.MESSAGE_BODY_TOO_LARGE
    body, flag = compress(bytes(3_000_000), form="zlib", level=9)
    remoting = world.exchange.connect()
    for _ in range(4):
        remoting.send("T", body, fields={"f": str(flag)})
    found = sender.received("T")
    assert [len(one.body) for one in found] == [3_000_000, 3_000_000, len(body), len(body)]
    kinds = [one.system_properties.body_encoding for one in found]
    assert kinds == [v2.IDENTITY, v2.IDENTITY, v2.GZIP, v2.GZIP]


def test_a_broken_body_does_not_spoil_the_ones_after_it() -> None:
    world, client = make()
    remoting = world.exchange.connect()
    body, flag = compress(b"a long body " * 2_000, form="zlib", level=3)
    broken = [b"\x00broken", b"plain text " * 10_000, body[:-1], body[:50] + bytes(20) + body[70:]]
    for each in [*broken, gzip.compress(b"cut short" * 500)[:-9], body]:
        remoting.send("T", each, fields={"f": str(flag)})
    *spoiled, last = client.received("T")
    assert {one.system_properties.body_encoding for one in spoiled} == {v2.GZIP}
    assert (last.body, last.system_properties.body_encoding) == (
        b"a long body " * 2_000, v2.IDENTITY,
    )  # fmt: skip


def test_many_bodies_that_break_late_are_not_all_tried() -> None:
    world, client = make()
    remoting = world.exchange.connect()
    body, flag = compress(bytes(3_000_000), form="zlib", level=9)
    small, _ = compress(b"small " * 100, form="zlib", level=9)
    for each in [body[:-1]] * 3 + [small]:
        remoting.send("T", each, fields={"f": str(flag)})
    found = client.received("T")
    assert [one.body for one in found] == [body[:-1]] * 3 + [small]


def test_a_stranger_has_few_clients() -> None:
    disk = SimDisk()
    disk.small["plain_acl.yml"] = FILE
    world = World(BrokerSettings(acl_enabled=True), disk=disk)
    stranger = world.connect()
    for nth in range(40):
        stranger.client_id = f"c{nth}"
        stranger.send(message("T"))
    assert len(world.front.clients) == 16


def guarded() -> World:
    disk = SimDisk()
    disk.small["plain_acl.yml"] = FILE
    world = World(BrokerSettings(acl_enabled=True), disk=disk)
    topic = TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1)
    world.exchange.core.broker.topics.put(topic, world.exchange.now_ms)
    return world


def open_calls(client: V5, count: int, size: int) -> list[int]:
    """Calls that are begun with so many bytes of fields, and go no further."""
    client.metadata = {"x-more": size * "a"}
    return [begin_watch(client) for _ in range(count)]


def begin_watch(client: V5) -> int:
    return client.begin("Watch", service="/grpc.health.v1.Health/", timeout_s=9_999)


def test_open_calls_of_strangers_are_bounded_in_sum() -> None:
    world = guarded()
    probe = world.connect("")
    world.front.strangers_calls = OpenCallsLimit(2_000_000)
    probe.write(begin_watch(probe), health.HealthCheckRequest())
    strangers = [world.connect(f"c{nth}") for nth in range(5)]
    for stranger in strangers:
        open_calls(stranger, 50, 14_000)
        assert world.front.strangers_calls.size <= 2_000_000
    assert [each.closed is None for each in strangers].count(True) == 2
    reasons = [each.closed for each in strangers if each.closed is not None]
    assert all("the open calls of all strangers" in reason for reason in reasons)
    assert probe.closed is None
    for stranger in strangers:
        if stranger.closed is None:
            stranger.leave()
    probe.leave()
    assert world.front.strangers_calls.size == 0


def test_a_stranger_has_fewer_streams_until_a_call_has_passed() -> None:
    world = guarded()
    client = world.connect("c")
    assert client.streams_max == STRANGERS_STREAMS_MAX
    numbers = open_calls(client, STRANGERS_STREAMS_MAX + 1, 10)
    assert [client.streams[number].is_over for number in numbers].count(True) == 1
    for number in numbers:
        client.cancel(number)
    client.metadata = signed("owner-1")
    assert client.send(message("T")).status.code == v2.OK
    assert client.streams_max == STREAMS_MAX
    assert world.front.strangers_calls.size == 0
    numbers = open_calls(client, STRANGERS_STREAMS_MAX + 1, 10)
    assert not any(client.streams[number].is_over for number in numbers)


@pytest.mark.parametrize(("is_known", "closed"), [
    (False, "something was begun and not ended"), (True, None),
])  # fmt: skip
def test_a_call_of_a_stranger_has_to_ask_something(*, is_known: bool, closed: str | None) -> None:
    world = guarded()
    client = world.connect("c", metadata=signed("owner-1") if is_known else {})
    client.send(message("T"))
    open_calls(client, 1, 10)
    world.exchange.advance(90_000)
    assert client.closed == closed


def test_frames_that_are_half_there_count() -> None:
    world = guarded()
    callers = [world.connect(f"c{nth}") for nth in range(20)]
    for client in callers:
        client._feed(frames.encode_frame(frames.FrameKind.DATA, b"x" * 16_000, stream_id=1)[:-1])
    assert world.front.strangers_room.size > 20 * 16_000
    for client in callers:
        client.leave()
    assert world.front.strangers_room.size == 0


def test_what_nobody_takes_counts_too() -> None:
    world, _ = make()
    sender = world.connect("sender")
    for _ in range(3):
        sender.send(message("T", b"x" * 60_000))
    slow = world.connect("slow", is_slow=True)
    slow.receive("T")  # its window is 65,535 bytes
    assert world.front.room.size > 100_000
    slow.leave()
    assert world.front.room.size == 0


def test_others_have_their_turn_between_calls_that_cost_much() -> None:
    world, client = make()
    one = message("T", keys=[f"{nth}" for nth in range(2_000)])
    data = v2.SendMessageRequest(messages=[one]).SerializeToString()
    framed = struct.pack(">BI", 0, len(data)) + data
    numbers = [client.begin("SendMessage") for _ in range(60)]
    before = world.exchange.holds_count
    client._feed(b"".join(client.data(number, framed, is_end=True) for number in numbers))
    assert world.exchange.holds_count > before
    assert all(client.streams[number].code == 0 for number in numbers)


def test_clients_that_have_left_make_room_on_their_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clients, "GRPC_CLIENTS_OF_CONNECTION_MAX", 3)
    _, client = make()
    for nth in range(8):
        client.client_id = f"c{nth}"
        stream = client.produce("T")
        assert not client.streams[stream].is_over, client.streams[stream].fields
        request, kind = v2.NotifyClientTerminationRequest(), v2.NotifyClientTerminationResponse
        assert client.ask("NotifyClientTermination", request, kind).status.code == v2.OK
        client.cancel(stream)


def test_silent_clients_make_room_on_their_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a proxy, whose connection stays. One with a stream is not silent."""
    monkeypatch.setattr(clients, "GRPC_CLIENTS_OF_CONNECTION_MAX", 3)
    world, client = make()
    client.client_id = "reached"
    stream = client.produce("T")
    for nth in range(2):
        client.client_id = f"c{nth}"
        assert client.send(message("T")).status.code == v2.OK
    client.client_id = "one more"
    assert client.send(message("T")).status.code == v2.TOO_MANY_REQUESTS
    world.exchange.advance(130_000)
    assert client.send(message("T")).status.code == v2.OK
    assert {each.key.id for each in world.front.clients.registered_clients()} == {
        "reached",
        "one more",
    }
    assert not client.streams[stream].is_over
