from __future__ import annotations

import asyncio

from escrowmq.client import portal
from escrowmq.client.ends_in_background import UnconfirmedEnds, wait_for_blocking_ends


def test_those_so_far_are_waited_for_and_no_others() -> None:
    async def go() -> None:
        ends = UnconfirmedEnds()
        loop = asyncio.get_running_loop()
        first = ends.add(loop.create_future())
        waiting = asyncio.ensure_future(ends.wait_for_all())
        await asyncio.sleep(0)
        later = ends.add(loop.create_future())
        assert not waiting.done()
        first.set_result(None)
        await asyncio.wait_for(waiting, 10)
        assert ends.on_running_loop() == [later]
        later.cancel()
        await asyncio.sleep(0)
        await ends.wait_for_all()

    asyncio.run(go())


def test_plain_producers_are_waited_for_from_any_thread() -> None:
    shared = portal.acquire_portal()
    ends = UnconfirmedEnds()

    async def begin() -> None:
        loop = asyncio.get_running_loop()
        told = ends.add(loop.create_future())
        loop.call_later(0.05, told.set_result, None)

    try:
        shared.call(begin())
        wait_for_blocking_ends()
        assert not ends._futures
    finally:
        portal.release_portal(shared)
    wait_for_blocking_ends()  # nobody is there


def test_an_event_loop_is_not_held_up() -> None:
    async def go() -> None:
        told = UnconfirmedEnds().add(asyncio.get_running_loop().create_future())
        wait_for_blocking_ends()
        assert not told.done()

    asyncio.run(go())
