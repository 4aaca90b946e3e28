"""Messages by time, where damage has left gaps. All else is held by test_store."""

from escrowmq.testing.disk import SimDisk

from .stores import message, opened, small


def test_a_long_gap_costs_a_search_by_time_few_reads() -> None:
    disk = SimDisk()
    store, _ = opened(disk, small(queue_segment_size=20 * 65_536))
    for number in range(3):
        store.put(message(number), 1_000 + number)
    queue = store.queues.by_key["orders", 0]
    queue.fill_gap(40_000)
    queue.reset_next_offset()
    for number in range(3):
        store.put(message(number), 2_000 + number)
    before = disk.reads_count
    assert store.offset_at("orders", 0, 1_001) == 1
    assert store.offset_at("orders", 0, 1_500) == 40_000
    assert store.offset_at("orders", 0, 2_001) == 40_001
    assert store.offset_at("orders", 0, 1_500, upper=True) == 39_999
    assert store.offset_at("orders", 0, 0) == 0
    assert disk.reads_count - before < 1_000
