"""The records of some bytes, read as a whole and by their fronts alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.harness.logs import STORED_MS, log_of, record_at

from escrowmq.base.message import Message, SysFlag
from escrowmq.base.runs import RUN
from escrowmq.codec.log_records import (
    find_record_starts,
    match_queue_entries,
    outline_records,
    parse_records,
    record_fault,
    record_stored_ms,
)
from escrowmq.codec.record import encode_filler
from escrowmq.codec.record_layout import HEAD_V4, LOG_OFFSET_AT, MAGIC_AT
from escrowmq.lane import native
from escrowmq.store.encoding import encode_pieces

KINDS = (0, SysFlag.PREPARED, SysFlag.COMMIT, SysFlag.ROLLBACK)
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
    whole, fronts = parse_records(data, 0), outline_records(data, 0)
    assert fronts.records == [record.log_offset for record in whole.records]
    assert fronts[1:] == whole[1:]


@pytest.mark.skipif(native.find_starts is None, reason="the lane is not built, or left aside")
@given(
    MESSAGES,
    st.lists(st.tuples(st.floats(0, 1), st.sampled_from([0, 1, 0x7F, 0x80, 0xFF])), max_size=3),
    st.floats(0, 1),
    st.sampled_from([-1, *KINDS]),
)
@example([Message(topic="t", body=b"x")] * 3, [(0.36, 0xFF)], 1.0, -1)
def test_compiled_code_finds_the_same_starts(
    messages: list[Message], spoilt: list[tuple[float, int]], share: float, kind: int
) -> None:
    several = [
        msgspec.structs.replace(message, sys_flag=message.sys_flag | KINDS[number % len(KINDS)])
        for number, message in enumerate(messages)
    ]
    log, _ = log_of(several, 1 << 20)
    data = bytearray(log.read(0, 1 << 20).rstrip(b"\0"))
    for place, byte in spoilt:
        if data:
            data[int(place * (len(data) - 1))] = byte
    some = bytes(data[: int(share * len(data))])
    assert native.find_starts is not None
    for base in (0, 1, 1 << 40):
        given_to_both = some, base, SysFlag.TRANSACTION_MASK, kind
        assert native.find_starts(*given_to_both) == find_record_starts(*given_to_both)


@pytest.mark.skipif(native.find_starts is None, reason="the lane is not built, or left aside")
def test_compiled_code_refuses_what_is_no_place() -> None:
    assert native.find_starts is not None
    for base in (-1, (1 << 63) - 1):
        with pytest.raises(ValueError, match="a place beyond the log"):
            native.find_starts(b"some", base, 12, -1)
    for odd in ((1, 0, 12, -1), (b"", "", 12, -1), (b"", 0, None, -1), (b"", 1 << 70, 12, -1)):
        with pytest.raises((TypeError, OverflowError)):
            native.find_starts(*odd)


def test_what_stops_a_stretch_is_told_alike() -> None:
    record = record_at(Message(topic="t", body=b"x" * 50), 0)
    following = record_at(Message(topic="t", body=b"y"), len(record))
    moved = record_at(Message(topic="t", body=b"y"), 7)
    for behind, reason, wanted, is_filler in (
        (b"", "", 0, False),
        (bytes(100), "nothing written", 0, False),
        (b"\1" * 100, "magic 0x01010101", 0, False),
        (moved, "the record claims to be at 7", 0, False),
        (following[:60], "", len(following), False),
        (following[:20], "", len(following), False),
        (encode_filler(100).ljust(100, b"\0"), "", 0, True),
    ):
        for found in (parse_records(record + behind, 0), outline_records(record + behind, 0)):
            assert len(found.records) == 1
            assert found.size == len(record)
            assert found.stored_ms == STORED_MS
            assert (found.reason, found.wanted_size, found.is_filler) == (reason, wanted, is_filler)


def test_a_flipped_bit_is_seen_by_those_who_read_it_all() -> None:
    message = Message(topic="t", body=b"x" * 50)
    for at in (0, MAGIC_AT, LOG_OFFSET_AT, HEAD_V4.body_size_at, HEAD_V4.size):
        record = bytearray(record_at(message, 300))
        assert record_fault(bytes(record), 300) is None
        record[at] ^= 0x40
        assert record_fault(bytes(record), 300)
        assert match_queue_entries(bytes(record), 300, b"t", [0], 0, False) == -1


def test_a_run_is_whole_when_each_of_its_records_is_what_a_unit_promised() -> None:
    log, places = log_of([Message(topic="t", body=b"%d" % number) for number in range(4)])
    run = log.read(places[1], places[3] - places[1])
    assert match_queue_entries(run, places[1], b"t", [1, 2], 0, False) == 2
    assert match_queue_entries(run, places[1], b"u", [1, 2], 0, False) == -1
    assert match_queue_entries(run, places[1], b"t", [1, 3], 0, False) == -1
    assert match_queue_entries(run, places[1] + 1, b"t", [1, 2], 0, False) == -1


def by_run(data: bytes, runs: list[tuple[int, int]], offsets: Sequence[int], has_crc: bool) -> bool:
    nth = at = 0
    for place, size in runs:
        nth = match_queue_entries(data[at : at + size], place, b"t", offsets, nth, has_crc)
        if nth < 0:
            return False
        at += size
    return nth == len(offsets)


SPOILT = st.lists(st.tuples(st.floats(0, 1), st.sampled_from([1, 0x80, 0xFF])), max_size=1)


@pytest.mark.skipif(native.are_whole is None, reason="the lane is not built, or left aside")
@given(
    st.lists(st.tuples(st.binary(max_size=20), st.sampled_from(["t"] * 9 + ["u"])), max_size=6),
    st.sets(st.integers(0, 5)), st.sampled_from([bytes(8)] * 5 + [V6]), SPOILT, st.booleans(),
)  # fmt: skip
@example([(b"a", "t")] * 3, {1}, bytes(8), [], False)
@example([(b"", "t")], set(), bytes(8), [(0.296875, 1)], False)
@example([(b"a", "t")] * 3, set(), bytes(8), [(at / 1_000, 0xFF) for at in (300,)], False)
def test_compiled_code_finds_the_same_runs_whole(
    messages: list[tuple[bytes, str]],
    missing: set[int],
    host: bytes,
    spoilt: list[tuple[float, int]],
    has_crc: bool,
) -> None:
    assert native.are_whole is not None
    log, places = log_of(
        [Message(topic=topic, body=body, born_host=host) for body, topic in messages], 1 << 20
    )
    there = [nth for nth in range(len(places)) if nth not in missing]
    runs = [(places[nth], int.from_bytes(log.read(places[nth], 4), "big")) for nth in there]
    data = bytearray(b"".join([log.read(*run) for run in runs]))
    for share, byte in spoilt:
        if data:
            data[int(share * (len(data) - 1))] ^= byte
    given_runs = b"".join([RUN.pack(*run) for run in runs])
    found = native.are_whole(bytes(data), given_runs, b"t", there, has_crc)
    is_usual = host == bytes(8) or not runs
    assert found == (by_run(bytes(data), runs, there, has_crc) and is_usual)
    for odd in (there[1:], [*there, 9], [nth + 1 for nth in there]):
        if there:  # a spoilt record may be what this promises
            wanted = by_run(bytes(data), runs, odd, has_crc) and is_usual
            assert native.are_whole(bytes(data), given_runs, b"t", odd, has_crc) == wanted
            assert spoilt or not wanted
    assert not native.are_whole(bytes(data) + b"x", given_runs, b"t", there, has_crc)
    assert not (data and native.are_whole(bytes(data)[:-1], given_runs, b"t", there, has_crc))


@pytest.mark.skipif(native.are_whole is None, reason="the lane is not built, or left aside")
def test_compiled_code_leaves_what_is_unusual_to_others() -> None:
    are_whole: Any = native.are_whole
    (with_crc,) = encode_pieces(
        Message(topic="t", body=b"x"), [(0, b"x", b"", {})],
        queue_offset=0, log_offset=0, has_crc=True, stored_ms=STORED_MS,
    )  # fmt: skip
    run = RUN.pack(0, len(with_crc))
    assert match_queue_entries(with_crc, 0, b"t", [0], 0, True) == 1
    assert are_whole(with_crc, run, b"t", [0], False)
    assert not are_whole(with_crc, run, b"t", [0], True)
    strange: list[tuple[Any, ...]] = [("", b"", b"", [], 0), (b"", b"", b"", 5, 0), (b"",)]
    for odd in (*strange, (b"", b"", "", [], 0)):
        with pytest.raises(TypeError):
            are_whole(*odd)
    with pytest.raises(ValueError, match="no whole runs"):
        are_whole(b"", b"odd", b"t", [], False)
    record = record_at(Message(topic="t", body=b"x"), 0)
    run = RUN.pack(0, len(record))
    with pytest.raises(TypeError):
        are_whole(record, run, b"t", [None], False)
    for place in (-1, (1 << 63) - 1, 1):
        assert not are_whole(record, RUN.pack(place, len(record)), b"t", [0], False)
    for size in (-1, len(record) + 1, len(record) - 1, 0):
        assert not are_whole(record, RUN.pack(0, size), b"t", [0], False)


def test_the_store_time_is_found_behind_any_host() -> None:
    for host in (bytes(8), V6):
        record = record_at(Message(topic="t", body=b"x", born_host=host), 0, later_ms=9)
        assert record_stored_ms(b"..." + record, 3) == STORED_MS + 9
