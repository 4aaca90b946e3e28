"""Routes that a client looks after in the background."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from escrowmq.base.codes import Request
from escrowmq.base.command import Command

from .peer import Link
from .test_instance import a_place, run


def has(held: list[tuple[Link, Command]], count: int) -> bool:
    return len(held) == count


def test_routes_that_are_looked_after_are_asked_for_together() -> None:
    """One after another, thousands of them took longer than the pause between two looks."""

    async def go() -> None:
        async with a_place() as place:
            topics = tuple(f"T{number}" for number in range(40))
            place.names.be_name_server(place.broker.address, topics=topics)
            instance = place.instance()
            for topic in topics:
                instance.watch_topic(topic)
            held: list[tuple[Link, Command]] = []
            answer = place.names.answers[Request.GET_ROUTEINFO_BY_TOPIC]
            place.names.answers[Request.GET_ROUTEINFO_BY_TOPIC] = lambda link, command: held.append(
                (link, command)
            )
            opening = asyncio.create_task(instance.open())
            for count in (16, 16, 8):
                await place.names.until(partial(has, held, count))
                some, held[:] = list(held), []
                for link, command in some:
                    answer(link, command)
            await opening
            assert len(instance.book.topics()) == 40

    run(go)


def test_one_that_forgets_topics_looks_after_those_it_watches() -> None:
    async def go() -> None:
        async with a_place() as place:
            place.names.be_name_server(place.broker.address, topics=("T", "U"))
            instance = place.instance(route_interval_ms=20)
            instance.forgets_topics = True
            instance.watch_topic("T")
            await instance.open()
            await instance.route("U")
            place.names.requests.clear()
            await place.names.until(lambda: place.names.codes().count(105) >= 3)
            asked = {(command.ext or {})["topic"] for command in place.names.requests}
            assert asked == {"T"}
            assert instance.book.topics() == ["T"]
            assert (await instance.route("U")).broker_datas

    run(go)


def test_a_lost_connection_is_followed_by_a_look_until_the_route_names_another() -> None:
    """The routes are looked at every half minute, and the next master serves in half a second."""

    async def go() -> None:
        async with a_place() as place:
            place.names.be_name_server(place.broker.address, topics=("T",))
            instance = place.instance()
            instance.watch_topic("T")
            await instance.open()
            await instance.pool.get(place.broker.address)
            changed = asyncio.Event()
            instance.on_route_change.append(lambda _: changed.set())
            asked = place.names.codes().count(Request.GET_ROUTEINFO_BY_TOPIC)
            await place.broker.until(lambda: bool(place.broker.links))
            for link in [*place.broker.links]:
                link.transport.close()
            place.names.be_name_server("127.0.0.1:1", topics=("T",))
            await place.names.until(
                lambda: place.names.codes().count(Request.GET_ROUTEINFO_BY_TOPIC) > asked
            )
            async with asyncio.timeout(10):
                await changed.wait()
            assert instance.book.address("b") == "127.0.0.1:1"

    run(go)


def test_a_close_while_routes_are_looked_after_leaves_no_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def go() -> None:
        async with a_place() as place:
            topics = tuple(f"T{number}" for number in range(64))
            place.names.be_name_server(place.broker.address, topics=topics)
            instance = place.instance(route_interval_ms=10)
            for topic in topics:
                instance.watch_topic(topic)
            await instance.open()
            held: list[tuple[Link, Command]] = []
            answer = place.names.answers[Request.GET_ROUTEINFO_BY_TOPIC]
            place.names.answers[Request.GET_ROUTEINFO_BY_TOPIC] = lambda link, command: held.append(
                (link, command)
            )
            await place.names.until(lambda: len(held) == 16)
            refreshes = list(instance._refreshes.values())
            for link, command in held:
                answer(link, command)
            await asyncio.wait(refreshes)
            instance._is_closed = True  # between two routes, and before anything is cancelled
            for _ in range(10):
                await asyncio.sleep(0)
            await instance.close()
            assert instance.failures_count == 0

    run(go)
    assert [record.getMessage() for record in caplog.records if record.levelno >= 30] == []
