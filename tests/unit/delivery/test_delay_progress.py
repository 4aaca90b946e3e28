from __future__ import annotations

import random

import pytest

from escrowmq.store.durable_progress import (
    MARKS_MAX,
    RESAVE_SIZE,
    ProgressMark,
    ProgressMarks,
    UnsavedProgress,
)
from escrowmq.testing.disk import CrashLoss, SimCrash

from .later import Later


def test_only_durable_progress_is_given() -> None:
    marks: ProgressMarks[str] = ProgressMarks()
    assert marks.take_durable(100) is None
    for end in (10, 20, 20, 30):
        marks.add(ProgressMark(end, 0, f"at {end}"))
    assert marks.take_durable(9) is None
    assert marks.take_durable(29) == ProgressMark(20, 0, "at 20")
    assert marks.take_durable(29) is None
    assert marks.take_durable(30) == ProgressMark(30, 0, "at 30")


def test_the_newest_progress_is_kept_when_much_waits() -> None:
    marks: ProgressMarks[int] = ProgressMarks()
    for end in range(10 * MARKS_MAX):
        marks.add(ProgressMark(end, 0, end))
        assert len(marks._marks) <= MARKS_MAX
    assert marks.take_durable(0) == ProgressMark(0, 0, 0)
    assert marks.take_durable(10**9) == ProgressMark(10 * MARKS_MAX - 1, 0, 10 * MARKS_MAX - 1)


def test_unchanged_progress_is_saved_again_when_a_start_would_read_much() -> None:
    unsaved: UnsavedProgress[str] = UnsavedProgress()
    assert not unsaved.is_resave_due(RESAVE_SIZE - 1)
    assert unsaved.take_unsaved(100) is None
    unsaved.add(ProgressMark(10, 10, "a"))
    assert unsaved.take_unsaved(9) is None
    assert unsaved.take_unsaved(10) == ProgressMark(10, 10, "a")
    for end, state, is_taken in (
        (20, "a", False), (RESAVE_SIZE + 9, "a", False), (RESAVE_SIZE + 10, "a", True),
        (RESAVE_SIZE + 11, "b", True), (RESAVE_SIZE + 12, "a", True),
    ):  # fmt: skip
        mark = ProgressMark(end, end, state)
        unsaved.add(mark)
        assert unsaved.take_unsaved(1 << 40) == (mark if is_taken else None)
    assert unsaved.is_resave_due(2 * RESAVE_SIZE + 12)
    assert not unsaved.is_resave_due(2 * RESAVE_SIZE + 11)


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_lost_or_doubled_when_the_machine_stops_at_any_operation(seed: int) -> None:
    chance = random.Random(seed)
    world = Later(is_sync_flush=chance.random() < 0.5, segment_size=1 << 13)
    durable: dict[bytes, int] = {}
    sent: dict[bytes, int] = {}
    for number in range(80):
        if chance.random() < 0.1:
            world.disk.stop_at = world.disk.steps_count + chance.randrange(1, 30)
        body = b"%d" % number
        try:
            name, wish = chance.choice([("DELAY", "1"), ("TIMER_DELAY_MS", "2345")])
            sent[body] = world.send(body, {"UNIQ_KEY": f"u{number}", name: wish}).log_end
            world.run(chance.randrange(400))
            if chance.random() < 0.4:
                world.sync()
            end = world.store.durable_offset
            durable.update((each, at) for each, at in sent.items() if at <= end)
            if chance.random() < 0.4:
                world.save()
        except SimCrash:
            world.crash(chance.choice([*CrashLoss]), chance)
            sent = dict(durable)
    world.disk.stop_at = None
    for _ in range(3):
        world.sync()
        world.run(10_000)
    world.sync()
    found = world.bodies()
    assert len(found) == len(set(found))
    assert set(found) >= set(durable)
