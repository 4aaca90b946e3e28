"""Topics as an operator makes and changes them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from escrowmq.aio import Admin
from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from tests.unit.client.peer import DEADLINE_S, Link, a_peer
from tests.unit.client.test_admin_counts import an_admin


def pinned_by(work: Callable[[Admin], Awaitable[None]], *, before: str = "a:8;b:8") -> str:
    """What the name server is told of the queues of an ordered topic on the broker b."""
    told: list[str] = []

    def put(link: Link, command: Command) -> None:
        told.append((command.ext or {})["value"])
        link.reply(command)

    def get(link: Link, command: Command) -> None:
        if before:
            link.reply(command, ext={"value": before})
        else:
            link.reply(command, Response.QUERY_NOT_FOUND, remark="none")

    async def go() -> None:
        async with a_peer() as names, a_peer() as broker, an_admin(broker, names) as admin:
            names.be_name_server(broker.address, topics=("T",))
            names.answers |= {Request.PUT_KV_CONFIG: put, Request.GET_KV_CONFIG: get}
            config = {"topicName": "T", "order": True, "readQueueNums": 8, "writeQueueNums": 8}
            broker.answers[Request.GET_TOPIC_CONFIG] = lambda link, command: link.reply(
                command, body=msgspec.json.encode(config)
            )
            await work(admin)

    asyncio.run(asyncio.wait_for(go(), DEADLINE_S))
    return ",".join(told)


def test_an_ordered_topic_of_one_broker_leaves_the_queues_of_others() -> None:
    """They were no longer told, and no producer sent to them any more."""
    assert pinned_by(lambda admin: admin.topics.create("T", queues=4, broker="b")) == "a:8;b:4"
    made = pinned_by(lambda admin: admin.topics.create("T", queues=4, broker="b"), before="")
    assert made == "b:4"
    assert pinned_by(lambda admin: admin.topics.create("T", queues=4)) == "b:4"


def test_a_change_of_an_ordered_topics_queues_is_told() -> None:
    """Producers went on to send to queues that were there no longer."""
    assert pinned_by(lambda admin: admin.topics.update("T", write_queues=4)) == "a:8;b:4"
    assert pinned_by(lambda admin: admin.topics.update("T", read_queues=4)) == ""
