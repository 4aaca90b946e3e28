"""The store's face: putting, reading, limits, visibility, full disks, failing syncs."""

import dataclasses
import random
import struct

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escrowmq.base.message import Message, SysFlag, Topic
from escrowmq.codec.record import decode_record
from escrowmq.errors import CorruptRecord, StorageError, StoreLocked
from escrowmq.store.check import StoreCheck
from escrowmq.store.store import GetStatus, PutStatus
from escrowmq.testing.disk import CrashLoss, SimDisk
from tests.harness.stores import put_batch

from .stores import SMALL, bodies, filled, message, opened, small, sync

LOG = "commitlog/00000000000000000000"


def test_put_says_where_the_record_stands() -> None:
    store, report = opened(SimDisk())
    assert report.was_clean
    first, second = (store.put(message(n), 5_000) for n in range(2))
    assert (first.status, first.log_offset, first.queue_offset) == (PutStatus.OK, 0, 0)
    assert (second.log_offset, second.queue_offset) == (first.log_end, 1)
    stored = store.read(second.log_offset)
    assert stored is not None
    assert (stored.body, stored.stored_ms) == (b"body 00001", 5_000)
    assert store.read(second.log_offset + 1) is None
    assert store.read(second.log_end) is None
    assert store.read(-1) is None
    assert decode_record(store.read_record(0, first.record_size)).queue_offset == 0
    assert store.bounds("orders", 0) == (0, 2)
    assert store.bounds("orders", 1) == (0, 0)
    assert store.queues_of("orders") == [0]
    assert store.topics() == ["orders"]


@pytest.mark.parametrize("has_index", [True, False])
def test_checkpoint_tells_no_time_of_a_clock_that_was_wrong(has_index: bool) -> None:
    """Nor of what leads to the records: a start took it for damage, and read the whole log."""
    disk, day_ms, kept = SimDisk(), 86_400_000, small(has_index=has_index)
    store, _ = opened(disk, kept, now_ms=30 * day_ms)
    for number in range(60):
        store.put(message(number), 30 * day_ms)
    store.close(30 * day_ms)
    disk.restart()
    store, _ = opened(disk, kept, now_ms=day_ms)
    store.allow_earlier_times(day_ms)
    for number in range(60, 120):
        store.put(message(number), day_ms + 100 * number)
    for now_ms in (day_ms + 60_000, day_ms + 120_000):
        while sync(store, now_ms):
            pass
    said = store.checkpoint.value
    assert max(said.log_ms, said.queue_ms, said.index_ms) == day_ms + 11_900
    disk.crash(random.Random(0), CrashLoss.NOTHING)
    store, report = opened(disk, kept, now_ms=day_ms + 200_000)
    assert not [note for note in report.notes if "cannot be" in note]
    assert has_index or report.scanned_from > 0
    assert len(bodies(store)) == 120


def test_store_times_never_go_back() -> None:
    store, _ = opened(SimDisk())
    assert [store.put(message(n), ms).stored_ms for n, ms in enumerate([50, 40, 60])] == [
        50,
        50,
        60,
    ]


def test_prepared_records_have_no_queue_offset_and_no_unit() -> None:
    store, _ = opened(SimDisk())
    store.put(message(0), 1_000)
    for flag in (SysFlag.PREPARED, SysFlag.ROLLBACK):
        put = store.put(message(1, sys_flag=flag), 1_000)
        assert (put.status, put.queue_offset) == (PutStatus.OK, 0)
    assert store.put(message(2, sys_flag=SysFlag.COMMIT), 1_000).queue_offset == 1
    assert len(store.query("orders", "U00001", count_max=9, begin_ms=0, end_ms=9_999).records) == 1


def test_a_message_too_large_is_illegal_and_changes_nothing() -> None:
    store, _ = opened(SimDisk())
    for bad, status in [
        (message(0, properties={"x": "y" * 32_800}), PutStatus.PROPERTIES_SIZE_EXCEEDED),
        (message(0, properties={"x": "y" * 4_000}), PutStatus.MESSAGE_ILLEGAL),
        (message(0, topic="../up"), PutStatus.MESSAGE_ILLEGAL),
        (message(0, topic=".."), PutStatus.MESSAGE_ILLEGAL),
        (message(0, queue_id=-1), PutStatus.MESSAGE_ILLEGAL),
    ]:
        put = store.put(bad, 1_000)
        assert put.status is status, put
        assert put.reason
        pair = [msgspec.structs.replace(bad, body=b"", properties={}), bad]
        assert [p.status for p in put_batch(store, pair, 1_000)] == [status] * 2
    assert store.end_offset == 0


