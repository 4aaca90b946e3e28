"""Rounds in which queues are shared out, and their end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from escrowmq.aio import Consumer
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.rebalance import AssignedConsumer, Rebalancer
from escrowmq.errors import BrokerBusy, EscrowMQError, RequestTimeout

from .peer import DEADLINE_S, a_peer
from .test_consumer import QUICK, Script, record


class Taking:
    """Takes every topic, each when it is let."""

    wire_group = "G"

    def __init__(self) -> None:
        async def found(topic: str) -> tuple[MessageQueue, ...]:
            return (MessageQueue(topic, "a", 0),)

        self.instance: Any = SimpleNamespace(queues_to_read=found)
        self.taken: list[str] = []
        self.may_go_on = asyncio.Event()

    def wanted_topics(self) -> list[str]:
        return ["one", "two"]

    async def assign_queues(self, topic: str, queues: list[MessageQueue]) -> bool:
        del queues
        await self.may_go_on.wait()
        self.taken.append(topic)
        return True

    def record_queues(self, topic: str, queues: object) -> None:
        pass

    def report_refusal(self, topic: str, error: object) -> None:
        assert error is None, (topic, error)


def test_nothing_is_taken_after_the_end_and_a_round_is_waited_for() -> None:
    """A consumer that was closing took queues again that it had just given up."""

    async def play() -> None:
        shares = Taking()
        balance = Rebalancer(
            cast("AssignedConsumer", shares), strategy="average", interval_ms=1, takes_all=True
        )
        rounds = asyncio.create_task(balance.run())
        await asyncio.sleep(0)
        end = asyncio.create_task(balance.stop())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not end.done()
        shares.may_go_on.set()
        await end
        assert shares.taken == ["one"], "under way when the end came"
        balance.request_round()
        await rounds
        assert shares.taken == ["one"]

    asyncio.run(play())


@pytest.mark.parametrize("odd", [b"", b"[]", b'{"consumerIdList":[1, null]}', b"\xff"])
def test_a_list_of_members_that_is_none_leaves_one_topic_as_it_is(
    odd: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The round ended with a traceback, and no topic behind that one was shared out."""
    bodies = [odd, b'{"consumerIdList":["me"]}']

    async def request(address: str, code: int, fields: dict[str, str]) -> Command:
        return Command(code=0, body=bodies.pop(0))

    async def play() -> None:
        shares = Taking()
        shares.may_go_on.set()
        shares.instance.client_id = "me"
        shares.instance.reader_address = lambda broker_name: "127.0.0.1:1"
        shares.instance.request = request
        balance = Rebalancer(
            cast("AssignedConsumer", shares), strategy="average", interval_ms=1, takes_all=False
        )
        assert not await balance.assign_all()
        assert shares.taken == ["two"]

    asyncio.run(play())
    assert "the queues of one stay as they are" in caplog.text


def test_a_broker_that_does_not_answer_keeps_no_member_from_the_queues_of_others() -> None:
    """The members were asked of the first broker alone. While it stood still, which a name server
    notices late or never, a new member read nothing from any other."""

    async def go() -> None:
        async with a_peer() as names, a_peer() as silent, a_peer() as peer:
            names.be_name_server(
                peer.address, topics=("T", "%RETRY%g"), queues_count=1, others={"a": silent.address}
            )
            script = Script(peer)
            script.records = {0: record(0)}
            asked = Request.GET_CONSUMER_LIST_BY_GROUP, Request.QUERY_CONSUMER_OFFSET
            silent.answers = dict.fromkeys(asked, lambda link, command: None)
            quick = {**QUICK, "request_timeout_ms": 100}
            async with Consumer(names.address, group="g", topic="T", **quick) as consumer:
                (message,) = await consumer.receive(1, timeout_s=DEADLINE_S)
                assert message.broker_name == "b"
                assert await consumer.queues() == [MessageQueue("T", "b", 0)]

    asyncio.run(go())


@pytest.mark.parametrize("error", [RequestTimeout("planted"), BrokerBusy("planted", code=2)])
def test_a_silent_broker_costs_one_timeout_a_round(error: EscrowMQError) -> None:
    asked: list[str] = []

    async def request(address: str, code: int, fields: dict[str, str]) -> Command:
        asked.append(address)
        if address == "a":
            raise error
        return Command(code=0, body=b'{"consumerIdList":["me"]}')

    async def queues_of(topic: str) -> list[MessageQueue]:
        return [MessageQueue(topic, name, 0) for name in "ab"]

    async def play() -> None:
        shares = Taking()
        shares.may_go_on.set()
        shares.instance = SimpleNamespace(
            queues_to_read=queues_of, client_id="me", reader_address=str, request=request
        )
        balance = Rebalancer(
            cast("AssignedConsumer", shares), strategy="average", interval_ms=1, takes_all=False
        )
        for _ in range(2):
            assert await balance.assign_all()

    asyncio.run(play())
    assert asked == ["a", "b", "b"] * 2
