"""The slave's end: what it takes from a master, and what it refuses. On real stores, in memory."""

from __future__ import annotations

import struct

import msgspec
import pytest

from escrowmq.base.store_settings import StoreSettings
from escrowmq.errors import RemoteProtocolError
from escrowmq.replica.following import (
    OVERLAP_SIZE,
    ComparedOverlap,
    Follower,
    ForeignLogError,
    SlaveTimeouts,
)
from escrowmq.replica.frames import encode_header, encode_report
from escrowmq.store.copied_log import CopiedLog
from escrowmq.store.store import Store
from escrowmq.testing.disk import SimDisk
from tests.unit.store.stores import SMALL, bodies, log_bytes, master, message, opened, sync, units

TERMS = SlaveTimeouts(heartbeat_ms=5_000, housekeeping_ms=20_000)


def slave(settings: StoreSettings = SMALL) -> tuple[Store, CopiedLog]:
    store, _ = opened(SimDisk(), settings)
    return store, store.become_copy()


class Following(Follower):
    """One whose time stands still."""

    def take(self, data: bytes) -> None:
        self.receive(data, 0)


def following(log: CopiedLog, *, start: int, begins_at: int | None = None) -> Following:
    return Following(log, TERMS, start=start, begins_at=begins_at, now_ms=0)


def frames(data: bytes, start: int, size: int) -> bytes:
    return b"".join(
        encode_header(start + at, len(data[at : at + size])) + data[at : at + size]
        for at in range(0, len(data), size)
    )


@pytest.mark.parametrize("size", [1, 3, 91, 1000, 4096])
def test_an_empty_slave_becomes_the_same(size: int) -> None:
    store = master(60)
    copy, log = slave()
    follower = following(log, start=0)
    follower.take(frames(log_bytes(store), 0, size))
    assert log_bytes(copy) == log_bytes(store)
    assert units(copy) == units(store)
    assert bodies(copy, queue_id=1) == bodies(store, queue_id=1)
    found = copy.query("orders", "all", count_max=64, begin_ms=0, end_ms=1 << 40)
    assert found.records == (
        store.query("orders", "all", count_max=64, begin_ms=0, end_ms=1 << 40).records
    )


def test_an_empty_slave_begins_at_the_masters_last_file() -> None:
    store = master(60)
    start = store.end_offset - store.end_offset % SMALL.log_segment_size
    assert start
    copy, log = slave()
    follower = following(log, start=0)
    follower.take(encode_header(start, 0))
    assert log.is_empty, "a sign of life begins nothing"
    follower.take(frames(log_bytes(store, start), start, 100))
    assert log.min_offset == start
    assert log_bytes(copy, start) == log_bytes(store, start)
    assert units(copy)
    for place, ours in units(copy).items():
        assert units(store)[place].endswith(ours)
        assert copy.bounds(*place)[1] == store.bounds(*place)[1]
        assert copy.bounds(*place)[0] > 0
    copy.close(9_000)
    copy.disk.restart()  # type: ignore[attr-defined]
    again, report = opened(copy.disk)  # type: ignore[arg-type]
    assert not report.damaged
    assert units(again) == units(copy)


def test_files_of_another_size_are_told_apart() -> None:
    store = master(60)
    copy, log = slave(msgspec.structs.replace(SMALL, log_segment_size=3000))
    with pytest.raises(RemoteProtocolError, match="mappedFileSizeCommitLog"):
        following(log, start=0).take(frames(log_bytes(store), 0, 4096))
    with pytest.raises(RemoteProtocolError, match="mappedFileSizeCommitLog"):
        following(slave()[1], start=0).take(encode_header(1000, 1) + b"x")
    assert copy.end_offset < 3000


def test_a_slave_that_was_told_where_to_begin_begins_there_only() -> None:
    _, log = slave()
    with pytest.raises(RemoteProtocolError, match="not from 0"):
        following(log, start=0, begins_at=0).take(encode_header(4096, 1) + b"x")


@pytest.mark.parametrize(("off", "what"), [(1, "a gap"), (-1, "an overlap"), (91, "a gap")])
def test_gaps_and_overlaps_are_refused(off: int, what: str) -> None:
    store = master(9)
    copy, log = slave()
    follower = following(log, start=0)
    data = log_bytes(store)
    follower.take(frames(data[:200], 0, 200))
    end = copy.end_offset
    with pytest.raises(RemoteProtocolError, match=what):
        follower.take(frames(data[200 + off :], 200 + off, 500))
    assert copy.end_offset == end


