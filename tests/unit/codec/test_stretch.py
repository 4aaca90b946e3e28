"""The records of some bytes, read as a whole and by their fronts alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.harness.logs import STORED_MS, log_of, record_at

from escrowmq.base.message import Message
from escrowmq.codec.layout import HEAD_V4, LOG_OFFSET_AT, MAGIC_AT
from escrowmq.codec.record import encode_filler
from escrowmq.codec.stretch import check_record, is_whole, outline, parse, stored_ms_in

V6 = bytes(range(16)) + bytes([0, 0, 1, 2])
MESSAGES = st.lists(
    st.builds(
        Message,
        topic=st.sampled_from(["t", "orders", "é", "x" * 200]),
        body=st.binary(max_size=90),
        properties=st.dictionaries(st.sampled_from(["KEYS", "a"]), st.just("v"), max_size=2),
        born_host=st.sampled_from([bytes(8), V6]),
        store_host=st.sampled_from([bytes(8), V6]),
    ),
    max_size=6,
)


@given(MESSAGES, st.integers(0, 2_000))
def test_fronts_tell_where_the_records_are_that_are_read_whole(
    messages: list[Message], cut: int
) -> None:
    log, _ = log_of(messages, 1 << 20)
    data = log.read(0, cut)
    whole, fronts = parse(data, 0), outline(data, 0)
    assert fronts.records == [record.log_offset for record in whole.records]
    assert fronts[1:] == whole[1:]


def test_what_stops_a_stretch_is_told_alike() -> None:
    record = record_at(Message(topic="t", body=b"x" * 50), 0)
    following = record_at(Message(topic="t", body=b"y"), len(record))
    moved = record_at(Message(topic="t", body=b"y"), 7)
    for behind, reason, wanted, is_filler in (
        (b"", "", 0, False),
        (bytes(100), "nothing written", 0, False),
        (b"\1" * 100, "magic 0x01010101", 0, False),
        (moved, "the record says that it stands at 7", 0, False),
        (following[:60], "", len(following), False),
        (following[:20], "", len(following), False),
        (encode_filler(100).ljust(100, b"\0"), "", 0, True),
    ):
        for found in (parse(record + behind, 0), outline(record + behind, 0)):
            assert len(found.records) == 1
            assert found.size == len(record)
            assert found.stored_ms == STORED_MS
            assert (found.reason, found.wanted_size, found.is_filler) == (reason, wanted, is_filler)


def test_a_flipped_bit_is_seen_by_those_who_read_it_all() -> None:
    message = Message(topic="t", body=b"x" * 50)
    for at in (0, MAGIC_AT, LOG_OFFSET_AT, HEAD_V4.body_size_at, HEAD_V4.size):
        record = bytearray(record_at(message, 300))
        assert check_record(bytes(record), 300) is None
        record[at] ^= 0x40
        assert check_record(bytes(record), 300)
        assert is_whole(bytes(record), 300, b"t", [0], 0, False) == -1


def test_a_run_is_whole_when_each_of_its_records_is_what_a_unit_promised() -> None:
    log, places = log_of([Message(topic="t", body=b"%d" % number) for number in range(4)])
    run = log.read(places[1], places[3] - places[1])
    assert is_whole(run, places[1], b"t", [1, 2], 0, False) == 2
    assert is_whole(run, places[1], b"u", [1, 2], 0, False) == -1
    assert is_whole(run, places[1], b"t", [1, 3], 0, False) == -1
    assert is_whole(run, places[1] + 1, b"t", [1, 2], 0, False) == -1


def test_the_store_time_is_found_behind_any_host() -> None:
    for host in (bytes(8), V6):
        record = record_at(Message(topic="t", body=b"x", born_host=host), 0, later_ms=9)
        assert stored_ms_in(b"..." + record, 3) == STORED_MS + 9
