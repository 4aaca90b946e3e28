from __future__ import annotations

import asyncio
import math

import pytest

from escrowmq.base.measure import MetricFamily, Sample
from escrowmq.node import metrics_and_health
from escrowmq.node.metrics_and_health import LoopHealthReader


async def reads_of_two_clients() -> int:
    """How often the metrics are computed for two clients that ask one after the other."""
    reads: list[None] = []

    def read() -> list[MetricFamily]:
        reads.append(None)
        return [MetricFamily("messages", "gauge", "Messages.", (), (Sample((), len(reads)),))]

    loop = asyncio.get_running_loop()
    found = LoopHealthReader(loop, read, labels={}, refusal=str, version="1")
    reads.clear()
    for _ in range(2):
        text, _ = await asyncio.to_thread(found.metrics_text, "")
        assert b"messages " in text
    return len(reads)


@pytest.mark.parametrize(
    ("quick_s", "rest", "reads_count"), [(-1.0, 1e9, 1), (-1.0, 0, 2), (math.inf, 1e9, 2)]
)
def test_metrics_that_take_long_are_shared_for_a_while(
    monkeypatch: pytest.MonkeyPatch, quick_s: float, rest: float, reads_count: int
) -> None:
    """Four clients, without a login, kept a broker with 10,000 topics from anything else."""
    monkeypatch.setattr(metrics_and_health, "_QUICK_S", quick_s)
    monkeypatch.setattr(metrics_and_health, "_REST", rest)
    assert asyncio.run(reads_of_two_clients()) == reads_count