def test_a_damaged_record_is_not_appended() -> None:
    store = master(9)
    data = bytearray(log_bytes(store))
    (size,) = struct.unpack_from(">i", data)
    for at in (size + 4, size + 28, size + 90):  # magic, own offset, body
        copy, log = slave()
        spoilt = bytes(data[:at]) + bytes([data[at] ^ 1]) + bytes(data[at + 1 :])
        with pytest.raises(RemoteProtocolError, match=f"at log offset {size} there is no record"):
            following(log, start=0).take(frames(spoilt, 0, 64))
        assert log_bytes(copy) == bytes(data[:size]), at


def test_a_record_of_an_impossible_size_is_refused_when_its_head_is_there() -> None:
    store = master(3)
    data = log_bytes(store)
    spoilt = struct.pack(">i", 100_000) + data[4:]
    copy, log = slave()
    with pytest.raises(RemoteProtocolError, match="a record of 100000 bytes"):
        following(log, start=0).take(frames(spoilt[:91], 0, 91))
    assert copy.end_offset == 0


def test_a_filler_that_does_not_fit_its_file_is_refused() -> None:
    store = master(60)
    data = bytearray(log_bytes(store))
    at = data.index(struct.pack(">I", 0xCBD43194)) - 4
    data[at + 3] ^= 1
    _, log = slave()
    with pytest.raises(RemoteProtocolError, match="a filler of"):
        following(log, start=0).take(frames(bytes(data), 0, 1000))
    assert log.end_offset == at


def test_remnants_behind_a_filler_are_copied_and_mean_nothing() -> None:
    store = master(60)
    data = bytearray(log_bytes(store))
    at = data.index(struct.pack(">I", 0xCBD43194)) + 4
    end = at + -at % SMALL.log_segment_size
    assert end - at > 8
    data[at:end] = data[end : end + end - at]
    copy, log = slave()
    following(log, start=0).take(frames(bytes(data), 0, 7))
    assert log_bytes(copy) == bytes(data)
    copy.close(9_000)
    copy.disk.restart()  # type: ignore[attr-defined]
    again, report = opened(copy.disk)  # type: ignore[arg-type]
    assert not report.damaged
    assert log_bytes(again) == bytes(data)


# -- whose log it is ---------------------------------------------------------------------------


def begun(store: Store, log: CopiedLog) -> Following:
    """A connection to this master, as far as it proves what is there already."""
    start = ComparedOverlap().start_offset(log)
    return following(log, start=start)


def test_a_slave_goes_on_only_when_what_it_has_is_the_masters() -> None:
    store = master(60)
    data = log_bytes(store)
    copy, log = slave()
    following(log, start=0).take(frames(data[:5000], 0, 500))
    follower = begun(store, log)
    assert not follower.is_proved
    end = log.end_offset
    follower.take(frames(data[1 : end - 1], 1, 97))
    assert not follower.is_proved
    assert log.end_offset == end
    follower.take(frames(data[end - 1 :], end - 1, 97))
    assert follower.is_proved
    assert log_bytes(copy) == data
    assert units(copy) == units(store)


def test_another_clusters_log_is_not_mixed_in() -> None:
    ours, foreign = master(20), master(80, seed=2)
    copy, log = slave()
    following(log, start=0).take(frames(log_bytes(ours), 0, 500))
    before = log_bytes(copy)
    theirs = log_bytes(foreign)
    first = next(n for n, (a, b) in enumerate(zip(before, theirs, strict=False)) if a != b)
    follower = begun(foreign, log)
    with pytest.raises(ForeignLogError) as caught:
        follower.take(frames(theirs[1:], 1, 33))
    assert caught.value.log_offset == first
    assert log_bytes(copy) == before


def test_diverged_logs_are_told_apart_where_they_differ_first() -> None:
    store = master(20)
    shared = log_bytes(store)
    store.put(message(90, body=b"here"), 5_000)
    _, log = slave()
    following(log, start=0).take(frames(log_bytes(store), 0, 500))
    end = len(shared)
    theirs = shared + b"\0\0\0\xff" + b"z" * 500
    with pytest.raises(ForeignLogError) as caught:
        begun(store, log).take(frames(theirs[1:], 1, 200))
    assert end <= caught.value.log_offset < end + 4


