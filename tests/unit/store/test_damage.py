"""Damage on the disk: detected, told, confined; its neighbours stay readable."""

import random

import pytest

from escrowmq.base.message import Topic
from escrowmq.codec.record_layout import HEAD_V4, QUEUE_ID_AT
from escrowmq.store.store import PutStatus
from escrowmq.testing.disk import CrashLoss, SimDisk

from .stores import SMALL, bodies, filled, message, opened, small

LOG = "commitlog/00000000000000000000"
QUEUE = "consumequeue/orders/0/00000000000000000000"


def expected(count: int) -> dict[int, bytes]:
    return {number: b"body %05d" % number for number in range(count)}


@pytest.mark.thorough
@pytest.mark.parametrize("keeps_abort", [False, True])
def test_flipped_bit_anywhere_in_a_record_loses_only_this_record(keeps_abort: bool) -> None:
    pristine = SimDisk()
    put = filled(pristine, 12)[5]
    for position in range(put.log_offset, put.log_end):
        disk = SimDisk()
        filled(disk, 12)
        if keeps_abort:
            disk.small["abort"] = b"1"
        disk.flip_bit(LOG, position, bit=position % 8)
        store, report = opened(disk)
        found = bodies(store)
        lost = {5} if 5 not in found else set()
        assert found == {n: body for n, body in expected(12).items() if n not in lost}
        assert store.bounds("orders", 0) == (0, 12)
        in_body = put.log_offset + HEAD_V4.size <= position < put.log_offset + HEAD_V4.size + 10
        if in_body or position < put.log_offset + QUEUE_ID_AT:
            assert lost
        if lost:
            assert report.damaged or store.damaged_records
            assert store.read(put.log_offset) is None or position >= put.log_offset + QUEUE_ID_AT


def test_full_scan_reports_each_damaged_stretch() -> None:
    disk = SimDisk()
    puts = filled(disk, 30)
    for number in (3, 4, 17):
        disk.flip_bit(LOG, puts[number].log_offset + 90)
    disk.small["abort"] = b"1"
    store, report = opened(disk)
    assert [(d.log_offset, d.size) for d in report.damaged] == [
        (puts[3].log_offset, 2 * puts[3].record_size),
        (puts[17].log_offset, puts[17].record_size),
    ]
    assert bodies(store).keys() == set(range(30)) - {3, 4, 17}
    assert report.log_end == puts[-1].log_end


def test_zeroed_sector_in_the_middle_of_a_clean_store_is_confined() -> None:
    disk = SimDisk()
    puts = filled(disk, 20)
    disk.overwrite(LOG, 1024, bytes(512))
    disk.remove("queues.json")
    for name in list(disk.files):
        if name.startswith("consumequeue"):
            del disk.files[name]
    store, report = opened(disk)
    hit = {n for n, p in enumerate(puts) if p.log_offset < 1536 and p.log_end > 1024}
    assert bodies(store).keys() == set(range(20)) - hit
    assert len(report.damaged) == 1


@pytest.mark.parametrize("size", range(1, 130, 3))
def test_torn_tail_is_cut_to_the_last_whole_record(size: int) -> None:
    disk = SimDisk()
    puts = filled(disk, 10)
    last = puts[-1]
    kept = min(size, last.record_size - 1)
    disk.overwrite(LOG, last.log_offset + kept, bytes(last.record_size - kept))
    disk.small["abort"] = b"1"
    store, report = opened(disk)
    assert report.log_end == last.log_offset
    assert bodies(store) == expected(9)
    assert store.bounds("orders", 0) == (0, 9)
    assert not store.query("orders", "U00009", count_max=9, begin_ms=0, end_ms=9_999).records
    put = store.put(message(77), 3_000)
    assert (put.log_offset, put.queue_offset) == (last.log_offset, 9)
    assert store.query("orders", "U00077", count_max=9, begin_ms=0, end_ms=9_999).records


