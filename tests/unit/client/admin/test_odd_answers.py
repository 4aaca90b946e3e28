"""What operators are told when a broker, or whatever listens there, answers with nonsense."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from escrowmq.aio import Admin
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.client.core.message import ReceivedMessage
from escrowmq.client.core.routes import MessageQueue
from escrowmq.codec.ids import offset_id, pack_host
from escrowmq.errors import GroupNotFound, MessageRefused, NotFound, RemoteProtocolError
from tests.unit.client.peer import DEADLINE_S, Link, Peer, a_peer
from tests.unit.client.test_admin_counts import an_admin

BODIES = [
    b"", b"[]", b'"x"', b"7", b"null", b"{", b"\xff\xfe", b'{"\xff":1}', b'{"\\ud800":1}',
    b'{"offsetTable":[1]}', b'{"offsetTable":{"x":1}}', b'{"topicList":{}}', b'{"groupList":7}',
    b'{"offsetTable":{{"brokerName":"b","queueId":"x","topic":"T"}:1}}',
    b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"minOffset":"x"}}}',
    b'{"table":{"a":1}}', b'{"readQueueNums":"x"}', b'{"connectionSet":[1]}',
    b'{"subscriptionGroupTable":{"g":{"groupName":"g","retryMaxTimes":"many"}}}',
    b'{"subscriptionGroupTable":{"g":{"groupName":7}}}', b'{"items":[{}],"next":0}',
    b'{"next":"%s"}' % (b"9" * 5_000), b'{"answers":[{}]}', b"[[" * 10_000, b"\0" * 200,
    b'[{"username":7}]', b'{"consumeResult":7}', b'{"count":"x"}',
]  # fmt: skip

Question = Callable[[Admin, Peer], Awaitable[Any]]


async def everything(found: Any) -> list[Any]:
    return [item async for item in found]


QUEUE = MessageQueue("T", "b", 0)
MESSAGE = ReceivedMessage("T", b"", broker_name="b")
QUESTIONS: dict[str, Question] = {
    "users": lambda admin, _: admin.access.users(),
    "policies": lambda admin, _: admin.access.policies(),
    "explain": lambda admin, _: admin.access.explain("u", "Pub", "Topic:T"),
    "runtime": lambda admin, _: admin.brokers.runtime("b"),
    "config": lambda admin, _: admin.brokers.config("b"),
    "group names": lambda admin, _: admin.groups.names(),
    "group": lambda admin, _: admin.groups.describe("g"),
    "new group": lambda admin, _: admin.groups.create("g"),
    "changed group": lambda admin, _: admin.groups.update("g", attempts_max=3),
    "members": lambda admin, _: admin.groups.members("g"),
    "lag": lambda admin, _: admin.groups.lag("g"),
    "offsets": lambda admin, _: admin.offsets.show("g"),
    "reset": lambda admin, _: admin.offsets.reset("g", "T", "first"),
    "topic": lambda admin, _: admin.topics.describe("T"),
    "new topic": lambda admin, _: admin.topics.create("T"),
    "changed topic": lambda admin, _: admin.topics.update("T", read_queues=2),
    "topic names": lambda admin, _: admin.topics.names(),
    "found": lambda admin, _: admin.messages.find("T", "k"),
    "at": lambda admin, _: admin.messages.at(QUEUE, 0),
    "got": lambda admin, broker: admin.messages.get(id_at(broker)),
    "prepared": lambda admin, _: admin.messages.prepared("0A" * 16, topic="T"),
    "delivered": lambda admin, _: admin.messages.deliver(MESSAGE, group="g", client_id="c"),
    "pending": lambda admin, _: everything(admin.transactions.pending()),
    "counted": lambda admin, _: admin.transactions.count(),
    "shown": lambda admin, _: admin.transactions.show("0A" * 16),
    "checked": lambda admin, _: admin.transactions.check(),
    "discarded": lambda admin, _: everything(admin.transactions.discarded()),
    "resumed": lambda admin, _: admin.transactions.resume(topic="T"),
    "key": lambda admin, _: admin.transactions.rotate_key(),
}  # fmt: skip


def id_at(broker: Peer) -> str:
    host, _, port = broker.address.partition(":")
    return offset_id(pack_host(host, int(port)), 7)


@pytest.mark.parametrize("name", QUESTIONS)
def test_an_answer_that_makes_no_sense_is_told_with_its_sender(name: str) -> None:
    async def go() -> None:
        async with a_peer() as names, a_peer() as broker, an_admin(broker, names) as admin:
            names.be_name_server(broker.address, topics=("T",))
            names.answers[Request.GET_ALL_TOPIC_LIST_FROM_NAMESERVER] = lambda link, command: (
                link.reply(command, body=b'{"topicList":["T"]}')
            )
            said: list[bytes] = []

            def odd(link: Link, command: Command) -> None:
                link.reply(command, body=said[-1])

            broker.answers = _Always(odd)
            told: list[str] = []
            for body in BODIES:
                said.append(body)
                try:
                    await QUESTIONS[name](admin, broker)
                except RemoteProtocolError as error:
                    told.append(str(error))
                except (NotFound, GroupNotFound, MessageRefused):
                    pass  # a thinner answer than a broker's, but one
            assert told
            assert all(broker.address in text and "is that a broker" in text for text in told), told

    asyncio.run(asyncio.wait_for(go(), 3 * DEADLINE_S))


class _Always(dict[int, Any]):
    """One answer to whatever is asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def get(self, code: int, default: Any = None) -> Any:
        return self.answer


def test_one_broker_that_answers_nonsense_hides_no_other_from_the_list() -> None:
    async def go() -> None:
        async with a_peer() as broker, an_admin(broker) as admin:
            broker.answers[Request.GET_BROKER_RUNTIME_INFO] = lambda link, command: link.reply(
                command, body=b"{"
            )
            (found,) = await admin.brokers.all()
            assert (found.name, found.version) == ("b", "")

    asyncio.run(asyncio.wait_for(go(), DEADLINE_S))


def test_a_name_server_that_answers_nonsense_is_named() -> None:
    async def go() -> None:
        async with a_peer() as names, a_peer() as broker, an_admin(broker, names) as admin:
            for code in (
                Request.GET_ROUTEINFO_BY_TOPIC,
                Request.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
            ):
                names.answers[code] = lambda link, command: link.reply(command, body=b"[7]")
            for question in (admin.topics.describe("T"), admin.topics.names()):
                with pytest.raises(RemoteProtocolError, match=names.address):
                    await question

    asyncio.run(asyncio.wait_for(go(), DEADLINE_S))
