"""Offsets at a broker that makes a group's table of a topic when there is none, and lets two
requests do so at once, as RocketMQ's do."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.instance import ClientInstance
from escrowmq.client.offsets import BrokerOffsets, QueueBirth, QueueBounds
from escrowmq.errors import PermissionDenied, RequestTimeout

QUEUES = [MessageQueue(topic, "b", number) for topic in ("T", "U") for number in range(8)]


class Racing:
    """Such a broker; `is_mute` answers nothing in time."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[int, int]] = {}
        self.is_mute = False
        self.commits_count = 0

    def reader_address(self, broker_name: str) -> str:
        return broker_name

    async def ask(self, address: str, code: int, fields: dict[str, str]) -> Command:
        assert code == Request.UPDATE_CONSUMER_OFFSET
        self.commits_count += 1
        table = self.tables.get(fields["topic"])
        await asyncio.sleep(0)
        if self.is_mute:
            raise RequestTimeout(f"{address} does not answer")
        if table is None:
            table = self.tables[fields["topic"]] = {}
        table[int(fields["queueId"])] = int(fields["commitOffset"])
        return Command(code=Response.SUCCESS)

    async def request(self, address: str, code: int, fields: dict[str, str]) -> Command:
        found = self.tables.get(fields["topic"], {}).get(int(fields["queueId"]))
        if found is None:
            return Command(code=Response.QUERY_NOT_FOUND)
        return Command(code=Response.SUCCESS, ext={"offset": str(found)})


def offsets_at(broker: Racing) -> BrokerOffsets:
    return BrokerOffsets(cast("ClientInstance", broker), "g", "first")


def readers() -> list[Any]:
    return [
        SimpleNamespace(
            queue=queue, committed=-1, fetched=SimpleNamespace(commit_offset=5, generation=1)
        )
        for queue in QUEUES
    ]


def test_no_offset_is_lost_where_all_of_a_group_are_its_first() -> None:
    async def go() -> None:
        broker = Racing()
        offsets = offsets_at(broker)
        assert not any(map(offsets.has_broker_offsets, QUEUES))
        await offsets.store_offsets(readers())
        assert [await offsets.committed(queue) for queue in QUEUES] == [5] * len(QUEUES)
        assert all(map(offsets.has_broker_offsets, QUEUES))

    asyncio.run(go())


def test_a_group_that_is_known_waits_for_none() -> None:
    async def go() -> None:
        broker = Racing()
        await offsets_at(broker).store_offsets(readers())
        offsets = offsets_at(broker)
        for topic in ("T", "U"):
            await offsets.committed(MessageQueue(topic, "b", 0))
        works = [asyncio.ensure_future(offsets.commit(queue, 6)) for queue in QUEUES]
        before = broker.commits_count
        await asyncio.sleep(0)
        assert broker.commits_count == before + len(QUEUES)
        await asyncio.gather(*works)

    asyncio.run(go())


def test_a_broker_that_does_not_answer_is_waited_for_once_and_asked_again_later() -> None:
    async def go() -> None:
        broker = Racing()
        offsets, all_of_them = offsets_at(broker), readers()
        broker.is_mute = True
        await offsets.store_offsets(all_of_them)
        assert broker.commits_count == 2  # one of each topic
        broker.is_mute = False
        await offsets.store_offsets(all_of_them)
        assert broker.tables == {topic: dict.fromkeys(range(8), 5) for topic in ("T", "U")}

    asyncio.run(go())


def test_who_is_cancelled_keeps_no_others_waiting() -> None:
    async def go() -> None:
        broker = Racing()
        offsets = offsets_at(broker)
        first = asyncio.ensure_future(offsets.commit(QUEUES[0], 5))
        second = asyncio.ensure_future(offsets.commit(QUEUES[1], 5))
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert broker.tables == {"T": {1: 5}}
        with pytest.raises(asyncio.CancelledError):
            await first

    asyncio.run(go())


def test_who_waits_for_the_first_may_be_cancelled_alone() -> None:
    async def go() -> None:
        broker = Racing()
        offsets = offsets_at(broker)
        works = [asyncio.ensure_future(offsets.commit(queue, 5)) for queue in QUEUES[:3]]
        await asyncio.sleep(0)
        works[1].cancel()
        await asyncio.gather(works[0], works[2])
        assert broker.tables == {"T": {0: 5, 2: 5}}
        with pytest.raises(asyncio.CancelledError):
            await works[1]

    asyncio.run(go())


@pytest.mark.parametrize(
    ("firsts", "stored_ms", "birth"),
    [
        (["4", "4"], "17", QueueBirth(4, 17)),
        (["4", "5"], "17", None),
        (["0"], "-1", None),
        (["0"], None, None),
        ([], "17", None),
    ],
)
def test_the_birth_of_a_queue_is_known_only_if_all_answers_are_about_one_message(
    firsts: list[str], stored_ms: str | None, birth: QueueBirth | None
) -> None:
    left = list(firsts)

    async def ask(address: str, code: int, fields: dict[str, str]) -> Command:
        if not left:
            raise PermissionDenied("planted", code=Response.NO_PERMISSION, address=address)
        return Command(code=Response.SUCCESS, ext={"offset": left.pop(0)})

    async def request(address: str, code: int, fields: dict[str, str]) -> Command:
        assert code == Request.GET_EARLIEST_MSG_STORETIME
        if stored_ms is None:
            return Command(code=Response.SYSTEM_ERROR)
        return Command(code=Response.SUCCESS, ext={"timestamp": stored_ms})

    instance: Any = SimpleNamespace(ask=ask, request=request, reader_address=lambda name: name)
    assert asyncio.run(QueueBounds(instance).birth(QUEUES[0])) == birth


def test_a_queue_whose_first_message_was_removed_is_the_same() -> None:
    before = QueueBirth(4, 17)
    assert not QueueBirth(4, 17).is_of_another(before)
    assert not QueueBirth(5, 18).is_of_another(before)
    assert QueueBirth(4, 18).is_of_another(before)
    assert QueueBirth(0, 18).is_of_another(before)


def test_a_replica_that_keeps_more_has_the_same_queue() -> None:
    """After a fail-over to one, all announcements were read again."""
    assert not QueueBirth(3, 17).is_of_another(QueueBirth(4, 17))
    assert not QueueBirth(0, 12).is_of_another(QueueBirth(4, 17))