@pytest.mark.parametrize("was_clean", [True, False])
def test_garbage_behind_the_end_is_cut_and_zeroed(was_clean: bool) -> None:
    disk = SimDisk()
    puts = filled(disk, 5)
    end = puts[-1].log_end
    disk.overwrite(LOG, end, random.Random(1).randbytes(1000))
    if not was_clean:
        disk.small["abort"] = b"1"
    store, report = opened(disk)
    assert report.log_end == end
    assert report.truncated_size == 1000
    assert not any(disk.files[LOG].live[end:])
    assert bodies(store) == expected(5)


def test_stale_records_behind_the_end_do_not_come_back() -> None:
    disk = SimDisk()
    puts = filled(disk, 10)
    # RocketMQ cuts without zeroing: records 6.. are remnants, older than what follows.
    image = bytes(disk.files[LOG].live)
    start, end = puts[5].log_offset, puts[6].log_offset
    disk.overwrite(LOG, start, bytes(4096 - start))
    disk.remove("queues.json")
    disk.small["abort"] = b"1"
    store, _ = opened(disk)
    put = store.put(message(50), 5_000)
    store.close(5_000)
    disk.restart()
    assert put.log_end == end + 1
    disk.overwrite(LOG, end + 1, image[end + 1 :])
    disk.small["abort"] = b"1"
    store, report = opened(disk, now_ms=6_000)
    assert report.log_end == end + 1
    assert bodies(store) == expected(5) | {5: b"body 00050"}


def test_missing_middle_segment_costs_only_its_own_records() -> None:
    disk = SimDisk()
    puts = filled(disk, 90)
    del disk.files["commitlog/00000000000000004096"]
    disk.small["abort"] = b"1"
    store, report = opened(disk)
    lost = {n for n, p in enumerate(puts) if 4096 <= p.log_offset < 8192}
    assert lost
    assert bodies(store).keys() == set(range(90)) - lost
    assert report.damaged


@pytest.mark.parametrize("bit", [0, 7])
@pytest.mark.parametrize("position", range(20))
def test_flipped_bit_in_a_consume_queue_is_mended_from_the_log(position: int, bit: int) -> None:
    for unit in (0, 4, 11):
        disk = SimDisk()
        filled(disk, 12)
        disk.flip_bit(QUEUE, unit * 20 + position, bit=bit)
        store, _ = opened(disk)
        assert bodies(store) == expected(12)
        assert store.bounds("orders", 0) == (0, 12)


def test_lost_consume_queue_is_built_again_after_a_clean_stop() -> None:
    disk = SimDisk()
    filled(disk, 60)
    for name in list(disk.files):
        if name.startswith("consumequeue"):
            del disk.files[name]
    store, report = opened(disk)
    assert report.was_clean
    assert bodies(store) == expected(60)
    assert report.queues_mended == ["orders/0"]


@pytest.mark.parametrize("keeps", [0, 3, 25])
@pytest.mark.parametrize("was_clean", [True, False])
def test_stale_consume_queue_is_completed(keeps: int, was_clean: bool) -> None:
    disk = SimDisk()
    filled(disk, 60)
    names = sorted(name for name in disk.files if name.startswith("consumequeue"))
    for at, name in enumerate(names):
        if at * 20 >= keeps:
            del disk.files[name]
        elif at * 20 + 20 > keeps:
            position = (keeps - at * 20) * 20
            disk.overwrite(name, position, bytes(400 - position))
    if not was_clean:
        disk.small["abort"] = b"1"
    store, _ = opened(disk)
    assert bodies(store) == expected(60)


def test_lost_middle_file_of_a_consume_queue_is_built_again() -> None:
    disk = SimDisk()
    filled(disk, 70)
    del disk.files["consumequeue/orders/0/00000000000000000400"]
    store, _ = opened(disk)
    assert bodies(store) == expected(70)


