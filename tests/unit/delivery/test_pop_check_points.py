from __future__ import annotations

import random
import tracemalloc
from itertools import pairwise

import pytest

from escrowmq.delivery import pop_check_points
from escrowmq.delivery.pop_check_points import (
    FIRST_POSTPONEMENT_MS,
    NEVER_MS,
    PUT_OFF_MAX_MS,
    CheckPoint,
    CheckPoints,
)
from escrowmq.delivery.revive_records import CheckPointKey


def handle(start: int, pop_ms: int, *, queue: int = 0, revive: int = 0) -> CheckPointKey:
    return CheckPointKey("G", "T", queue, start, pop_ms, revive)


def test_check_points_are_due_in_the_order_of_their_time() -> None:
    popped = CheckPoints()
    spans = [5_000, 1_000, 3_000, 1_000]
    for index, span_ms in enumerate(spans):
        popped.add(
            handle(index, index), [index], invisible_ms=span_ms, revive_offset=index, grace_ms=0
        )
    assert popped.wake_at_ms() == 1_001
    assert popped.next_due(1_000) is None
    found = []
    for now_ms in range(1_000, 6_000):
        while (point := popped.next_due(now_ms)) is not None:
            found.append((now_ms, point.start_offset))
            popped.acknowledge_all(point)
    assert found == [(1_001, 1), (1_003, 3), (3_002, 2), (5_000, 0)]
    assert (popped.count, popped.wake_at_ms()) == (0, NEVER_MS)


def test_one_from_before_the_clock_was_set_back_is_due_at_its_own_time() -> None:
    popped = CheckPoints()
    for offset, pop_ms in enumerate([100_000, 50_000]):
        popped.add(
            handle(offset, pop_ms), [offset], invisible_ms=1_000, revive_offset=offset, grace_ms=0
        )
    assert popped.wake_at_ms() == 51_000
    point = popped.next_due(51_000)
    assert point is not None
    assert point.start_offset == 1
    popped.acknowledge_all(point)
    assert popped.next_due(100_999) is None
    assert popped.next_due(101_000) is not None


def test_acks_in_any_order_with_holes_between_the_messages() -> None:
    popped = CheckPoints()
    point = popped.add(
        handle(10, 7), [11, 14, 15], invisible_ms=1, revive_offset=3, grace_ms=0, acked=1
    )
    assert point.open_offsets() == [14, 15]
    assert popped.acknowledge(point, [15, 15, 12, 9]) == [15]
    assert popped.find(handle(10, 7)) is point
    assert popped.oldest_records() == {0: 3}
    assert popped.acknowledge(point, [14]) == [14]
    assert popped.find(handle(10, 7)) is None
    assert popped.oldest_records() == {}
    assert popped.acknowledge(point, [14]) == []


def test_the_oldest_open_record_is_known_at_every_moment() -> None:
    chance, popped = random.Random(3), CheckPoints()
    points = {}
    for offset in range(1_000):
        revive, span_ms = chance.randrange(3), chance.choice([10, 20])
        points[revive, offset] = popped.add(
            handle(offset, offset, queue=offset % 5, revive=revive),
            [offset],
            invisible_ms=span_ms,
            revive_offset=offset,
            grace_ms=0,
        )
        if chance.random() < 0.9:
            popped.acknowledge_all(points.pop(chance.choice(list(points))))
        oldest = {
            revive: min(at for queue, at in points if queue == revive)
            for revive in {queue for queue, _ in points}
        }
        assert popped.oldest_records() == oldest
    assert popped.count == len(points)


def test_what_is_done_with_takes_no_room() -> None:
    popped = CheckPoints()
    stuck = popped.add(handle(0, 0), [0], invisible_ms=1, revive_offset=0, grace_ms=0)
    for offset in range(1, 10_000):
        point = popped.add(
            handle(offset, offset), [offset], invisible_ms=1, revive_offset=offset, grace_ms=0
        )
        popped.acknowledge(point, [offset])
    assert len(stuck.track.points) <= 66
    assert len(popped._dues) == 1


