"""A cluster in which one broker has no master just now: what can be read there, and what is told to
whoever wants to change something."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import msgspec
import pytest

from escrowmq.aio import Admin
from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.message import StoredMessage
from escrowmq.client.core.routes import MessageQueue
from escrowmq.codec.record import encode_message
from escrowmq.codec.routes import BrokerData, QueueData, TopicRoute, encode_route
from escrowmq.errors import PermissionDenied, RouteMissing, TopicNotFound, UsageError
from tests.unit.client.peer import DEADLINE_S, Link, Peer, a_peer


class Place(NamedTuple):
    """The broker `a` with a master, and `b` of which a slave is left."""

    admin: Admin
    names: Peer
    master_of_a: Peer
    slave_of_b: Peer


def record(broker: str) -> bytes:
    message = StoredMessage(
        topic="T", body=broker.encode(), queue_id=0, queue_offset=0, log_offset=1_000,
        stored_ms=ord(broker), record_size=0, properties={"KEYS": "k"},
    )  # fmt: skip
    return encode_message(message)


def serve(peer: Peer, broker: str) -> None:
    """Answer an operator as a broker that has the topic T with one queue."""
    config = {"topicName": "T", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    bounds = {"minOffset": 0, "maxOffset": 1, "lastUpdateTimestamp": 1}
    queue = f'{{"brokerName":"{broker}","queueId":0,"topic":"T"}}'
    progress = {"brokerOffset": 3, "consumerOffset": 1}
    lags = f'{{"offsetTable":{{{queue}:{msgspec.json.encode(progress).decode()}}}}}'.encode()
    online = {"connectionSet": [{"clientId": f"of {broker}"}]}
    groups = {"subscriptionGroupTable": {"g": {"groupName": "g"}}}
    stats = f'{{"offsetTable":{{{queue}:{msgspec.json.encode(bounds).decode()}}}}}'.encode()
    bodies = {
        Request.GET_TOPIC_CONFIG: msgspec.json.encode(config),
        Request.GET_TOPIC_STATS_INFO: stats,
        Request.QUERY_TOPIC_CONSUME_BY_WHO: msgspec.json.encode({"groupList": [f"g-{broker}"]}),
        Request.GET_CONSUME_STATS: lags,
        Request.GET_CONSUMER_CONNECTION_LIST: msgspec.json.encode(online),
        Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: msgspec.json.encode(groups),
        Request.QUERY_MESSAGE: record(broker),
        Request.PULL_MESSAGE: record(broker),
        Request.CONSUME_MESSAGE_DIRECTLY: b'{"consumeResult":"CR_SUCCESS"}',
        Request.INVOKE_BROKER_TO_RESET_OFFSET: b'{"offsetTable":{}}',
    }

    def answer(link: Link, command: Command) -> None:
        link.reply(command, body=bodies[command.code])

    peer.answers |= dict.fromkeys(bodies, answer)
    peer.answers |= {
        Request.GET_MIN_OFFSET: lambda link, command: link.reply(command, ext={"offset": "0"}),
        Request.GET_MAX_OFFSET: lambda link, command: link.reply(command, ext={"offset": "1"}),
    }


@asynccontextmanager
async def a_place(*, is_empty: bool = False, has_master_of_b: bool = False) -> AsyncIterator[Place]:
    async with a_peer() as names, a_peer() as a, a_peer() as b:
        serve(a, "a")
        serve(b, "b")
        places = {"a": {0: a.address}, "b": {0 if has_master_of_b else 1: b.address}}
        route = TopicRoute(
            broker_datas=[] if is_empty else [BrokerData(at, name) for name, at in places.items()],
            queue_datas=[QueueData(n, perm=6, read_queue_nums=1, write_queue_nums=1) for n in "ab"],
        )
        table = {
            name: {
                "brokerName": name,
                "cluster": "c",
                "brokerAddrs": {str(n): x for n, x in at.items()},
            }
            for name, at in places.items()
        }
        info = msgspec.json.encode(
            {"brokerAddrTable": table, "clusterAddrTable": {"c": ["a", "b"]}}
        )
        names.answers |= {
            Request.GET_BROKER_CLUSTER_INFO: lambda link, command: link.reply(command, body=info),
            Request.GET_ROUTEINFO_BY_TOPIC: lambda link, command: link.reply(
                command, body=encode_route(route, is_standard=True)
            ),
        }
        async with Admin(names.address) as admin:
            yield Place(admin, names, a, b)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def go() -> None:
        await asyncio.wait_for(test(), DEADLINE_S)

    asyncio.run(go())


def test_what_a_broker_without_a_master_has_is_read_from_its_slave() -> None:
    """As mqadmin does; nothing at all could be read of the topic, on no broker."""

    async def go() -> None:
        async with a_place() as (admin, _, _, slave):
            found = await admin.topics.describe("T")
            assert [info.broker for info in found.brokers] == ["a", "b"]
            assert [status.queue.broker_name for status in found.queues] == ["a", "b"]
            assert found.groups == ["g-a", "g-b"]
            messages = await admin.messages.find("T", "k")
            assert [message.broker_name for message in messages] == ["b", "a"]
            for name in "ab":
                (message,) = await admin.messages.at(MessageQueue("T", name, 0), 0)
                assert (message.broker_name, message.body) == (name, name.encode())
            await admin.messages.deliver(messages[0], group="g", client_id="c")
            assert Request.CONSUME_MESSAGE_DIRECTLY in slave.codes()

    run(go)


def test_a_change_on_a_broker_that_is_named_needs_no_other_broker() -> None:
    async def go() -> None:
        async with a_place() as (admin, _, master, slave):
            await admin.topics.update("T", read_queues=4, broker="a")
            await admin.offsets.set("g", MessageQueue("T", "a", 0), 0)
            told = (Request.UPDATE_AND_CREATE_TOPIC, Request.INVOKE_BROKER_TO_RESET_OFFSET)
            assert set(told) <= set(master.codes())
            assert not set(told) & set(slave.codes())
            for change in (
                admin.topics.update("T", read_queues=4, broker="b"),
                admin.offsets.set("g", MessageQueue("T", "b", 0), 0),
            ):
                with pytest.raises(RouteMissing, match="the master of broker 'b'"):
                    await change
            with pytest.raises(UsageError, match="offsets 0 to 1 in queue 0 on 'a'; 2 is not"):
                await admin.offsets.set("g", MessageQueue("T", "a", 0), 2)
            with pytest.raises(UsageError, match="not on 'x'; it is on a, b"):
                await admin.offsets.set("g", MessageQueue("T", "x", 0), 0)

    run(go)


def test_a_change_everywhere_is_made_nowhere_and_the_broker_is_named() -> None:
    """It was told as if there was no such topic."""

    async def go() -> None:
        async with a_place() as (admin, names, master, _):
            for change in (
                admin.topics.update("T", read_queues=4),
                admin.topics.delete("T"),
                admin.offsets.reset("g", "T", "first"),
            ):
                with pytest.raises(
                    RouteMissing, match=r"'T'.* b has no master.*nothing was changed"
                ):
                    await change
            changes = {
                Request.UPDATE_AND_CREATE_TOPIC, Request.DELETE_TOPIC_IN_BROKER,
                Request.INVOKE_BROKER_TO_RESET_OFFSET, Request.DELETE_TOPIC_IN_NAMESRV,
            }  # fmt: skip
            assert not changes & {*master.codes(), *names.codes()}

    run(go)


def test_a_topic_that_is_on_no_broker_is_none() -> None:
    """A message of it could be handed to nobody, and said StopIteration."""

    async def go() -> None:
        async with a_place() as (admin, *_):
            (message, _) = await admin.messages.find("T", "k")
        async with a_place(is_empty=True) as (admin, *_):
            with pytest.raises(TopicNotFound):
                await admin.topics.describe("T")
            for question in (
                admin.offsets.reset("g", "T", "first"),
                admin.messages.deliver(message, group="g", client_id="c"),
            ):
                with pytest.raises(RouteMissing, match="'T' is on none of the brokers"):
                    await question

    run(go)


def test_how_far_a_group_is_at_a_broker_without_a_master_is_asked_of_its_slave() -> None:
    """It was left out, as if nothing waited there."""

    async def go() -> None:
        async with a_place() as (admin, *_):
            assert [lag.queue.broker_name for lag in await admin.groups.lag("g")] == ["a", "b"]
            assert [lag.count for lag in await admin.offsets.show("g")] == [2, 2]
            members = (await admin.groups.members("g")).members
            assert [member.client_id for member in members] == ["of a", "of b"]
            found = await admin.groups.describe("g")
            assert [info.broker for info in found.brokers] == ["a", "b"]

    run(go)


def test_a_change_that_one_broker_refuses_is_over_everywhere_when_that_is_told() -> None:
    """It went on at the others behind the error's back, and behind whatever was done about it."""
    held: list[tuple[Link, Command]] = []

    def refuse(link: Link, command: Command) -> None:
        link.reply(command, Response.NO_PERMISSION, remark="not here")

    async def go() -> None:
        async with a_place(has_master_of_b=True) as (admin, _, a, b):
            answer = b.answers[Request.GET_TOPIC_CONFIG]
            a.answers[Request.UPDATE_AND_CREATE_TOPIC] = refuse
            b.answers[Request.GET_TOPIC_CONFIG] = lambda *question: held.append(question)
            change = asyncio.ensure_future(admin.topics.update("T", read_queues=4))
            await b.until(lambda: held)
            await a.until(lambda: Request.UPDATE_AND_CREATE_TOPIC in a.codes())
            for _ in range(10):  # the refusal is read
                await admin.brokers.all()
            answer(*held.pop())
            with pytest.raises(PermissionDenied, match="not here"):
                await change
            assert Request.UPDATE_AND_CREATE_TOPIC in b.codes()

    run(go)