@pytest.mark.parametrize("was_clean", [True, False])
def test_lost_index_is_built_again(was_clean: bool) -> None:
    disk = SimDisk()
    filled(disk, 30)
    for name in list(disk.files):
        if name.startswith("index"):
            del disk.files[name]
    if not was_clean:
        disk.small["abort"] = b"1"
    store, _ = opened(disk)
    for number in range(30):
        found = store.query("orders", f"k{number}", count_max=9, begin_ms=0, end_ms=9_999)
        assert len(found.records) == 1


@pytest.mark.thorough
def test_flipped_bits_in_the_index_never_show_a_wrong_message() -> None:
    chance = random.Random(3)
    for seed in range(200):
        disk = SimDisk()
        filled(disk, 20)
        name = next(name for name in sorted(disk.files) if name.startswith("index"))
        disk.flip_bit(name, chance.randrange(40 + 64 + 40 * 20), bit=seed % 8)
        if seed % 2:
            disk.small["abort"] = b"1"
        store, _ = opened(disk)
        for number in range(20):
            found = store.query("orders", f"k{number}", count_max=9, begin_ms=0, end_ms=9_999)
            assert all(b"body %05d" % number in record for record in found.records)


@pytest.mark.thorough
def test_flipped_bits_in_the_checkpoint_lose_nothing() -> None:
    for position in range(40):
        for bit in (0, 4, 7):
            disk = SimDisk()
            filled(disk, 30)
            disk.flip_bit("checkpoint", position, bit=bit)
            disk.small["abort"] = b"1"
            store, _ = opened(disk)
            assert bodies(store) == expected(30)


def test_deleted_checkpoint_costs_only_time() -> None:
    disk = SimDisk()
    filled(disk, 30)
    del disk.files["checkpoint"]
    disk.small["abort"] = b"1"
    store, _ = opened(disk)
    assert bodies(store) == expected(30)


def test_record_crc_property_shows_damage_that_a_body_crc_cannot() -> None:
    settings = small(appends_crc=True)
    disk = SimDisk()
    put = filled(disk, 3, settings)[1]
    record = bytes(disk.files[LOG].live[put.log_offset : put.log_end])
    assert record[-20:-11] == b"__CRC32#\x01"
    disk.overwrite(LOG, put.log_offset + record.index(b"orders"), b"ordeRs")
    store, _ = opened(disk, settings)
    assert store.read(put.log_offset) is None
    assert bodies(store).keys() == {0, 2}


def test_topic_deleted_and_made_again_keeps_its_second_life_after_a_rebuild() -> None:
    disk = SimDisk()
    store, _ = opened(disk)
    for number in range(5):
        store.put(message(number), 1_000)
    store.delete_topic("orders")
    assert store.put(message(90), 1_001).queue_offset == 0
    store.close(2_000)
    disk.restart()
    disk.small["abort"] = b"1"
    store, _ = opened(disk)
    assert bodies(store) == {0: b"body 00090"}


def test_log_with_nothing_valid_goes_on_behind_what_was_durable() -> None:
    disk = SimDisk()
    end = filled(disk, 5)[-1].log_end
    disk.overwrite(LOG, 0, random.Random(2).randbytes(4096))
    store, report = opened(disk)
    assert (report.log_end, report.damaged[0].size) == (end, end)
    put = store.put(message(1), 9_000)
    assert (put.status, put.log_offset, put.queue_offset) == (PutStatus.OK, end, 5)
    assert bodies(store) == {5: b"body 00001"}


@pytest.mark.parametrize("is_missing", [False, True])
def test_log_goes_on_behind_a_segment_of_which_nothing_can_be_read(is_missing: bool) -> None:
    """Nor the end of the one in front of it: what was acknowledged there was overwritten."""
    disk = SimDisk()
    puts = filled(disk, 70)
    segments = sorted(path for path in disk.files if path.startswith("commitlog/"))
    assert len(segments) == 3
    end = puts[-1].log_end
    lost = next(put for put in puts if put.log_end > 7_000).log_offset
    disk.overwrite(segments[1], lost - 4096, bytes([7]) * (8192 - lost))
    disk.overwrite(segments[2], 0, random.Random(2).randbytes(end - 8192))
    kept = [put for put in puts if put.log_end <= lost]
    if is_missing:
        del disk.files[segments[0]]
        kept = [put for put in kept if put.log_offset >= 4096]
    store, report = opened(disk)
    assert report.log_end == end
    put = store.put(message(99), 9_000)
    assert (put.log_offset, put.queue_offset) == (end, 70)
    assert bodies(store).keys() == {put.queue_offset for put in kept} | {70}
    store.close(9_500)
    disk.restart()
    store, _ = opened(disk, now_ms=10_000)
    assert bodies(store)[70] == b"body 00099"


