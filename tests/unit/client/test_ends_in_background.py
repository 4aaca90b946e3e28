from __future__ import annotations

import asyncio

from escrowmq.client import portal
from escrowmq.client.ends_in_background import EndsUnderWay, wait_for_plain_ones


def test_those_so_far_are_waited_for_and_no_others() -> None:
    async def go() -> None:
        ends = EndsUnderWay()
        loop = asyncio.get_running_loop()
        first = ends.keep(loop.create_future())
        waiting = asyncio.ensure_future(ends.wait())
        await asyncio.sleep(0)
        later = ends.keep(loop.create_future())
        assert not waiting.done()
        first.set_result(None)
        await asyncio.wait_for(waiting, 10)
        assert ends.here() == [later]
        later.cancel()
        await asyncio.sleep(0)
        await ends.wait()

    asyncio.run(go())


def test_plain_producers_are_waited_for_from_any_thread() -> None:
    shared = portal.acquire()
    ends = EndsUnderWay()

    async def begin() -> None:
        loop = asyncio.get_running_loop()
        told = ends.keep(loop.create_future())
        loop.call_later(0.05, told.set_result, None)

    try:
        shared.call(begin())
        wait_for_plain_ones()
        assert not ends._told
    finally:
        portal.release(shared)
    wait_for_plain_ones()  # nobody is there


def test_an_event_loop_is_not_held_up() -> None:
    async def go() -> None:
        told = EndsUnderWay().keep(asyncio.get_running_loop().create_future())
        wait_for_plain_ones()
        assert not told.done()

    asyncio.run(go())
