"""Signatures as v5 clients send them, judged by the door of all."""

from __future__ import annotations

import datetime as dt
import hmac

import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.delivery.topics import TopicConfig
from escrowmq.proxy.gen import v2
from escrowmq.testing.disk import SimDisk

from .client import V5, World, message, status_of

SECRET = "secret-of-all"
FILE = f"""
accounts:
- {{accessKey: operator, secretKey: {SECRET}, admin: true}}
- accessKey: owner-1
  secretKey: {SECRET}
  topicPerms: [T=PUB|SUB, H=PUB|SUB]
  groupPerms: [CG=SUB, H=PUB]
- {{accessKey: owner-2, secretKey: {SECRET}, topicPerms: [U=PUB]}}
""".encode()
USERS = b"""{"users": [
  {"username": "operator", "password": "secret-of-all", "userType": "Super"},
  {"username": "owner-1", "password": "secret-of-all"},
  {"username": "owner-2", "password": "secret-of-all"}],
 "acls": [{"subject": "User:owner-1", "policies": [{"policyType": "CUSTOM", "entries": [
  {"resource": "Topic:T", "actions": ["Pub", "Sub"], "decision": "Allow"},
  {"resource": "Topic:H", "actions": ["Pub", "Sub"], "decision": "Allow"},
  {"resource": "Group:H", "actions": ["Pub"], "decision": "Allow"},
  {"resource": "Group:CG", "actions": ["Sub"], "decision": "Allow"}]}]},
  {"subject": "User:owner-2", "policies": [{"policyType": "CUSTOM", "entries": [
  {"resource": "Topic:U", "actions": ["Pub"], "decision": "Allow"}]}]}]}"""


def signed(key: str, secret: str = SECRET, date: str = "20260101T000000Z") -> dict[str, str]:
    signature = hmac.digest(secret.encode(), date.encode(), "sha1").hex().upper()
    return {
        "x-mq-date-time": date,
        "authorization": f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, "
        f"Signature={signature}",
    }


@pytest.fixture(name="world", params=["1.0", "2.0"])
def make_world(request: pytest.FixtureRequest) -> World:
    disk = SimDisk()
    disk.small["plain_acl.yml"] = FILE
    disk.small["config/auth.json"] = USERS
    is_new = request.param == "2.0"
    settings = BrokerSettings(acl_enabled=not is_new, authenticates=is_new, authorizes=is_new)
    world = World(settings, disk=disk)
    for topic, kind in (("T", "NORMAL"), ("H", "TRANSACTION")):
        config = TopicConfig(
            topic_name=topic, read_queue_nums=1, write_queue_nums=1,
            attributes={"message.type": kind},
        )  # fmt: skip
        world.exchange.core.broker.topics.put(config, world.exchange.now_ms)
    return world


def client_of(world: World, key: str, secret: str = SECRET) -> V5:
    return world.connect(f"client-of-{key}", metadata=signed(key, secret) if key else {})


def test_an_account_does_what_it_may(world: World) -> None:
    client = client_of(world, "owner-1")
    client.consume("CG", "T")
    assert client.send(message("T")).status.code == v2.OK
    (found,) = client.received("T")
    assert client.ack(found).code == v2.OK


def test_a_lowercase_signature_and_a_longer_credential_are_fine(world: World) -> None:
    fields = signed("owner-1")
    fields["authorization"] = fields["authorization"].replace("=owner-1,", "=owner-1/x/RocketMQ,")
    head, signature = fields["authorization"].rsplit("=", 1)
    fields["authorization"] = f"{head}={signature.lower()}"
    assert world.connect(metadata=fields).send(message("T")).status.code == v2.OK


@pytest.mark.parametrize(
    ("key", "secret"),
    [("", ""), ("owner-1", "another secret"), ("nobody", SECRET), ("owner-2", SECRET)],
)
def test_all_others_are_refused_everywhere(world: World, key: str, secret: str) -> None:
    client = client_of(world, key, secret)
    request = v2.QueryRouteRequest()
    request.topic.name = "T"
    route = client.ask("QueryRoute", request, v2.QueryRouteResponse)
    assert (route.status.code, len(route.message_queues)) == (v2.UNAUTHORIZED, 0)
    assert client.send(message("T")).status.code == v2.UNAUTHORIZED
    assert status_of(client.receive("T")).code == v2.UNAUTHORIZED
    stream = client.streams[client.consume("CG", "T")]
    assert stream.code == 16
    assert client_of(world, "owner-1").send(message("T")).entries[0].offset == 0