def test_a_master_whose_log_is_shorter_proves_nothing() -> None:
    store = master(20)
    data = log_bytes(store)
    _, log = slave()
    following(log, start=0).take(frames(data, 0, 500))
    follower = begun(store, log)
    follower.take(frames(data[1:800], 1, 100) + encode_header(800, 0))
    assert not follower.is_proved
    assert follower.is_ahead
    assert log.end_offset == len(data)


class _Long:
    """A log of one long file, for those who look where it begins."""

    segment_size = 1 << 30
    min_offset = 0
    end_offset = 100 * OVERLAP_SIZE


def test_what_differs_from_the_first_byte_on_is_looked_at_further_back() -> None:
    overlap, log = ComparedOverlap(), _Long()
    first = overlap.start_offset(log)  # type: ignore[arg-type]
    assert first == log.end_offset - OVERLAP_SIZE
    assert not overlap.note_difference(log, first)  # type: ignore[arg-type]
    second = overlap.start_offset(log)  # type: ignore[arg-type]
    assert second == log.end_offset - 16 * OVERLAP_SIZE
    assert overlap.note_difference(log, second + 5)  # type: ignore[arg-type]
    # From then on it is looked at that place only.
    assert overlap.start_offset(log) == second + 5 - OVERLAP_SIZE  # type: ignore[arg-type]
    overlap.note_equal()
    assert overlap.start_offset(log) == first  # type: ignore[arg-type]


def test_a_wider_look_ends_at_the_logs_beginning() -> None:
    overlap, log = ComparedOverlap(), _Long()
    while not overlap.note_difference(log, overlap.start_offset(log)):  # type: ignore[arg-type]
        pass
    overlap = ComparedOverlap()
    looks = 0
    while not overlap.note_difference(log, overlap.start_offset(log)):  # type: ignore[arg-type]
        looks += 1
    assert looks == 2


# -- what is said to the master ------------------------------------------------------------------


def test_the_first_report_is_said_at_once_and_the_others_when_there_is_more() -> None:
    store = master(20)
    data = log_bytes(store)
    _, log = slave()
    follower = following(log, start=0)
    assert follower.next_report(0) == encode_report(0)
    assert follower.next_report(1) == b""
    follower.receive(frames(data[:2000], 0, 500), 2)
    assert follower.next_report(2) == encode_report(log.end_offset)
    assert follower.next_report(3) == b""
    assert follower.wake_at_ms() == 5_002
    assert follower.next_report(5_002) == encode_report(log.end_offset)


def test_a_ticket_stands_for_the_first_report_alone() -> None:
    _, log = slave()
    follower = Follower(log, TERMS, start=0, begins_at=0, ticket=1 << 62, now_ms=0)
    assert follower.next_report(0) == encode_report(1 << 62)
    assert follower.next_report(5_000) == encode_report(0)


def test_what_is_not_proved_yet_is_not_reported() -> None:
    store = master(20)
    data = log_bytes(store)
    _, log = slave()
    following(log, start=0).take(frames(data, 0, 500))
    follower = begun(store, log)
    assert follower.next_report(0) == encode_report(1)
    follower.take(frames(data[1:900], 1, 500))
    assert follower.next_report(1) == b""
    assert follower.next_report(5_000) == encode_report(1)
    follower.take(frames(data[900:], 900, 500))
    assert follower.next_report(5_001) == encode_report(len(data))


def test_what_is_durable_is_reported_where_acknowledgements_wait_for_the_disk() -> None:
    store = master(5)
    copy, log = slave(msgspec.structs.replace(SMALL, is_sync_flush=True))
    follower = following(log, start=0)
    follower.next_report(0)
    follower.take(frames(log_bytes(store), 0, 500))
    assert follower.next_report(1) == b""
    assert sync(copy, 2)
    assert follower.next_report(2) == encode_report(store.end_offset)


def test_a_silent_master_is_gone() -> None:
    _, log = slave()
    follower = following(log, start=0)
    assert follower.next_report(15_000)
    assert follower.wake_at_ms() == 20_000
    with pytest.raises(RemoteProtocolError, match="nothing for 20 s"):
        follower.next_report(20_000)
    follower.receive(encode_header(0, 0), 19_000)
    assert follower.next_report(20_000)
