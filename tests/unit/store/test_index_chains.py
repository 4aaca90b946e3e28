"""Entries of an index, and that their compiled twins are what plain Python says."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.codec.hashes import index_hash, java_hash
from escrowmq.lane import native
from escrowmq.store.index_chains import (
    KEY,
    build_chains,
    find_slots,
    index_key,
    key_hash,
    plain_index_key,
)

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TIMES = INT64 | st.integers(1_700_000_000_000, 1_700_000_100_000)
CODES = st.integers(0, (1 << 31) - 1)
KEYS = st.lists(st.builds(KEY.pack, CODES, INT64, TIMES), max_size=20).map(b"".join)


@given(topic=st.text(min_size=1, max_size=20), key=st.text(max_size=60))
def test_key_hash_is_the_peers(topic: str, key: str) -> None:
    assert key_hash(java_hash(f"{topic}#"), key) == index_hash(topic, key)


@given(key=st.text(alphabet="0123456789ABCDEFN", min_size=1, max_size=1_100))
def test_key_hash_of_unique_keys_is_the_peers(key: str) -> None:
    assert key_hash(java_hash("t#"), key) == index_hash("t", key)


def test_hash_without_an_absolute_value_is_zero() -> None:
    assert key_hash(0x8000_0000, "") == 0


def test_entry_leads_to_the_one_before_it_in_its_slot() -> None:
    codes = [key_hash(1, key) for key in ("k", "l", "k")]
    keys = b"".join(
        index_key(1, *rest) for rest in (("k", 100, 5_000), (b"l", 200, 6_000), ("k", 300, 4_000))
    )
    places = find_slots(keys, 1_000, 40)
    assert places == [40 + code % 1_000 * 4 for code in codes]
    heads = struct.pack(">iii", 7, 99, 7)  # 99 is of an entry that is not there
    entries, newest, fresh_count = build_chains(keys, places, heads, 8, 5_000)
    assert list(struct.iter_unpack(">iqii", entries)) == [
        (codes[0], 100, 0, 7), (codes[1], 200, 1, 0), (codes[2], 300, 0, 8),
    ]  # fmt: skip
    assert newest == {places[0]: 10, places[1]: 9}
    assert fresh_count == 1


@given(
    prefix=INT32,
    key=st.text(max_size=60)
    | st.text(st.characters(max_codepoint=0x7F), max_size=60).map(str.encode)
    | st.text(max_size=9).map(str.encode)
    | st.sampled_from(["", "a" * 2_000, "\ud800", "a\U0001f600\uffff\udfff"]),
    log_offset=INT64,
    stored_ms=TIMES,
)
def test_key_that_waits_is_what_plain_python_makes(
    prefix: int, key: str | bytes, log_offset: int, stored_ms: int
) -> None:
    made = plain_index_key(prefix, key, log_offset, stored_ms)
    assert index_key(prefix, key, log_offset, stored_ms) == made
    assert KEY.unpack(made) == (key_hash(prefix, key), log_offset, stored_ms)


def test_key_that_is_no_text_is_refused() -> None:
    make: Any = index_key
    for odd in (b"\xff", b"a\x80", None, 7, ("a",)):
        with pytest.raises((UnicodeDecodeError, TypeError, AttributeError)):
            make(1, odd, 0, 0)
    for given_ in (("1", "k", 0, 0), (1, "k", None, 0), (1, "k", 0, 1 << 80), (1, "k", 0)):
        with pytest.raises((TypeError, OverflowError, struct.error)):
            make(*given_)


needs_lane = pytest.mark.skipif(
    native.index_lane is None, reason="the lane is not built, or left aside"
)


@needs_lane
@given(
    keys=KEYS,
    slots_count=st.integers(1, 9) | st.integers(1, 1 << 24),
    block_bits=st.sampled_from([0, 5, 16]),
)
def test_blocks_are_those_of_the_slots_that_plain_python_finds(
    keys: bytes, slots_count: int, block_bits: int
) -> None:
    assert native.index_lane is not None
    places = find_slots(keys, slots_count, 40)
    found = native.index_lane.find_blocks(keys, slots_count, 40, block_bits)
    assert found == {at >> block_bits for at in places}


@needs_lane
def test_slots_that_the_lane_does_not_find_are_for_plain_python() -> None:
    assert native.index_lane is not None
    key = index_key(1, "k", 0, 0)
    assert native.index_lane.find_blocks(key, 1 << 30, 40, 16) is None
    assert find_slots(key, 1 << 30, 40)


def packed(newest: dict[int, int]) -> bytes:
    return b"".join([struct.pack("=II", *one) for one in newest.items()])


@needs_lane
@given(
    keys=KEYS,
    slots_count=st.integers(1, 9),
    heads=st.lists(INT32 | st.integers(0, 40), min_size=9, max_size=9),
    first=st.integers(1, 30) | st.integers(1, (1 << 31) - 40),
    begin_ms=TIMES,
)
def test_entries_are_what_plain_python_makes(
    keys: bytes, slots_count: int, heads: list[int], first: int, begin_ms: int
) -> None:
    assert native.index_lane is not None
    memory = bytearray(bytes(40) + struct.pack(">9i", *heads))
    places = find_slots(keys, slots_count, 40)
    given_heads = b"".join([memory[at : at + 4] for at in places])
    entries, newest, fresh_count = build_chains(keys, places, given_heads, first, begin_ms)
    found = native.index_lane.chain(bytes(memory), keys, slots_count, 40, first, begin_ms)
    assert found == (entries, packed(newest), fresh_count)
    changed = memory.copy()
    native.index_lane.lead(changed, packed(newest))
    for at, number in newest.items():
        memory[at : at + 4] = number.to_bytes(4, "big")
    assert changed == memory


@needs_lane
def test_entries_of_many_keys_are_what_plain_python_makes() -> None:
    assert native.index_lane is not None
    keys = b"".join(index_key(n % 7, f"key {n % 500}", n, 1_000 * n) for n in range(2_000))
    memory = bytes(40 + 4 * 3_000)
    places = find_slots(keys, 3_000, 40)
    entries, newest, fresh_count = build_chains(keys, places, bytes(4 * 2_000), 1, 0)
    found = native.index_lane.chain(memory, keys, 3_000, 40, 1, 0)
    assert found == (entries, packed(newest), fresh_count)


@needs_lane
def test_nonsense_is_refused() -> None:
    lane: Any = native.index_lane
    key = KEY.pack(0, 0, 0)
    good = bytes(44), key, 1, 40, 1, 0
    assert lane.chain(*good)[2] == 1
    for nth in range(len(good)):
        for odd in (None, 1 << 80, "", b"12345", [], [(), ()]):
            with pytest.raises((TypeError, ValueError, OverflowError)):
                lane.chain(*good[:nth], odd, *good[nth + 1 :])
    for slots in ((1, 41), (1, 44), (1 << 30, 40), (1, (1 << 31) - 1)):
        with pytest.raises(ValueError, match=r"beyond the file|out of range"):
            lane.chain(bytes(44), key, *slots, 1, 0)
    for place in (41, 44, (1 << 32) - 1):
        with pytest.raises(ValueError, match="beyond the file"):
            lane.lead(bytearray(44), struct.pack("=II", place, 1))
    untouched = bytearray(44)
    for odd in (b"1234567", None, struct.pack("=IIII", 40, 1, 41, 1)):
        with pytest.raises((TypeError, ValueError)):
            lane.lead(untouched, odd)
    with pytest.raises((BufferError, TypeError)):
        lane.lead(bytes(44), struct.pack("=II", 40, 1))
    assert untouched == bytes(44)
    for odd_slots in ((None, 1, 1), (key, 0, 1), (key, 1 << 40, 1), (key, 1, -1), (key[1:], 1, 1)):
        with pytest.raises((TypeError, ValueError)):
            lane.find_blocks(*odd_slots, 1)
    for odd_bits in (-1, 32, 1 << 80, None):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            lane.find_blocks(key, 1, 1, odd_bits)