def test_only_senders_have_a_limit_for_bodies_which_an_accepted_message_may_exceed() -> None:
    store, _ = opened(SimDisk(), small(body_size_max=2_000))
    large = message(0, body=bytes(2_001))
    assert [put.status for put in put_batch(store, [large], 1_000)] == [PutStatus.MESSAGE_ILLEGAL]
    assert store.put(large, 1_000).status is PutStatus.OK


@pytest.mark.parametrize("left", [8, 7, 0, 9])
def test_at_least_eight_bytes_stay_free_at_a_segments_end(left: int) -> None:
    disk = SimDisk()
    store, _ = opened(disk)
    first = store.put(Message(topic="t", body=bytes(3_000)), 1_000)
    size = 4096 - first.log_end - left
    second = store.put(Message(topic="t", body=bytes(size - 92)), 1_000)
    if left >= 8:
        assert second.log_offset == first.log_end
        third = store.put(Message(topic="t", body=b""), 1_000)
        filler_at, filler_size = second.log_end, left
    else:
        third = second
        filler_at, filler_size = first.log_end, 4096 - first.log_end
    assert third.log_offset == 4096
    image = disk.files[LOG].live
    assert struct.unpack_from(">II", image, filler_at) == (filler_size, 0xCBD43194)
    store.close(2_000)
    disk.restart()
    again, report = opened(disk)
    assert report.log_end == third.log_end
    assert again.bounds("t", 0)[1] == 2 + (left >= 8)


def test_batch_has_consecutive_offsets_and_one_segment() -> None:
    store, _ = opened(SimDisk())
    store.put(message(0, body=bytes(3_500)), 1_000)
    puts = put_batch(store, [message(n, body=bytes(100)) for n in range(1, 4)], 1_000)
    assert [put.queue_offset for put in puts] == [1, 2, 3]
    assert puts[0].log_offset == 4096
    assert [put.log_offset for put in puts[1:]] == [put.log_end for put in puts[:-1]]
    assert bodies(store)[3] == bytes(100)


def test_sync_flush_shows_a_message_only_when_it_is_durable() -> None:
    store, _ = opened(SimDisk(), small(is_sync_flush=True))
    puts = [store.put(message(n), 1_000) for n in range(2)]
    assert store.bounds("orders", 0) == (0, 0)
    assert not store.take_arrivals()
    wanted = store.next_sync(1_000)
    assert wanted is not None
    late = store.put(message(2), 1_001)
    assert store.next_sync(1_001) is None  # one at a time
    store.sync_finished(wanted.log_offset, 1_002)
    assert store.durable_offset == puts[1].log_end
    assert [a.queue_offset for a in store.take_arrivals()] == [0, 1]
    assert store.bounds("orders", 0) == (0, 2)
    assert sync(store, 1_003)
    assert store.durable_offset == late.log_end
    assert store.bounds("orders", 0) == (0, 3)


def test_async_flush_shows_at_once_and_syncs_by_time_and_pages() -> None:
    store, _ = opened(SimDisk(), small(log_segment_size=65_536, is_sync_flush=False))
    store.put(message(0), 1_100)
    arrival = store.take_arrivals()[0]
    assert (arrival.topic, arrival.queue_id, arrival.queue_offset) == ("orders", 0, 0)
    assert store.next_sync(1_600) is None  # less than four pages
    for n in range(20):
        store.put(message(n, body=bytes(1_000)), 1_200)
    assert store.next_sync(1_200) is None
    assert sync(store, 1_600)
    assert store.durable_offset == store.end_offset
    store.put(message(0), 1_700)
    assert store.wake_at_ms() <= 2_200
    assert sync(store, 11_700)  # everything, after the thorough interval
    assert store.durable_offset == store.end_offset


def test_idle_store_wants_no_sync_for_ever() -> None:
    store, _ = opened(SimDisk())
    store.put(message(0), 1_000)
    now_ms = 1_000
    for _ in range(50):
        now_ms += 1_000
        sync(store, now_ms)
    assert store.next_sync(now_ms + 1) is None
    assert store.flusher.wake_at_ms() > now_ms + 1_000_000
    assert store.checkpoint.value.log_ms == store.checkpoint.value.queue_ms == 1_000


