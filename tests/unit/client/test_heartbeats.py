"""How a client comes back to a broker that it has lost."""

from __future__ import annotations

import time

from escrowmq.base.codes import Request
from escrowmq.base.command import Command

from .peer import Link
from .test_instance import a_place, run


def test_a_broker_that_hangs_up_on_every_greeting_is_dialled_more_and_more_seldom() -> None:
    """Each connection counted as a success before it had been greeted: ten were made a second."""
    greeted_s: list[float] = []

    def hang_up(link: Link, command: Command) -> None:
        greeted_s.append(time.monotonic())
        link.transport.abort()

    async def go() -> None:
        async with a_place() as place:
            place.broker.answers[Request.HEART_BEAT] = hang_up
            instance = place.instance()
            instance.watch_topic("T")
            instance.heartbeats.add_producer("PG")
            await instance.open()
            broker = place.broker
            await broker.until(lambda: len(greeted_s) >= 5)
            assert greeted_s[4] - greeted_s[0] >= 0.1 + 0.2 + 0.4 + 0.8 - 0.1
            del broker.answers[Request.HEART_BEAT]
            before = len(place.heartbeats())
            await broker.until(lambda: len(place.heartbeats()) > before)
            await instance.ask(
                broker.address, Request.GET_BROKER_CONFIG
            )  # the greeting is answered
            began_s = time.monotonic()
            broker.links[0].transport.abort()
            await broker.until(lambda: len(place.heartbeats()) > before + 1)
            assert time.monotonic() - began_s < 1.6  # which would have been next

    run(go)
