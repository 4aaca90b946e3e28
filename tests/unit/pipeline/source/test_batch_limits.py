from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.client.core.routes import MessageQueue
from escrowmq.pipeline.brokers.ranges import QueueRange, backlog_count
from escrowmq.pipeline.source.batch_limits import limit_ranges

ranges = st.lists(
    st.tuples(st.integers(0, 1 << 40), st.integers(1, 10_000)), min_size=1, max_size=20
).map(
    lambda found: [
        QueueRange(MessageQueue("t", "b", index), low, low + count)
        for index, (low, count) in enumerate(found)
    ]
)


@given(ranges, st.integers(1, 50_000))
def test_a_limit_is_kept_and_shared(found: list[QueueRange], count_max: int) -> None:
    taken = limit_ranges(found, count_max)
    total = backlog_count(found)
    assert backlog_count(taken) == max(min(total, count_max), min(total, len(found)))
    for whole, part in zip(found, taken, strict=True):
        assert part.queue == whole.queue
        assert part.low == whole.low
        assert whole.low < part.high <= whole.high, "no queue waits for another"
        if total > count_max:
            fair = whole.count * count_max // total
            assert abs(part.count - fair) <= len(found)
