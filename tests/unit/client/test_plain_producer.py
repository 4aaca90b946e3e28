"""The plain producer's short way: no task and no timer a message, and the same answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

import escrowmq
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.errors import BrokerBusy, InvalidMessage, MessageRefused, RequestTimeout, SendFailed

from .peer import Link, Peer, stored

SEND = Request.SEND_MESSAGE_V2
Act = Callable[[], object]


class Place:
    """A name server and a broker in a thread of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.names, self.broker = Peer(), Peer()
        for peer in (self.names, self.broker):
            self.run(peer.open())
        self.names.be_name_server(self.broker.address, topics=("T",))
        self.broker.answers[SEND] = stored

    def run(self, work: Coroutine[Any, Any, Any]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    def answer_held(self, held: list[tuple[Link, Command]]) -> None:
        """Answer what was only noted, as soon as there is something."""

        async def answer() -> None:
            await self.broker.until(lambda: held)
            for link, command in held:
                stored(link, command)

        asyncio.run_coroutine_threadsafe(answer(), self._loop)

    def close(self) -> None:
        async def close() -> None:
            self.names.close()
            self.broker.close()
            await asyncio.sleep(0)

        self.run(close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()

    def sends(self) -> list[Command]:
        return [command for command in self.broker.requests if command.code == SEND]


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    made.close()


def test_a_send_whose_connection_ends_under_way_is_sent_again(place: Place) -> None:
    with escrowmq.Producer(place.names.address, group="PG") as producer:
        producer.send("T", b"first")

        def end(link: Link, command: Command) -> None:
            place.broker.answers[SEND] = stored
            link.transport.close()

        place.broker.answers[SEND] = end
        sent = producer.send("T", b"second")
    assert [command.body for command in place.sends()] == [b"first", b"second", b"second"]
    assert sent.status is escrowmq.SendStatus.OK


def test_a_send_over_a_known_route_makes_no_task_and_no_timer(place: Place) -> None:
    made: list[object] = []

    def count_task(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
        made.append(work)
        return asyncio.Task(work, loop=loop, **more)

    with escrowmq.Producer(place.names.address, group="PG") as producer:
        producer.send("T", b"first")
        loop = producer._portal._loop
        loop.set_task_factory(count_task)
        timers = [loop.time()]
        loop.call_at = lambda *given, **more: timers.append(given[0])  # type: ignore[method-assign,assignment]
        for n in range(10):
            sent = producer.send("T", b"%d" % n, keys=["k"], order_key="one")
            assert (sent.status, sent.queue.topic) == (escrowmq.SendStatus.OK, "T")
        del loop.call_at
        loop.set_task_factory(None)
    assert made == []
    assert len(timers) == 1
    assert [command.body for command in place.sends()][1:] == [b"%d" % n for n in range(10)]


def test_a_first_attempt_that_fails_is_followed_by_others(place: Place) -> None:
    codes = [2, 0, 13, 2, 2, 2]

    def answer(link: Link, command: Command) -> None:
        code = codes.pop(0)
        if code:
            link.reply(command, code, remark="planted")
        else:
            stored(link, command)

    with escrowmq.Producer(place.names.address, group="PG") as producer:
        producer.send("T", b"warm")
        place.broker.answers[SEND] = answer
        assert producer.send("T", b"x").status is escrowmq.SendStatus.OK
        with pytest.raises(MessageRefused, match="planted"):
            producer.send("T", b"x")
        with pytest.raises(BrokerBusy, match="planted") as busy:
            producer.send("T", b"x")
        assert busy.value.__notes__ == ["3 attempts were made"]
        with pytest.raises(InvalidMessage):
            producer.send("T", b"")
    assert codes == []


def test_a_broker_that_is_silent_or_gone_is_told(place: Place) -> None:
    with escrowmq.Producer(place.names.address, group="PG", retries=0) as producer:
        producer.send("T", b"warm")
        place.broker.answers[SEND] = lambda link, command: None
        with pytest.raises(RequestTimeout, match="may be stored"):
            producer.send("T", b"x", timeout_ms=500)
        place.broker.answers[SEND] = lambda link, command: link.transport.abort()
        with pytest.raises(SendFailed, match="is gone"):
            producer.send("T", b"x")


@pytest.mark.parametrize("queues_count", [1, 2, 3, 4])
def test_every_broker_has_its_turn_though_none_is_connected_yet(
    place: Place, queues_count: int
) -> None:
    """Who may not wait for a connection passed the queue on, and the next one asked for another:
    with two queues a broker, one of two brokers was never connected."""
    other = Peer()
    place.run(other.open())
    other.answers[SEND] = stored
    for peer in (place.broker, other):
        peer.answers[Request.END_TRANSACTION] = lambda link, command: link.reply(command)
    place.names.be_name_server(
        place.broker.address, topics=("T",), queues_count=queues_count,
        others={"other": other.address},
    )  # fmt: skip
    with escrowmq.Producer(place.names.address, group="PG", check=_known) as producer:
        for _ in range(4 * queues_count):
            producer.send("T", b"x")
    with escrowmq.Producer(place.names.address, group="PG", check=_known) as producer:
        for _ in range(4 * queues_count):
            with producer.transaction("T", b"x"):
                pass
    for peer in (place.broker, other):
        assert peer.codes().count(SEND) == 4 * queues_count
    place.run(_close(other))


def _known(_: object) -> escrowmq.Outcome:
    return escrowmq.Outcome.COMMIT


async def _close(peer: Peer) -> None:
    peer.close()
