from escrowmq.base.message import SysFlag
from escrowmq.store.walk import walk_log
from escrowmq.testing.disk import SimDisk

from .stores import filled, message, opened


def test_walk_goes_over_segments_from_any_place_and_passes_over_damage() -> None:
    disk = SimDisk()
    puts = filled(disk, 100)
    disk.flip_bit("commitlog/00000000000000000000", puts[3].log_offset + 90)
    store, _ = opened(disk)
    found = [message.queue_offset for message in walk_log(store, 0)]
    assert found == [n for n in range(100) if n != 3]
    assert [m.queue_offset for m in walk_log(store, puts[98].log_offset)] == [98, 99]
    assert [m.queue_offset for m in walk_log(store, puts[98].log_offset - 1)] == [98, 99]
    assert not list(walk_log(store, store.end_offset))


def test_walk_finds_the_records_of_one_kind_among_many_others() -> None:
    disk = SimDisk()
    store, _ = opened(disk)
    kinds = [0, SysFlag.COMMIT, 0, 0, SysFlag.COMMIT, 0] * 20
    for number, kind in enumerate(kinds):
        store.put(message(number, sys_flag=kind | SysFlag.MULTI_TAGS), 1_000)
    found = [each.queue_offset for each in walk_log(store, 0, kind=SysFlag.COMMIT)]
    assert found == [number for number, kind in enumerate(kinds) if kind == SysFlag.COMMIT]
    store.close(2_000)
    disk.restart()
    disk.flip_bit("commitlog/00000000000000000000", store.read_units("orders", 0, 1, 1)[0][0] + 90)
    store, _ = opened(disk)
    assert [each.queue_offset for each in walk_log(store, 0, kind=SysFlag.COMMIT)] == found[1:]
