from __future__ import annotations

import json
from typing import Any

import pytest

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.codec.command import encode_reply
from escrowmq.delivery.assignment import PATH
from escrowmq.testing.disk import DescriptorShortage
from tests.unit.broker.world import World

NAME_SERVER = -1


@pytest.fixture
def world() -> World:
    made = World()
    made.topic("T", queues=4)
    return made


def join(world: World, *client_ids: str, group: str = "G") -> None:
    for index, client_id in enumerate(client_ids):
        body = {
            "clientID": client_id,
            "consumerDataSet": [
                {
                    "groupName": group,
                    "subscriptionDataSet": [{"topic": "T", "subString": "*", "subVersion": 1}],
                }
            ],
        }
        peer = 50 + index
        world.tell(Request.HEART_BEAT, body=json.dumps(body).encode(), peer=peer)
        assert any(reply.flag & 1 for reply in world.take_replies(peer))


def query(client_id: str = "a", **more: str) -> bytes:
    body = {
        "topic": "T", "consumerGroup": "G", "clientId": client_id,
        "messageModel": "CLUSTERING", "strategyName": "AVG", **more,
    }  # fmt: skip
    return json.dumps(body).encode()


def queues(reply: Command) -> list[tuple[str, int, str]]:
    assert reply.code == 0
    assigned: list[dict[str, Any]] = json.loads(reply.body)["messageQueueAssignments"]
    return sorted(
        (one["messageQueue"]["brokerName"], one["messageQueue"]["queueId"], one["mode"])
        for one in assigned
    )


def test_clients_of_a_group_share_the_queues(world: World) -> None:
    join(world, "b", "a")
    first = queues(world.ask(Request.QUERY_ASSIGNMENT, body=query("a")))
    second = queues(world.ask(Request.QUERY_ASSIGNMENT, body=query("b")))
    assert first == [("broker-a", 0, "PULL"), ("broker-a", 1, "PULL")]
    assert second == [("broker-a", 2, "PULL"), ("broker-a", 3, "PULL")]
    everything = queues(
        world.ask(Request.QUERY_ASSIGNMENT, body=query("a", messageModel="BROADCASTING"))
    )
    assert everything == first + second


def test_nothing_is_said_about_what_is_unknown(world: World) -> None:
    assert world.ask(Request.QUERY_ASSIGNMENT, body=query()).body == b"{}"
    join(world, "a")
    for more in ({"topic": "U"}, {"strategyName": "MACHINE_ROOM"}, {"consumerGroup": "H"}):
        reply = world.ask(Request.QUERY_ASSIGNMENT, body=query(**more))
        assert (reply.code, reply.body) == (0, b"{}")


def test_a_mode_is_set_listed_and_kept(world: World) -> None:
    join(world, "a")
    mode = {"consumerGroup": "G", "mode": "POP", "popShareQueueNum": 8, "topic": "T"}
    body = json.dumps(mode).encode()
    assert world.ask(Request.SET_MESSAGE_REQUEST_MODE, body=body).code == 0
    listed = {"messageRequestModeMap": {"T": {"G": mode}}}
    assert json.loads(world.ask(Request.GET_ALL_MESSAGE_REQUEST_MODE).body) == listed
    assert json.loads(world.disk.read(PATH) or b"") == listed
    world.crash()
    join(world, "a")
    reply = world.ask(Request.QUERY_ASSIGNMENT, body=query())
    assert queues(reply) == [("broker-a", -1, "POP")]


def test_a_mode_that_is_not_kept_is_neither_answered_nor_followed(world: World) -> None:
    join(world, "a")
    mode = {"consumerGroup": "G", "mode": "POP", "popShareQueueNum": 8, "topic": "T"}
    before = world.ask(Request.GET_ALL_MESSAGE_REQUEST_MODE).body
    world.disk.shortage = DescriptorShortage.ALL_GONE
    reply = world.ask(Request.SET_MESSAGE_REQUEST_MODE, body=json.dumps(mode).encode())
    assert (reply.code, reply.remark) == (1, f"{PATH}: Too many open files")
    assert world.ask(Request.GET_ALL_MESSAGE_REQUEST_MODE).body == before
    world.disk.shortage = None
    assert world.ask(Request.SET_MESSAGE_REQUEST_MODE, body=json.dumps(mode).encode()).code == 0


def test_modes_that_cannot_be_set(world: World) -> None:
    def refusal(**more: str) -> tuple[int, str | None]:
        mode = {"consumerGroup": "G", "mode": "POP", "popShareQueueNum": 8, "topic": "T", **more}
        reply = world.ask(Request.SET_MESSAGE_REQUEST_MODE, body=json.dumps(mode).encode())
        return reply.code, reply.remark

    assert refusal(topic="%RETRY%G") == (16, "retry topic is not allowed to set mode")
    assert refusal(topic="U") == (17, "topic[U] not exist")
    assert refusal(consumerGroup="no group!") == (26, "subscription group does not exist")


def test_queues_of_other_brokers_are_asked_for(world: World) -> None:
    world.settings["name_servers"] = "127.0.0.1:9876"
    world.restart()
    join(world, "a")
    world.core.connected(NAME_SERVER, "127.0.0.1", 9876, world.now_ms)
    world.perform()
    world.take_replies(NAME_SERVER)
    world.tell(Request.QUERY_ASSIGNMENT, body=query())
    world.tell(Request.QUERY_ASSIGNMENT, body=query())
    assert world.take_replies() == []
    asked = world.reply(NAME_SERVER)
    assert (asked.code, (asked.ext or {})["topic"]) == (Request.GET_ROUTEINFO_BY_TOPIC, "T")
    datas = [
        {"brokerName": "broker-a", "perm": 6, "readQueueNums": 8, "writeQueueNums": 8},
        {"brokerName": "broker-b", "perm": 6, "readQueueNums": 1, "writeQueueNums": 1},
        {"brokerName": "broker-c", "perm": 2, "readQueueNums": 1, "writeQueueNums": 1},
    ]
    body = json.dumps({"brokerDatas": [], "queueDatas": datas}).encode()
    world.feed(encode_reply(asked, 0, body=body), NAME_SERVER)
    own = [("broker-a", index, "PULL") for index in range(4)]
    for reply in world.take_replies():
        assert queues(reply) == [*own, ("broker-b", 0, "PULL")]
    assert len(queues(world.ask(Request.QUERY_ASSIGNMENT, body=query()))) == 5  # remembered
    world.run(30_000)
    join(world, "a")
    world.take_replies(NAME_SERVER)
    world.tell(Request.QUERY_ASSIGNMENT, body=query())
    world.run(3_000)  # no answer: the queues of before will do
    assert len(queues(world.reply())) == 5