def test_failed_sync_is_never_success_and_ends_writing() -> None:
    disk = SimDisk()
    store, _ = opened(disk, small(is_sync_flush=True))
    put = store.put(message(0), 1_000)
    wanted = store.next_sync(1_000)
    assert wanted is not None
    store.sync_failed("input/output error", 1_001)
    assert store.durable_offset < put.log_end
    assert store.bounds("orders", 0) == (0, 0)
    assert store.refusal is not None
    assert "input/output error" in str(store.refusal)
    for is_settling in (False, True):
        refused = store.put(message(1), 1_002, is_settling=is_settling)
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    store.wake(60_000)
    assert store.next_sync(60_000) is None
    assert store.refusal is not None
    store.close(61_000)
    assert disk.size("abort") is not None
    assert store.durable_offset < put.log_end


def test_failing_sync_at_close_leaves_the_abort_file() -> None:
    disk = SimDisk()
    store, _ = opened(disk)
    store.put(message(0), 1_000)
    disk.sync_error = "broken"
    store.close(2_000)
    assert disk.size("abort") is not None
    disk.sync_error = None
    disk.restart()
    store, report = opened(disk)
    assert not report.was_clean
    assert bodies(store) == {0: b"body 00000"}


def test_reads_follow_the_peers_rules() -> None:
    store, _ = opened(SimDisk(), small(read_count_max=8, read_size_max=1_000))
    assert store.get("orders", 0, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE
    for n in range(20):
        store.put(message(n, properties={"TAGS": "a" if n % 2 else "b"}), 1_000)
    found = store.get("orders", 0, 3, count_max=4)
    assert (found.status, found.count, found.next_offset) == (GetStatus.FOUND, 4, 7)
    assert list(found.queue_offsets) == [3, 4, 5, 6]
    assert len(found.chunks) == 1
    assert (found.min_offset, found.max_offset) == (0, 20)
    assert found.size == sum(map(len, found.chunks))
    assert store.get("orders", 0, 0).count == 8  # by the setting
    assert store.get("orders", 0, 0, size_max=1).count == 1  # one always passes
    assert store.get("orders", 0, 0, size_max=330).count == 2
    beyond = store.get("orders", 0, 20)
    assert (beyond.status, beyond.next_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, 20)
    far = store.get("orders", 0, 25)
    assert (far.status, far.next_offset) == (GetStatus.OFFSET_OVERFLOW_BADLY, 20)
    before = store.get("orders", 0, -1)
    assert (before.status, before.next_offset) == (GetStatus.OFFSET_TOO_SMALL, 0)
    code = store.read_units("orders", 0, 1, 1)[0][2]
    odd = store.get("orders", 0, 0, codes=frozenset({code}), count_max=5)
    assert odd.queue_offsets == [1, 3, 5, 7, 9]
    none = store.get("orders", 0, 0, codes=frozenset({12345}))
    assert (none.status, none.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 20)
    picked = store.get("orders", 0, 0, accept=lambda record: b"body 00011" in record)
    assert picked.queue_offsets == [11]


def test_filtering_scan_is_bounded() -> None:
    store, _ = opened(SimDisk(), small(queue_segment_size=40_000, filter_scan_size=200))
    for n in range(30):
        store.put(message(n), 1_000)
    got = store.get("orders", 0, 0, codes=frozenset({1}), count_max=4)
    assert (got.status, got.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 10)


def test_old_data_is_read_in_smaller_portions() -> None:
    store, _ = opened(SimDisk(), small(memory_size=1_000, memory_percent=100, read_old_count_max=3))
    for n in range(20):
        store.put(message(n), 1_000)
    old = store.get("orders", 0, 0)
    assert (old.count, old.is_behind) == (3, True)
    recent = store.get("orders", 0, 16)
    assert (recent.count, recent.is_behind) == (4, False)


def test_offsets_by_time() -> None:
    store, _ = opened(SimDisk())
    for n, ms in enumerate([10, 20, 20, 30]):
        store.put(message(n), ms)
    lower = [store.offset_at("orders", 0, ms) for ms in (5, 10, 11, 20, 21, 30, 31)]
    assert lower == [0, 0, 1, 1, 3, 3, 4]
    upper = [store.offset_at("orders", 0, ms, upper=True) for ms in (5, 10, 15, 20, 25, 30, 99)]
    assert upper == [0, 0, 0, 2, 2, 3, 3]
    assert store.stored_ms_at("orders", 0, 3) == 30
    assert store.stored_ms_at("orders", 0, 4) == -1
    assert store.stored_ms_at("none", 0, 0) == -1
    assert store.offset_at("none", 0, 5) == 0


def test_query_finds_by_unique_key_and_by_each_key_newest_first() -> None:
    store, _ = opened(SimDisk())
    for n in range(100):  # over several index files
        store.put(message(n), 1_000 + n)
    for n in (0, 50, 99):
        for key in (f"U{n:05d}", f"k{n}"):
            found = store.query("orders", key, count_max=9, begin_ms=0, end_ms=9_999)
            assert [decode_record(r).body for r in found.records] == [b"body %05d" % n]
    found = store.query("orders", "all", count_max=3, begin_ms=1_010, end_ms=1_020)
    assert [decode_record(r).stored_ms for r in found.records] == [1_020, 1_019, 1_018]
    assert found.last_ms == 1_099
    assert not store.query("paid", "all", count_max=3, begin_ms=0, end_ms=9_999).records


def test_schedule_topic_keeps_the_due_time() -> None:
    store, _ = opened(SimDisk())
    for delay in ("3", "99", "0", "x"):
        properties = {"DELAY": delay, "TAGS": "a"}
        store.put(message(0, topic="SCHEDULE_TOPIC_XXXX", properties=properties), 1_000)
    codes = [code for _, _, code in store.read_units("SCHEDULE_TOPIC_XXXX", 0, 0, 4)]
    assert codes == [11_000, 7_201_000, 97, 97]


@pytest.mark.parametrize("is_clean", [True, False])
def test_other_delay_levels_leave_the_due_times_of_stored_messages(*, is_clean: bool) -> None:
    disk = SimDisk()
    store, _ = opened(disk)
    properties = {"DELAY": "3", "UNIQ_KEY": "U"}
    puts = [
        store.put(message(n, topic=Topic.SCHEDULE, properties=properties), 1_000) for n in (0, 1)
    ]
    if is_clean:
        store.close(2_000)
    disk.restart()
    torn = next(path for path in disk.files if path.startswith("consumequeue"))
    file = disk.open(torn, size=SMALL.queue_segment_size)
    file.write(20 + 12, bytes(8))  # of the second unit
    store, report = opened(disk, small(delay_levels="1s 5s"))
    first, second = store.read_units(Topic.SCHEDULE, 0, 0, 2)
    assert first == (puts[0].log_offset, puts[0].log_end - puts[0].log_offset, 11_000)
    assert second[2] == 6_000
    assert report.queues_mended == ["SCHEDULE_TOPIC_XXXX/0"]
    store.close(2_000)
    disk.restart()
    findings = StoreCheck(disk, SMALL).run(10_000).findings
    assert [found.where for found in findings] == ["config/topics.json"]


def test_topics_can_be_deleted() -> None:
    disk = SimDisk()
    store, _ = opened(disk)
    for topic in ("orders", "paid", "%RETRY%g"):
        store.put(message(0, topic=topic), 1_000)
    assert store.delete_topic("orders") == 1
    assert store.bounds("orders", 0) == (0, 0)
    assert store.remove_other_queues(["paid"]) == ["%RETRY%g"]
    assert store.topics() == ["paid"]
    assert not [name for name in disk.files if name.startswith("consumequeue/orders")]


def test_two_stores_do_not_share_a_folder() -> None:
    disk = SimDisk()
    opened(disk)
    with pytest.raises(StoreLocked):
        opened(disk)


def test_files_of_another_length_are_not_opened() -> None:
    disk = SimDisk()
    filled(disk, 3)
    with pytest.raises(StorageError, match="the settings say 8192"):
        opened(disk, small(log_segment_size=8192))


def test_empty_last_segment_is_dropped() -> None:
    disk = SimDisk()
    filled(disk, 3)
    disk.small["commitlog/00000000000000004096"] = b""
    store, report = opened(disk)
    assert report.notes
    assert len(bodies(store)) == 3


def test_closed_store_takes_nothing() -> None:
    store, _ = opened(SimDisk())
    store.close(1_000)
    assert store.put(message(0), 1_000).status is PutStatus.SERVICE_NOT_AVAILABLE
    store.close(1_000)


def test_record_that_is_not_there_raises() -> None:
    disk = SimDisk()
    put = filled(disk, 1)[0]
    store, _ = opened(disk)
    with pytest.raises(CorruptRecord):
        store.read_record(3, put.record_size)


def test_ipv6_hosts_are_read_and_timed() -> None:
    disk = SimDisk()
    store, _ = opened(disk)
    host = bytes(16) + (10911).to_bytes(4, "big")
    store.put(message(0, born_host=host, store_host=host), 1_234)
    store.put(message(1, born_host=host), 1_235)
    assert [store.stored_ms_at("orders", 0, n) for n in range(2)] == [1_234, 1_235]
    store.close(2_000)
    disk.restart()
    disk.small["abort"] = b""
    store, report = opened(disk)
    assert report.records_count == 2
    assert len(bodies(store)) == 2


@dataclasses.dataclass
class Sent:
    topic: str
    queue_id: int
    body: bytes


@given(
    sent=st.lists(
        st.builds(
            Sent,
            st.sampled_from(["a", "b", "t" * 130]),
            st.integers(0, 2),
            st.binary(max_size=600),
        ),
        max_size=40,
    ),
    crashes=st.booleans(),
    keeps_queues=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_whatever_was_put_is_read_back_after_any_start(
    sent: list[Sent], crashes: bool, keeps_queues: bool
) -> None:
    disk = SimDisk()
    store, _ = opened(disk)
    wanted: dict[tuple[str, int], list[bytes]] = {}
    for item in sent:
        put = store.put(Message(topic=item.topic, queue_id=item.queue_id, body=item.body), 1_000)
        of_queue = wanted.setdefault((item.topic, item.queue_id), [])
        assert put.queue_offset == len(of_queue)
        of_queue.append(item.body)
    if not crashes:
        store.close(2_000)
    disk.restart()
    if not keeps_queues:
        for name in [name for name in disk.files if name.startswith("consumequeue")]:
            del disk.files[name]
    again, _ = opened(disk)
    for (topic, queue_id), expected in wanted.items():
        assert list(bodies(again, topic, queue_id).values()) == expected


def test_hot_path_touches_few_files_a_message() -> None:
    disk = SimDisk()
    store, _ = opened(disk, small(log_segment_size=1 << 20, queue_segment_size=6_000))
    store.put(message(0), 1_000)
    disk.counts.clear()
    for n in range(100):
        store.put(message(n, properties={}), 1_000)
    assert disk.counts == {"write": 200}  # one record, one unit
    disk.reads_count = 0
    assert store.get("orders", 0, 0, count_max=32).count == 32
    assert disk.reads_count == 2  # units, records


def test_store_without_an_index_answers_queries_with_nothing() -> None:
    disk = SimDisk()
    store, _ = opened(disk, small(has_index=False))
    store.put(message(0), 1_000)
    assert not store.query("orders", "k0", count_max=9, begin_ms=0, end_ms=9_999).records
    assert not [name for name in disk.files if name.startswith("index")]


def test_synced_after_close_changes_nothing() -> None:
    store, _ = opened(SimDisk(), small(is_sync_flush=True))
    store.put(message(0), 1_000)
    wanted = store.next_sync(1_000)
    assert wanted is not None
    store.close(1_001)
    store.sync_finished(wanted.log_offset, 1_002)
    assert store.next_sync(9_000) is None


def test_many_changed_queues_are_synced_less_often() -> None:
    """A topic of a thousand queues would keep the disk busy with nothing else."""
    store, _ = opened(SimDisk(), small(log_segment_size=1 << 20))
    files_count = 0
    for now_ms in range(1_000, 21_000, 250):
        for queue_id in range(200):
            store.put(message(0, queue_id=queue_id, properties={}), now_ms)
        while (wanted := store.next_sync(now_ms)) is not None:
            files_count += len(wanted.files)
            for file in wanted.files:
                file.sync()
            store.sync_finished(wanted.log_offset, now_ms)
    assert 4 * 200 < files_count < 8 * 200, "about every four seconds, not every one"
