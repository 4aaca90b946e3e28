"""Who is handed what, in turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from escrowmq.client.delivery import Delivery, HeldMessage
from escrowmq.client.inbox import Inbox
from escrowmq.errors import BrokerBusy, ClientClosed


class Queue:
    """A source of messages."""

    def __init__(self, name: str, count: int) -> None:
        self.is_paused = False
        self.is_dropped = False
        self.messages: list[HeldMessage] = [
            Delivery("T", f"{name}{n}".encode()) for n in range(count)
        ]

    @property
    def waiting_count(self) -> int:
        return len(self.messages)

    def take(self, count: int) -> list[HeldMessage]:
        found, self.messages = self.messages[:count], self.messages[count:]
        return found


def bodies(messages: list[HeldMessage]) -> list[str]:
    return [message.body.decode() for message in messages]


def run(test: Any) -> None:
    asyncio.run(test())


def test_queues_are_taken_from_in_turn() -> None:
    inbox = Inbox(is_orderly=False)
    a, b = Queue("a", 3), Queue("b", 2)
    for source in (a, b, a):
        inbox.add_source(source)
    taken = [bodies(inbox.take_now(1)) for _ in range(6)]
    assert taken == [["a0"], ["b0"], ["a1"], ["b1"], ["a2"], []]


def test_a_paused_or_dropped_queue_is_passed_over() -> None:
    inbox = Inbox(is_orderly=False)
    a, b, c = Queue("a", 1), Queue("b", 1), Queue("c", 1)
    for source in (a, b, c):
        inbox.add_source(source)
    a.is_paused, b.is_dropped = True, True
    assert bodies(inbox.take_now(9)) == ["c0"]
    assert inbox.take_now(9) == []
    a.is_paused = False
    inbox.add_source(a)
    assert bodies(inbox.take_now(9)) == ["a0"]


def test_a_queue_that_hands_out_nothing_after_all_is_passed_over() -> None:
    """Its only message could not be decompressed. Whoever waited then was not woken for the other
    queue, which was listed already: not before a third one had something."""

    class Broken(Queue):
        def take(self, count: int) -> list[HeldMessage]:
            super().take(count)
            return []

    inbox = Inbox(is_orderly=False)
    for source in (Broken("a", 1), Queue("b", 1)):
        inbox.add_source(source)
    assert bodies(inbox.take_now(1)) == ["b0"]
    assert inbox.take_now(1) == []


def test_an_orderly_queue_is_busy_until_its_batch_is_done_with() -> None:
    inbox = Inbox(is_orderly=True)
    a = Queue("a", 3)
    inbox.add_source(a)
    assert bodies(inbox.take_now(2)) == ["a0", "a1"]
    inbox.add_source(a)
    assert inbox.take_now(2) == []
    inbox.reopen_source(a)
    assert bodies(inbox.take_now(2)) == ["a2"]


def test_who_waits_is_woken_one_by_one() -> None:
    async def go() -> None:
        inbox = Inbox(is_orderly=False)
        waiting = [asyncio.create_task(inbox.take(1)) for _ in range(3)]
        await asyncio.sleep(0)
        inbox.add_source(Queue("a", 2))
        first, second = await waiting[0], await waiting[1]
        assert bodies(first + second) == ["a0", "a1"]
        assert not waiting[2].done()
        inbox.add_source(Queue("b", 1))
        assert bodies(await waiting[2]) == ["b0"]

    run(go)


def test_one_who_leaves_when_woken_wakes_another() -> None:
    async def go() -> None:
        inbox = Inbox(is_orderly=False)
        gone, stays = (asyncio.create_task(inbox.take(1)) for _ in range(2))
        await asyncio.sleep(0)
        inbox.add_source(Queue("a", 1))
        gone.cancel()
        async with asyncio.timeout(5):
            assert bodies(await stays) == ["a0"]
        with pytest.raises(asyncio.CancelledError):
            await gone

    run(go)


def test_time_is_up() -> None:
    async def go() -> None:
        inbox = Inbox(is_orderly=False)
        assert await inbox.take(1, timeout_s=0.01) == []
        inbox.add_source(Queue("a", 1))
        assert bodies(await inbox.take(1)) == ["a0"]

    run(go)


def test_a_refusal_is_told_once_and_the_end_to_everybody() -> None:
    async def go() -> None:
        inbox = Inbox(is_orderly=False)
        inbox.set_refusal(Queue("a", 0), BrokerBusy("no"))
        with pytest.raises(BrokerBusy):
            await inbox.take(1)
        waiting = [asyncio.create_task(inbox.take(1)) for _ in range(3)]
        await asyncio.sleep(0)
        inbox.close()
        for task in waiting:
            with pytest.raises(ClientClosed):
                await task
        inbox.add_source(Queue("a", 1))
        with pytest.raises(ClientClosed):
            await inbox.take(1)

    run(go)


def test_a_refusal_that_is_over_is_told_to_nobody() -> None:
    async def go() -> None:
        inbox = Inbox(is_orderly=False)
        a, b = Queue("a", 0), Queue("b", 0)
        inbox.set_refusal(a, BrokerBusy("no"))
        inbox.set_refusal(b, BrokerBusy("no"))
        inbox.clear_refusal(a)
        inbox.clear_refusal(b)
        inbox.clear_refusal(b)
        assert await inbox.take(1, timeout_s=0.01) == []

    run(go)