@pytest.mark.parametrize(("open_count", "settled_count"), [(1, 64), (100, 100)])
def test_settled_check_points_are_cleared_away_when_they_are_many(
    open_count: int, settled_count: int
) -> None:
    """Each time costs as much as there are: those that are few, or fewer than the rest, stay."""
    popped = CheckPoints()

    def add(offset: int) -> CheckPoint:
        return popped.add(
            handle(offset, offset), [offset], invisible_ms=1, revive_offset=offset, grace_ms=0
        )

    still_open = [add(offset) for offset in range(open_count)]
    track = still_open[0].track
    for offset in range(open_count, open_count + settled_count):
        popped.acknowledge_all(add(offset))
    assert len(track.points) == open_count + settled_count
    popped.acknowledge_all(add(open_count + settled_count))
    assert len(track.points) == open_count


def test_invisible_times_that_nobody_uses_any_more_take_no_room() -> None:
    """Clients may compute a new one for each message."""
    popped, day_ms = CheckPoints(), 86_400_000
    held = popped.add(handle(0, 0), [0], invisible_ms=day_ms, revive_offset=0, grace_ms=0)
    for at in range(1, 2_000):
        popped.acknowledge_all(
            popped.add(handle(at, at), [at], invisible_ms=day_ms + at, revive_offset=at, grace_ms=0)
        )
    assert len(popped._tracks) < 200
    assert len(popped._dues) < 200
    last = popped.add(handle(1, 9), [1], invisible_ms=day_ms + 5, revive_offset=9, grace_ms=0)
    assert popped.next_due(day_ms) is held
    popped.acknowledge_all(held)
    assert popped.next_due(day_ms + 13) is None
    assert popped.next_due(day_ms + 14) is last


def test_messages_that_a_record_names_twice_are_those_that_it_names() -> None:
    popped = CheckPoints()
    point = popped.add(handle(5, 1), [5, 5, 6], invisible_ms=1, revive_offset=0, grace_ms=0)
    assert point.open_offsets() == [5, 5, 6]


