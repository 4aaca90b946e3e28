"""Where a run begins and ends."""

from __future__ import annotations

import msgspec
import pytest

from escrowmq.client.core.routes import MessageQueue
from escrowmq.errors import UsageError
from escrowmq.pipeline.reconcile.progress import RunProgress, make_window, to_offsets, topics_of

NOW_MS = 1_000_000
ENDS = {"paid": {"a": {"0": 7}}, "half": {"a": {"0": 9}}}


def test_a_window_ends_by_the_grace_and_begins_by_the_lookback() -> None:
    before = RunProgress(run=1, until_ms=800_000, ends=ENDS)
    window = make_window(before, now_ms=NOW_MS, grace_ms=100_000, lookback_ms=200_000)
    assert (window.reread_from_ms, window.until_ms) == (600_000, 900_000)
    early = make_window(
        RunProgress(),
        now_ms=NOW_MS,
        grace_ms=100_000,
        lookback_ms=200_000,
        since_ms=5,
        until_ms=700,
    )
    assert (early.reread_from_ms, early.until_ms) == (5, 700)


def test_a_clock_that_was_set_back_reads_nothing_twice() -> None:
    before = RunProgress(run=1, until_ms=2 * NOW_MS)
    window = make_window(before, now_ms=NOW_MS, grace_ms=1, lookback_ms=1)
    assert window.until_ms == 2 * NOW_MS


def test_ranges_that_cannot_be_judged_are_refused() -> None:
    with pytest.raises(UsageError, match="50 s too young"):
        make_window(
            RunProgress(), now_ms=NOW_MS, grace_ms=100_000, lookback_ms=100_000, until_ms=950_000
        )
    with pytest.raises(UsageError, match="a lookback of 1 s is less than the grace of 2 s"):
        make_window(RunProgress(), now_ms=NOW_MS, grace_ms=2_000, lookback_ms=1_000)


def test_positions_survive_their_way_through_json() -> None:
    positions = {MessageQueue("paid", "a", 0): 7, MessageQueue("half", "a", 0): 9}
    progress = RunProgress(run=3, ends=to_offsets(positions))
    again = msgspec.json.decode(msgspec.json.encode(progress), type=RunProgress)
    assert again == progress
    assert again.ends == ENDS
    assert {queue: again.position(queue) for queue in positions} == positions
    assert again.position(MessageQueue("paid", "b", 0)) is None
    assert topics_of(again.ends, without=["half"]) == {"paid"}
