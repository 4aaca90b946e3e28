from __future__ import annotations

import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import FAQ, Request
from escrowmq.base.command import Command
from escrowmq.codec.ids import offset_id
from tests.harness.exchange import Caller, Exchange

RETRY, DEAD = "%RETRY%CG", "%DLQ%CG"


@pytest.fixture(name="exchange")
def make_exchange() -> Exchange:
    return Exchange()


@pytest.fixture(name="client")
def make_client(exchange: Exchange) -> Caller:
    client = exchange.connect()
    client.send("T", b"hard", fields={"h": "7"}, TAGS="a", KEYS="k", UNIQ_KEY="U1")
    return client


def send_back(client: Caller, level: int = 0, offset: int = 0, **more: str) -> Command:
    ext = {"offset": str(offset), "group": "CG", "delayLevel": str(level), "originTopic": "T"}
    return client.ask(Request.CONSUMER_SEND_MSG_BACK, ext | more)


def test_message_comes_again_after_ten_seconds_with_one_more_try(
    exchange: Exchange, client: Caller
) -> None:
    reply = send_back(client)
    assert (reply.code, reply.ext) == (0, None)
    exchange.advance(9_900)
    assert client.bodies(RETRY) == []
    exchange.advance(200)
    (again,) = client.messages(RETRY)
    assert (again.body, again.flag, again.reconsume_times) == (b"hard", 7, 1)
    source = client.messages("T")[0]
    assert again.properties["RETRY_TOPIC"] == "T"
    assert again.properties["ORIGIN_MESSAGE_ID"] == offset_id(source.store_host, source.log_offset)
    assert again.properties["TAGS"] == "a"
    assert again.properties["WAIT"] == "false"
    assert (again.born_ms, again.born_host) == (source.born_ms, source.born_host)


def test_later_tries_wait_longer_and_remember_where_they_began(
    exchange: Exchange, client: Caller
) -> None:
    send_back(client)
    exchange.advance(10_100)
    (first,) = client.messages(RETRY)
    send_back(client, offset=first.log_offset)
    exchange.advance(29_000)
    assert len(client.bodies(RETRY)) == 1
    exchange.advance(1_100)
    second = client.messages(RETRY)[1]
    assert second.reconsume_times == 2
    for name in ("RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "UNIQ_KEY"):
        assert second.properties[name] == first.properties[name]


def test_level_that_the_consumer_wishes_is_taken(exchange: Exchange, client: Caller) -> None:
    send_back(client, level=1)
    exchange.advance(1_100)
    assert client.bodies(RETRY) == [b"hard"]


def test_negative_level_means_dead_letter_at_once(exchange: Exchange, client: Caller) -> None:
    send_back(client, level=-1)
    (dead,) = client.messages(DEAD)
    assert (dead.body, dead.reconsume_times) == (b"hard", 1)
    assert "DELAY" not in dead.properties
    config = exchange.core.broker.topics.get(DEAD)
    assert config is not None
    assert (config.write_queue_nums, config.perm) == (1, 6)


def test_tries_are_limited_by_the_group(exchange: Exchange) -> None:
    client = exchange.connect()
    client.send("T", b"tired", fields={"j": "16"})
    client.send("T", b"fresh", fields={"j": "15"})
    tired, fresh = client.messages("T")
    send_back(client, offset=tired.log_offset)
    send_back(client, offset=fresh.log_offset)
    assert client.bodies(DEAD) == [b"tired"]


@pytest.mark.parametrize(("version", "is_dead"), [(479, True), (120, False)])
def test_tries_are_limited_by_the_request_of_a_newer_client(
    client: Caller, version: int, is_dead: bool
) -> None:
    client.version = version
    send_back(client, maxReconsumeTimes="0")
    assert client.bodies(DEAD) == ([b"hard"] if is_dead else [])


def test_refusals(exchange: Exchange, client: Caller) -> None:
    reply = send_back(client, offset=999_999)
    assert (reply.code, reply.remark) == (1, "look message by offset failed, 999999")
    assert send_back(client, offset=3).code == 1
    exchange.settings.permission = 4
    reply = send_back(client)
    remark = "the broker[127.0.0.1] sending message is forbidden"
    assert (reply.code, reply.remark) == (16, remark)


def test_a_group_whose_retry_topic_cannot_be_stored_is_refused(
    exchange: Exchange, client: Caller
) -> None:
    """RocketMQ accepts the message, and loses it when it is due."""
    reply = send_back(client, group="g" * 249)
    assert reply.code == 1
    assert "a name of 256 characters, 255 are allowed" in (reply.remark or "")
    assert send_back(client, level=1, group="g" * 248).code == 0
    exchange.advance(2_000)
    assert client.bodies("%RETRY%" + "g" * 248) == [b"hard"]


def test_unknown_group_is_refused() -> None:
    reply = send_back(Exchange(BrokerSettings(creates_groups=False)).connect())
    assert (reply.code, reply.remark) == (26, f"subscription group not exist, CG {FAQ}")


def test_retry_topic_that_is_not_writable_is_refused(exchange: Exchange, client: Caller) -> None:
    exchange.create_topic(RETRY, perm="4")
    reply = send_back(client)
    assert (reply.code, reply.remark) == (16, f"the topic[{RETRY}] sending message is forbidden")


def test_group_without_retries_keeps_nothing(exchange: Exchange, client: Caller) -> None:
    body = b'{"groupName":"CG","retryQueueNums":0}'
    client.ask(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    before = exchange.core.broker.store.end_offset
    assert send_back(client).code == 0
    assert exchange.core.broker.store.end_offset == before


def test_full_disk_is_told_with_1(exchange: Exchange, client: Caller) -> None:
    exchange.disk.used_percent = 95
    exchange.advance(10_100)
    assert send_back(client).code == 1