@pytest.mark.parametrize("properties", [{"UNIQ_KEY": "U1"}, {}])
def test_place_of_a_last_record_that_was_acknowledged_is_not_given_to_another(
    properties: dict[str, str],
) -> None:
    disk = SimDisk()
    store, _ = opened(disk)
    puts = [store.put(message(number, properties=properties), 1_000) for number in range(3)]
    store.close(2_000)
    disk.restart()
    disk.flip_bit(LOG, puts[-1].log_offset + HEAD_V4.size)
    store, report = opened(disk)
    assert (report.log_end, len(report.damaged)) == (puts[-1].log_end, 1)
    put = store.put(message(9, properties=properties), 9_000)
    assert (put.log_offset, put.queue_offset) == (puts[-1].log_end, 3)
    assert bodies(store) == {0: b"body 00000", 1: b"body 00001", 3: b"body 00009"}


@pytest.mark.thorough
@pytest.mark.parametrize("number", [0, 5, 11])
def test_flipped_bit_costs_one_record_even_when_the_queues_are_lost_too(number: int) -> None:
    pristine = SimDisk()
    put = filled(pristine, 12)[number]
    for position in range(put.log_offset, put.log_end):
        disk = SimDisk()
        filled(disk, 12)
        disk.flip_bit(LOG, position, bit=position % 7)
        for name in [name for name in disk.files if name.startswith("consumequeue")]:
            del disk.files[name]
        store, _ = opened(disk)
        found = bodies(store)
        assert found.keys() >= set(range(12)) - {number}, position
        assert all(found[n] == b"body %05d" % n for n in set(range(12)) - {number})
        low, end = store.bounds("orders", 0)
        assert (low, end) in {(0, 12), (1, 12)} if number == 0 else (low, end) == (0, 12)
        assert store.put(message(12), 9_000).queue_offset == 12


def test_two_damaged_queue_offsets_in_a_row_cost_two_records() -> None:
    disk = SimDisk()
    puts = filled(disk, 12)
    for number in (4, 5):
        disk.flip_bit(LOG, puts[number].log_offset + 27, bit=4)
    for name in [name for name in disk.files if name.startswith("consumequeue")]:
        del disk.files[name]
    store, report = opened(disk)
    assert bodies(store).keys() >= set(range(12)) - {4, 5}
    assert report.damaged


def test_record_larger_than_a_chunk_is_found_by_a_scan() -> None:
    settings = small(log_segment_size=16 << 20, body_size_max=6 << 20)
    disk = SimDisk()
    store, _ = opened(disk, settings)
    store.put(message(0), 1_000)
    store.put(message(1, body=b"b" * (5 << 20)), 1_000)
    store.put(message(2), 1_000)
    disk.restart()
    store, report = opened(disk, settings)
    assert report.records_count == 3
    assert [len(body) for body in bodies(store).values()] == [10, 5 << 20, 10]


def test_store_time_far_ahead_is_not_followed() -> None:
    disk = SimDisk()
    put = filled(disk, 3)[2]
    disk.flip_bit(LOG, put.log_offset + 57, bit=3)
    disk.small["abort"] = b"1"
    store, _ = opened(disk, now_ms=50_000)
    assert store.put(message(3), 50_000).stored_ms == 50_000