def test_a_popped_message_takes_little_memory() -> None:
    popped, count = CheckPoints(), 20_000
    tracemalloc.start()
    for index in range(count):
        popped.add(
            handle(index, 1_700_000_000_000 + index // 5),
            [index],
            invisible_ms=60_000,
            revive_offset=1 << 31 | index,
            grace_ms=1_000,
        )
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert size / count < 230


def test_handles_that_nobody_was_given_are_unknown() -> None:
    popped = CheckPoints()
    popped.add(handle(0, 0), [0], invisible_ms=1, revive_offset=0, grace_ms=0)
    assert popped.find(handle(0, 1 << 50)) is None
    assert popped.find(handle(0, 0, revive=1 << 12)) is None
    assert popped.find(handle(0, -1)) is None
    popped.add(handle(4, 0), [4], invisible_ms=1, revive_offset=1, grace_ms=0)
    assert popped.find(handle(0, 0, revive=1 << 12)) is None  # not the one at 4
    assert popped.find(handle(-1, 0)) is None
    assert popped.find(handle(0, 0, queue=1)) is None


def test_what_is_put_off_keeps_none_behind_it_waiting_and_its_record_counts() -> None:
    chance, popped = random.Random(5), CheckPoints()
    points = {}
    for offset in range(200):
        points[offset] = popped.add(
            handle(offset, offset), [offset], invisible_ms=10, revive_offset=offset, grace_ms=0
        )
    tries: dict[int, list[int]] = {}
    for now_ms in range(0, 2 * PUT_OFF_MAX_MS, 100):
        while (point := popped.next_due(now_ms)) is not None:
            tries.setdefault(point.start_offset, []).append(now_ms)
            if point.start_offset % 2 and chance.random() < 0.9:
                popped.postpone(point, now_ms)
            else:
                popped.acknowledge_all(points.pop(point.start_offset))
        if points and chance.random() < 0.1:  # acknowledged late
            popped.acknowledge_all(points.pop(chance.choice(list(points))))
        assert popped.oldest_records() == ({0: min(points)} if points else {})
    for offset, seen in tries.items():
        assert seen[0] == -(-(offset + 10) // 100) * 100
        gaps = [after - before for before, after in pairwise(seen)]
        spans = [min(FIRST_POSTPONEMENT_MS << n, PUT_OFF_MAX_MS) for n in range(len(gaps))]
        assert all(0 <= gap - span <= 1_000 for gap, span in zip(gaps, spans, strict=True))
    assert max(map(len, tries.values())) > 3
    assert popped.count == len(points)


def test_how_late_a_check_point_is_says_nothing_of_its_being_put_off() -> None:
    popped = CheckPoints()
    point = popped.add(handle(0, 0), [0], invisible_ms=10, revive_offset=0, grace_ms=5)
    assert popped.postpone(point, 1_015)
    assert popped.late_ms(2_000) == {0: 1_985}
    assert popped.next_due(2_999) is None
    assert popped.wake_at_ms() == 3_000
    assert popped.next_due(3_000) is point
    assert not popped.postpone(point, 3_000)
    assert popped.next_due(4_999) is None
    assert popped.wake_at_ms() == 5_000


def test_messages_that_a_group_holds_are_counted_but_for_too_many_check_points() -> None:
    popped = CheckPoints()
    one = popped.add(handle(0, 1), [0, 1, 2], invisible_ms=5_000, revive_offset=0, grace_ms=0)
    popped.add(handle(3, 2, queue=1), [3], invisible_ms=5_000, revive_offset=1, grace_ms=0)
    assert popped.in_flight_counts(2) == {("G", "T"): 4}
    popped.acknowledge(one, [1])
    assert popped.in_flight_counts(2) == {("G", "T"): 3}
    popped.acknowledge_all(one)
    assert popped.in_flight_counts(2) == {("G", "T"): 1}
    assert popped.in_flight_counts(0) is None
    popped.finish_deleted(lambda _: True)
    assert dict(popped.in_flight_counts(0) or {"": 0}) == {"": 0}


def test_consecutive_messages_need_no_list() -> None:
    popped = CheckPoints()
    point = popped.add(handle(5, 1), [5, 6, 7], invisible_ms=1, revive_offset=0, grace_ms=0)
    assert (point.diffs, point.open_offsets()) == (None, [5, 6, 7])
    other = popped.add(handle(9, 1), [9, 11], invisible_ms=1, revive_offset=1, grace_ms=0)
    assert (other.diffs, other.open_offsets()) == ((0, 2), [9, 11])


def test_check_points_with_old_records_are_found_but_for_finished_ones() -> None:
    popped = CheckPoints()
    points = [
        popped.add(handle(at, at), [at], invisible_ms=1_000, revive_offset=at, grace_ms=0)
        for at in range(8)
    ]
    popped.acknowledge_all(points[1])
    assert popped.points_before({0: 4}, 9) == [points[0], points[2], points[3]]
    assert popped.points_before({0: 8}, 2) == [points[0], points[2]]
    assert popped.points_before({1: 8}, 9) == []


def test_old_records_are_found_among_postponed_ones_in_any_order() -> None:
    """Those that are retried at one time come from tracks of several invisible times."""
    popped = CheckPoints()
    for at, span_ms in enumerate((4_000, 3_000, 2_000, 1_000)):
        popped.add(handle(at, 0), [at], invisible_ms=span_ms, revive_offset=at, grace_ms=0)
    for now_ms in (1_000, 2_000, 3_000, 4_000):
        point = popped.next_due(now_ms)
        assert point is not None
        popped.postpone(point, 4_000)
    assert {point.revive_offset for point in popped.points_before({0: 3}, 9)} == {0, 1, 2}


def test_invisible_times_up_to_the_limit_are_kept_while_nobody_uses_them() -> None:
    popped = CheckPoints()
    for span_ms in range(pop_check_points._TRACKS_MIN + 1):
        assert len(popped._tracks) == span_ms
        key = handle(span_ms, 0)
        popped.acknowledge_all(
            popped.add(key, [span_ms], invisible_ms=span_ms, revive_offset=0, grace_ms=0)
        )
    assert len(popped._tracks) == 1
