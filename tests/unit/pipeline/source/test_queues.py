"""Whether a queue is the one that it was."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from escrowmq.client.core.routes import MessageQueue
from escrowmq.errors import DataLost
from escrowmq.pipeline.source.options import parse_source_options
from escrowmq.pipeline.source.queues import StreamQueues, report_recreated, was_recreated
from tests.unit.pipeline.brokers.test_cluster import Moving

QUEUE = MessageQueue("t", "b", 0)


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ((0, 100), (0, 100), False),
        ((0, 100), (0, 900), True),
        ((40, 100), (90, 300), False),  # retention
        ((40, 100), (0, 900), True),
        (None, (0, 900), False),
        ((0, 100), None, False),
    ],
)
def test_births(
    before: tuple[int, int] | None, now: tuple[int, int] | None, expected: bool
) -> None:
    found = [{} if each is None else {QUEUE: each} for each in (before, now)]
    assert was_recreated(QUEUE, found[0], found[1]) is expected


def test_retention_while_births_are_asked_for_makes_no_queue_another_one() -> None:
    options = parse_source_options({"nameServer": "h:1", "subscribe": "t"}, is_stream=True)
    queues = StreamQueues(options)
    queues.cluster = Moving(times=1)
    births = queues.identities([QUEUE])
    assert births == {QUEUE: (10, 1_010)}
    assert not was_recreated(QUEUE, {QUEUE: (0, 1_000)}, births)


def test_what_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(DataLost, match="queue 0 of t on b was read up to 9, and ends at 3: the"):
        report_recreated(QUEUE, reached=9, why="ends at 3", fails_on_loss=True)
    report_recreated(QUEUE, reached=9, why="ends at 3", fails_on_loss=False)
    assert "so it is read from its beginning" in caplog.text