def test_what_was_recovered_is_durable_when_it_is_shown() -> None:
    disk = SimDisk()
    store, _ = opened(disk)
    for number in range(40):
        store.put(message(number), 1_000)
    disk.restart()
    for path in disk.files:  # the kernel has it, the disk not yet
        file = disk.files[path]
        file.writes, file.durable = [(0, bytes(file.live))], bytearray(file.size)
    store, _ = opened(disk)
    assert bodies(store) == expected(40)
    disk.crash(random.Random(1), CrashLoss.ALL)
    store, _ = opened(disk)
    assert bodies(store) == expected(40)


def test_index_never_leads_behind_the_end_of_a_cut_log() -> None:
    disk = SimDisk()
    puts = filled(disk, 10)
    start = puts[6].log_offset
    disk.overwrite(LOG, start, bytes(4096 - start))
    disk.small["abort"] = b"1"
    store, report = opened(disk)
    assert report.log_end == start
    assert report.index_rebuilt
    assert store.index is not None
    assert store.index.end_log_offset == puts[5].log_offset
    for number in range(6):
        hits = store.query("orders", f"k{number}", count_max=9, begin_ms=0, end_ms=9_999)
        assert len(hits.records) == 1


def test_offset_of_a_damaged_record_is_never_given_to_another() -> None:
    disk = SimDisk()
    store, _ = opened(disk)
    put = [store.put(message(n), 1_000) for n in range(3)][-1]
    store.put(message(9, topic="paid"), 1_000)
    disk.restart()
    disk.remove("queues.json")
    disk.flip_bit(LOG, put.log_offset + 90)
    store, report = opened(disk)
    assert len(report.damaged) == 1
    assert store.bounds("orders", 0) == (0, 3)
    assert store.put(message(3), 2_000).queue_offset == 3
    assert bodies(store).keys() == {0, 1, 3}


def test_a_first_queue_file_that_was_lost_with_the_power_is_built_again() -> None:
    disk = SimDisk()
    settings = small(index_slots_count=128, index_entries_max=512)
    store, _ = opened(disk, settings)
    for number in range(30):
        store.put(message(number), 1_000 + number)
    del disk.files[QUEUE]
    disk.crash(random.Random(0), CrashLoss.NOTHING)
    disk.small["abort"] = b"1"
    again, _ = opened(disk, settings)
    assert again.bounds("orders", 0) == (0, 30)
    assert bodies(again) == expected(30)


@pytest.mark.parametrize("at", range(len("orders")))
def test_record_whose_topic_is_no_text_is_damaged_and_makes_no_queue(at: int) -> None:
    """Clients fail on such a record, and with it on all that were pulled together with it."""
    disk = SimDisk()
    put = filled(disk, 12)[5]
    disk.flip_bit(
        LOG, put.log_end - len(decode_tail(disk, put.log_offset, put.log_end)) + at, bit=7
    )
    disk.small["abort"] = b"1"
    store, report = opened(disk)
    assert store.topics() == ["orders"]
    assert [damaged.log_offset for damaged in report.damaged] == [put.log_offset]
    assert bodies(store).keys() == set(range(12)) - {5}


def decode_tail(disk: SimDisk, begin: int, end: int) -> bytes:
    """A record from its topic on."""
    record = bytes(disk.files[LOG].live[begin:end])
    return record[record.rindex(b"orders") :]


@pytest.mark.parametrize("lost_count", range(1, 9))
def test_a_due_time_that_a_loss_of_power_has_torn_is_computed_again(lost_count: int) -> None:
    disk = SimDisk()
    store, _ = opened(disk)
    stored_ms = 1_700_000_000_000
    store.put(message(0, topic=Topic.SCHEDULE, properties={"DELAY": "18"}), stored_ms)
    disk.restart()
    queue = next(path for path in disk.files if path.startswith("consumequeue"))
    disk.open(queue, size=SMALL.queue_segment_size).write(20 - lost_count, bytes(lost_count))
    store, _ = opened(disk)
    ((_, _, due_ms),) = store.read_units(Topic.SCHEDULE, 0, 0, 1)
    assert due_ms == stored_ms + 7_200_000
