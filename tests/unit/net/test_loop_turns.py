from __future__ import annotations

import math

from escrowmq.base.measure import Distribution, Sample
from escrowmq.net.loop_turns import turn_lengths


def test_turns_are_counted_by_length_and_the_longest_is_kept() -> None:
    found = turn_lengths()
    for span_s in (0.001, 0.002, 0.03, 7.0, 0.004):
        found.record(span_s)
    histogram, longest = found.metric_families()
    (sample,) = histogram.samples
    assert isinstance(sample, Distribution)
    counts = dict(sample.buckets)
    assert (counts[0.002], counts[0.005], counts[0.05], counts[1.0]) == (2, 3, 4, 4)
    assert counts[math.inf] == 5
    assert longest.samples == (Sample((), 7.0),)