def test_nobody_is_shown_or_ends_the_halves_of_others(world: World) -> None:
    owner, other = client_of(world, "owner-1"), client_of(world, "owner-2")
    theirs = other.produce("H")
    name = owner.send(message("H", kind=v2.TRANSACTION)).entries[0].transaction_id
    world.exchange.advance(60_000)
    assert len(other.told(theirs)) == 1  # its settings
    own = owner.produce("H")
    world.exchange.advance(60_000)
    assert len(owner.told(own)) > 1
    assert other.end("H", name, v2.COMMIT).code == v2.UNAUTHORIZED
    assert owner.end("H", name, v2.COMMIT).code == v2.OK


def test_nobody_steps_into_the_place_of_another_by_its_client_id(world: World) -> None:
    owner = client_of(world, "owner-1")
    owner.consume("CG", "T")
    for fields in ({}, signed("owner-1", "wrong"), signed("owner-2")):
        thief = world.connect(owner.client_id, metadata=fields)
        stream = thief.streams[thief.consume("CG", "T")]
        assert stream.is_over
        request = v2.NotifyClientTerminationRequest()
        kind = v2.NotifyClientTerminationResponse
        assert thief.ask("NotifyClientTermination", request, kind).status.code != v2.OK
    beat = owner.ask("Heartbeat", v2.HeartbeatRequest(), v2.HeartbeatResponse)
    assert beat.status.code == v2.OK


def at_present(world: World, key: str) -> dict[str, str]:
    moment = dt.datetime.fromtimestamp(world.exchange.now_ms / 1_000, dt.UTC)
    return signed(key, date=moment.strftime("%Y%m%dT%H%M%SZ"))


def producers(world: World, group: str) -> int:
    return len(world.exchange.core.broker.clients.producers.get(group, {}))


def test_a_stream_outlives_the_window_of_the_signature_that_opened_it(world: World) -> None:
    settings = world.exchange.core.broker.settings
    settings.signature_window_s = 900
    client = world.connect(metadata=at_present(world, "owner-1"))
    stream, stale = client.produce("H"), client.metadata
    for _ in range(20):
        world.exchange.advance(60_000)
        client.metadata = at_present(world, "owner-1")
        beat = client.ask("Heartbeat", v2.HeartbeatRequest(), v2.HeartbeatResponse)
        assert beat.status.code == v2.OK
    again = v2.Settings(client_type=v2.PRODUCER)  # as every client does, every five minutes
    again.publishing.topics.add(name="H")
    client.write(stream, v2.TelemetryCommand(settings=again))
    assert not client.streams[stream].is_over, client.streams[stream].fields
    assert producers(world, "H") == 1
    client.cancel(stream)
    assert producers(world, "H") == 0
    client.metadata = stale
    assert client.streams[client.produce("H")].code == 16
    assert producers(world, "H") == 0


def test_a_producer_whose_account_is_gone_is_not_listed_after_its_stream() -> None:
    disk = SimDisk()
    disk.small["config/auth.json"] = USERS
    world = World(BrokerSettings(authenticates=True, authorizes=True), disk=disk)
    client = client_of(world, "owner-1")
    stream = client.produce("H")
    assert producers(world, "H") == 1
    operator = world.exchange.connect("operator")
    operator.credentials = ("operator", SECRET)
    assert operator.ask(Request.AUTH_DELETE_USER, {"username": "owner-1"}).code == 0
    client.cancel(stream)
    assert producers(world, "H") == 0


def test_strangers_may_not_send_large_messages(world: World) -> None:
    stranger = client_of(world, "")
    large = v2.SendMessageRequest(messages=[message("T", bytes(3_000_000)) for _ in range(3)])
    stream = stranger.start("SendMessage", large)
    assert stream.code == 8
    client = client_of(world, "owner-1")
    assert client.send(message("T")).status.code == v2.OK
    assert len(client.send(*large.messages).entries) == 3


def test_rates_count_these_calls_too() -> None:
    world = World(BrokerSettings(requests_per_s=5))
    world.topic("T")
    world.exchange.advance(10_000)
    codes = [world.connect("a").send(message("T")).status.code for _ in range(8)]
    assert codes == [v2.OK] * 5 + [v2.TOO_MANY_REQUESTS] * 3
