from __future__ import annotations

import math

from escrowmq.delivery.timer_distributions import TOPICS_MAX, DelayDistributions, DueTimes

NOW_MS = 1_700_000_000_000


def test_what_waits_is_counted_by_how_far_ahead_it_is() -> None:
    times = DueTimes()
    for ahead_s in (-60, 1, 7, 59, 61, 86_399, 86_401, 200_000):
        times.add(NOW_MS + ahead_s * 1000)
    assert times.ahead_counts(NOW_MS) == {
        5: 2, 60: 2, 300: 1, 900: 0, 3_600: 0, 14_400: 0, 28_800: 0, 86_400: 1,
    }  # fmt: skip
    times.drop(NOW_MS + 1_000)
    times.drop(NOW_MS - 60_000)
    assert times.ahead_counts(NOW_MS)[5] == 0
    assert times.ahead_counts(NOW_MS + 120_000)[5] == 3
    assert times.ahead_counts(NOW_MS + 120_000)[86_400] == 2


def test_delays_are_distributed_by_topic() -> None:
    delays = DelayDistributions()
    for delay_s in (60, 61, 1_000_000):
        delays.count_delay("T", delay_s)
    (found,) = delays.distributions("local")
    assert found.of == ("local", "T")
    assert found.buckets[:2] == ((60.0, 1), (600.0, 2))
    assert found.buckets[-1] == (math.inf, 3)
    assert found.sum == 1_000_121


def test_of_too_many_topics_the_later_ones_have_no_distribution() -> None:
    delays = DelayDistributions()
    for nth in range(TOPICS_MAX + 1):
        delays.count_delay(f"T{nth}", 1)
    assert len(delays.distributions()) == TOPICS_MAX
