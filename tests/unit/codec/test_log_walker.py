"""Walks over logs: what is a record, what is damage, and where a log ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.logs import Bytes, log_of, record_at

from escrowmq.base.message import Message
from escrowmq.codec.log_records import outline_records
from escrowmq.codec.log_walker import CHUNK_SIZE, LogWalker, PointsToRecord, next_data
from escrowmq.codec.record_layout import FILLER_SIZE, HEAD_V4, HEAD_V6, MAGIC_AT

SMALL = 1024


def of(*bodies: bytes) -> list[Message]:
    return [Message(topic="t", body=body) for body in bodies]


def walked(walker: LogWalker, start: int = 0) -> list[int]:
    return [record.log_offset for records in walker.record_batches(start) for record in records]


def leading(places: list[int]) -> PointsToRecord:
    """As if the units of a queue led to these places, in order."""
    return lambda _, queue_offset, record: places[queue_offset : queue_offset + 1] == [record[0]]


@given(st.lists(st.binary(max_size=300), max_size=12))
def test_every_record_is_found_whole_or_by_its_front(bodies: list[bytes]) -> None:
    log, places = log_of(of(*bodies), SMALL)
    walker, by_fronts = LogWalker(log), LogWalker(log)
    assert walked(walker) == places
    stretches = by_fronts.ranges(0, outline_records)
    assert [base + at for base, _, found in stretches for at in found.records] == places
    for each in (walker, by_fronts):
        assert not each.damaged
        assert each.records_count == len(places)
    assert walker.end_offset == by_fronts.end_offset
    assert walker.stored_ms == by_fronts.stored_ms


@given(st.integers(1, 8), st.sampled_from([0, MAGIC_AT, HEAD_V4.size]), st.booleans())
def test_damage_is_passed_over_and_told(number: int, at: int, has_queues: bool) -> None:
    log, places = log_of(of(*[b"x" * 100] * 10), SMALL)
    log.flip(places[number] + at)
    walker = LogWalker(log, leads_to=leading(places) if has_queues else None)
    assert walked(walker) == [place for place in places if place != places[number]]
    (damage,) = walker.damaged
    assert damage.log_offset == places[number]


def test_what_stands_in_a_body_is_no_record_where_queues_tell() -> None:
    """Damage in front of a forged record: looks would take it for one."""
    outer = HEAD_V4.size + 20
    front = len(record_at(of(b"front")[0], 0))
    forged = record_at(
        Message(topic="t", body=b"forged"), front + outer, queue_offset=1, later_ms=9
    )
    log, places = log_of(of(b"front", bytes(20) + forged, b"behind"))
    log.flip(places[1])
    by_looks = walked(LogWalker(log))
    assert front + outer in by_looks
    assert walked(LogWalker(log, leads_to=leading(places))) == [places[0], places[2]]


@pytest.mark.parametrize("size", [HEAD_V4.size + 5, HEAD_V6.size - 1, HEAD_V6.size])
def test_a_short_record_at_a_segments_end_is_found_behind_damage(size: int) -> None:
    last = Message(topic="t", body=b"x" * (size - HEAD_V4.size - 4))
    log = Bytes(SMALL)
    place = SMALL - FILLER_SIZE - size
    fronts = record_at(Message(topic="t", body=b""), 0)
    first = record_at(Message(topic="t", body=b"y" * (place - len(fronts))), 0)
    record = record_at(last, place, queue_offset=1)
    assert (len(first), len(record)) == (place, size)
    log.write(0, first)
    log.write(place, record)
    log.flip(0)  # its size: what it claims to end with is not believed
    walker = LogWalker(log, leads_to=leading([0, place]))
    assert walked(walker) == [place]


def test_a_remnant_behind_the_end_is_not_taken_for_a_record() -> None:
    log, places = log_of(of(b"one", b"two", b"three"))
    newer = record_at(Message(topic="t", body=b"newer by far"), 0, later_ms=1_000_000)
    log.write(0, newer)
    walker = LogWalker(log)
    assert walked(walker) == [0]
    assert walker.end_offset == len(newer) < places[-1]


def test_a_record_larger_than_what_is_read_at_once_is_read_whole() -> None:
    log, places = log_of(of(b"a", b"x" * (CHUNK_SIZE + 9), b"c"), 1 << 24)
    assert walked(LogWalker(log)) == places
    found = list(LogWalker(log).ranges(0, outline_records))
    assert [base + at for base, _, each in found for at in each.records] == places


def test_a_search_ends_before_a_place() -> None:
    log, places = log_of(of(b"a", b"b", b"c"))
    walker = LogWalker(log)
    assert walker.next_record(1) == places[1]
    assert walker.next_record(1, before=places[1] + 1) == places[1]
    assert walker.next_record(1, before=places[1]) is None


def test_a_missing_segment_is_damage_when_another_follows() -> None:
    log, places = log_of(of(*[b"x" * 400] * 8), SMALL)
    del log.segments[SMALL]
    walker = LogWalker(log)
    assert walked(walker) == [place for place in places if place // SMALL != 1]
    assert [(each.log_offset, each.size) for each in walker.damaged] == [(SMALL, SMALL)]


def test_zeros_are_passed_over_in_a_segment() -> None:
    log = Bytes(SMALL)
    log.write(0, b"")
    assert next_data(log, 0, SMALL) == (SMALL, b"")
    log.write(700, b"x")
    position, data = next_data(log, 10, SMALL)
    assert data[700 - position] == ord("x")


@pytest.mark.parametrize(("count", "body_size"), [(3, 300), (2, 70_000)])
def test_a_record_whose_first_bytes_were_never_written_is_where_the_log_ends(
    count: int, body_size: int
) -> None:
    """They stand in a sector of their own, behind all that was durable: world 82545."""
    empty_size = len(record_at(of(b"")[0], 0))
    first = bytes(1024 - count - empty_size)
    log, places = log_of(of(first, b"x" * body_size, b"behind"), 1 << 20)
    assert places[1] == 1024 - count
    log.write(places[1], bytes(count))
    walker = LogWalker(log, durable_offset=places[1], leads_to=leading(places))
    assert walked(walker) == places[:1]
    assert (walker.damaged, walker.end_offset) == ([], places[1])
    log.write(places[1] + count, b"\xff")  # no longer what was written, but for those bytes
    walker = LogWalker(log, durable_offset=places[1], leads_to=leading(places))
    assert walked(walker) == [places[0], places[2]]
