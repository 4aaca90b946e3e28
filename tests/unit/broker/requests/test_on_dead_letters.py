from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from escrowmq.base.codes import Request
from escrowmq.testing.disk import CrashLoss
from tests.harness.exchange import SMALL, Caller, Exchange
from tests.unit.broker.consumer import PopConsumer
from tests.unit.broker.world import World

RETRY, DEAD = "%RETRY%CG", "%DLQ%CG"


def kill(client: Caller, log_offset: int, topic: str = "T") -> None:
    """A consumer gives a message up at once."""
    ext = {"offset": str(log_offset), "group": "CG", "delayLevel": "-1", "originTopic": topic}
    assert client.ask(Request.CONSUMER_SEND_MSG_BACK, ext).code == 0


def with_letters(count: int = 3, **settings: Any) -> tuple[Exchange, Caller]:
    exchange = Exchange(**settings)
    client = exchange.connect()
    for number in range(count):
        topic = "T" if number % 2 == 0 else "U"
        client.send(topic, b"%d" % number, fields={"h": "7"}, UNIQ_KEY=f"K{number}", TAGS="a")
        kill(client, client.messages(topic)[-1].log_offset, topic)
    assert client.bodies(DEAD) == [b"%d" % number for number in range(count)]
    return exchange, client


def redeliver(client: Caller, **wanted: object) -> dict[str, Any]:
    body = json.dumps({"group": "CG", **wanted}).encode()
    reply = client.ask(Request.ESCROW_REDELIVER_DEAD, body=body)
    assert reply.code == 0, reply.remark
    found: dict[str, Any] = json.loads(reply.body)
    return found


def statuses(page: dict[str, Any]) -> list[str]:
    return [item["status"] for item in page["items"]]


def test_a_copy_goes_to_the_group_alone_and_counts_its_attempts_anew() -> None:
    _, client = with_letters(1)
    page = redeliver(client)
    assert (statuses(page), page["next"]) == (["redelivered"], -1)
    assert (page["items"][0]["messageId"], page["items"][0]["topic"]) == ("K0", "T")
    (copy,) = client.messages(RETRY)
    assert (copy.body, copy.flag, copy.reconsume_times) == (b"0", 7, 0)
    assert copy.properties["RETRY_TOPIC"] == "T"
    assert (copy.properties["TAGS"], copy.properties["UNIQ_KEY"]) == ("a", "K0")
    assert client.bodies("T") == [b"0"], "no other group sees it again"


def test_a_dry_run_changes_nothing() -> None:
    _, client = with_letters()
    assert statuses(redeliver(client, isDryRun=True)) == ["dead"] * 3
    assert client.bodies(RETRY) == []


@pytest.mark.parametrize("is_sync_flush", [False, True])
def test_each_letter_is_given_back_once(is_sync_flush: bool) -> None:
    store_settings = msgspec.structs.replace(SMALL, is_sync_flush=is_sync_flush)
    _, client = with_letters(store_settings=store_settings)
    assert statuses(redeliver(client, limit=2)) == ["redelivered"] * 2
    assert statuses(redeliver(client)) == ["done", "done", "redelivered"]
    assert statuses(redeliver(client)) == ["done"] * 3
    assert client.bodies(RETRY) == [b"0", b"1", b"2"]


def test_also_after_a_crash_in_between() -> None:
    exchange, client = with_letters()
    redeliver(client, limit=2)
    exchange.crash(CrashLoss.NOTHING)
    client = exchange.connect()
    assert statuses(redeliver(client)) == ["done", "done", "redelivered"]
    assert client.bodies(RETRY) == [b"0", b"1", b"2"]


def test_one_that_dies_again_is_another_letter() -> None:
    _, client = with_letters(1)
    redeliver(client)
    kill(client, client.messages(RETRY)[0].log_offset)
    assert statuses(redeliver(client)) == ["done", "redelivered"]
    assert client.bodies(RETRY) == [b"0", b"0"]
    assert client.messages(RETRY)[1].properties["RETRY_TOPIC"] == "T"


def test_letters_of_one_topic_are_chosen() -> None:
    _, client = with_letters(4)
    page = redeliver(client, topic="U")
    assert [item["queueOffset"] for item in page["items"]] == [1, 3]
    assert client.bodies(RETRY) == [b"1", b"3"]
    assert statuses(redeliver(client)) == ["redelivered", "done", "redelivered", "done"]


def test_pages_lead_on_and_end_where_they_are_told() -> None:
    _, client = with_letters(4)
    page = redeliver(client, limit=1)
    assert page["next"] == 1
    assert redeliver(client, begin=1, end=2) == {"items": [page["items"][0] | {
        "messageId": "K1", "topic": "U", "queueOffset": 1, "offsetId": client_id(client, 1),
        "diedMs": client.messages(DEAD)[1].stored_ms,
    }], "next": 2}  # fmt: skip
    assert redeliver(client, begin=9) == {"items": [], "next": -1}
    assert redeliver(client, queueId=5) == {"items": [], "next": -1}


def client_id(client: Caller, number: int) -> str:
    items: list[dict[str, Any]] = redeliver(client, isDryRun=True)["items"]
    return str(items[number]["offsetId"])


def test_what_was_popped_goes_where_pops_read() -> None:
    world = World()
    world.topic()
    consumer = PopConsumer(world, group="CG")
    world.send("a")
    for redelivery in range(2):
        (got,) = consumer.pop()
        assert (got.body, got.topic) == ("a", "T")
        stored = world.messages("%RETRY%CG_T" if redelivery else "T")[-1]
        if redelivery:
            fields = {"offset": stored.log_offset, "group": "CG", "delayLevel": -1}
            assert world.ask(Request.CONSUMER_SEND_MSG_BACK, fields).code == 0
            consumer.ack(got)
        world.run(60_000)
    assert consumer.pop() == []
    body = json.dumps({"group": "CG"}).encode()
    reply = world.ask(Request.ESCROW_REDELIVER_DEAD, {}, body)
    assert json.loads(reply.body)["items"][0]["topic"] == "T"
    (got,) = consumer.pop()
    assert (got.body, got.reconsume_times) == ("a", 0)
    assert consumer.pop() == []


@pytest.mark.parametrize("body", [b"{}", b'{"group":""}', b'{"group":"G","limit":0}', b"["])
def test_bad_bodies_are_refused(body: bytes) -> None:
    assert Exchange().connect().ask(Request.ESCROW_REDELIVER_DEAD, body=body).code == 1
