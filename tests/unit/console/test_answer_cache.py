from __future__ import annotations

import asyncio
import gc

import pytest

from escrowmq.console.answer_cache import FRESH_S, AnswerCache
from escrowmq.errors import ConnectionLost


class Cluster:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.asked = 0
        self.fails = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def ask(self) -> int:
        self.asked += 1
        await self.gate.wait()
        if self.fails:
            raise ConnectionLost("gone")
        return self.asked


def test_many_who_look_at_once_ask_once() -> None:
    async def main() -> None:
        cluster = Cluster()
        memo = AnswerCache(lambda: cluster.now_s)
        cluster.gate.clear()
        looks = [asyncio.ensure_future(memo.get_or_request("k", cluster.ask)) for _ in range(20)]
        await asyncio.sleep(0)
        cluster.gate.set()
        assert await asyncio.gather(*looks) == [1] * 20
        cluster.now_s += FRESH_S / 2
        assert await memo.get_or_request("k", cluster.ask) == 1
        assert await memo.get_or_request("other", cluster.ask) == 2
        cluster.now_s += FRESH_S
        assert await memo.get_or_request("k", cluster.ask) == 3

    asyncio.run(main())


def test_one_who_goes_away_takes_nobody_else_with_him() -> None:
    async def main() -> None:
        cluster = Cluster()
        memo = AnswerCache(lambda: cluster.now_s)
        cluster.gate.clear()
        first = asyncio.ensure_future(memo.get_or_request("k", cluster.ask))
        second = asyncio.ensure_future(memo.get_or_request("k", cluster.ask))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        cluster.gate.set()
        assert await second == 1
        assert first.cancelled()

    asyncio.run(main())


def test_a_failure_is_not_remembered() -> None:
    async def main() -> None:
        cluster = Cluster()
        memo = AnswerCache(lambda: cluster.now_s)
        cluster.fails = True
        for _ in range(2):
            with pytest.raises(ConnectionLost):
                await memo.get_or_request("k", cluster.ask)
        cluster.fails = False
        assert await memo.get_or_request("k", cluster.ask) == 3

    asyncio.run(main())


def test_a_failure_that_nobody_waits_for_is_neither_remembered_nor_reported() -> None:
    """As a traceback in the log, for each viewer who left while a broker was unreachable."""
    reports: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: reports.append(what))
        cluster = Cluster()
        memo = AnswerCache(lambda: cluster.now_s)
        cluster.gate.clear()
        viewer = asyncio.ensure_future(memo.get_or_request("k", cluster.ask))
        await asyncio.sleep(0)
        viewer.cancel()
        await asyncio.sleep(0)
        cluster.fails = True
        cluster.gate.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        cluster.fails = False
        assert await memo.get_or_request("k", cluster.ask) == 2
        memo.clear()
        gc.collect()

    asyncio.run(main())
    assert reports == []


def test_what_was_known_before_a_change_is_forgotten() -> None:
    async def main() -> None:
        cluster = Cluster()
        memo = AnswerCache(lambda: cluster.now_s)
        assert await memo.get_or_request("k", cluster.ask) == 1
        memo.clear()
        assert await memo.get_or_request("k", cluster.ask) == 2

    asyncio.run(main())


def test_a_request_that_began_before_a_change_does_not_answer_who_looks_after_it() -> None:
    async def main() -> None:
        cluster = Cluster()
        memo = AnswerCache(lambda: cluster.now_s)
        cluster.gate.clear()
        before = asyncio.ensure_future(memo.get_or_request("k", cluster.ask))
        await asyncio.sleep(0)
        memo.clear()
        after = asyncio.ensure_future(memo.get_or_request("k", cluster.ask))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert cluster.asked == 2
        cluster.gate.set()
        await asyncio.gather(before, after)
        assert await memo.get_or_request("k", cluster.ask) == after.result()

    asyncio.run(main())
