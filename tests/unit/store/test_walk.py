from escrowmq.store.walk import walk
from escrowmq.testing.disk import SimDisk

from .stores import filled, opened


def test_walk_goes_over_segments_from_any_place_and_passes_over_damage() -> None:
    disk = SimDisk()
    puts = filled(disk, 100)
    disk.flip("commitlog/00000000000000000000", puts[3].log_offset + 90)
    store, _ = opened(disk)
    found = [message.queue_offset for message in walk(store, 0)]
    assert found == [n for n in range(100) if n != 3]
    assert [m.queue_offset for m in walk(store, puts[98].log_offset)] == [98, 99]
    assert [m.queue_offset for m in walk(store, puts[98].log_offset - 1)] == [98, 99]
    assert not list(walk(store, store.end_offset))
