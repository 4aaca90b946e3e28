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
    IndexKey,
    chain,
    find_slots,
    key_hash,
)

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TIMES = INT64 | st.integers(1_700_000_000_000, 1_700_000_100_000)
TEXTS = st.text(st.characters(max_codepoint=0x7F), max_size=60)
KEYS = st.lists(
    st.tuples(
        INT32, TEXTS | TEXTS.map(str.encode) | st.sampled_from(["", "a" * 2_000]), INT64, TIMES
    ),
    max_size=20,
)
ANY_KEYS = KEYS | st.lists(st.tuples(INT32, st.text(max_size=9), INT64, TIMES), max_size=5)


@given(topic=st.text(min_size=1, max_size=20), key=st.text(max_size=60))
def test_key_hash_is_the_peers(topic: str, key: str) -> None:
    assert key_hash(java_hash(f"{topic}#"), key) == index_hash(topic, key)


@given(key=st.text(alphabet="0123456789ABCDEFN", min_size=1, max_size=1_100))
def test_key_hash_of_unique_keys_is_the_peers(key: str) -> None:
    assert key_hash(java_hash("t#"), key) == index_hash("t", key)


def test_hash_without_an_absolute_value_is_zero() -> None:
    assert key_hash(0x8000_0000, "") == 0


def test_entry_leads_to_the_one_before_it_in_its_slot() -> None:
    keys: list[IndexKey] = [(1, "k", 100, 5_000), (1, b"l", 200, 6_000), (1, "k", 300, 4_000)]
    codes, places = find_slots(keys, 1_000, 40)
    assert codes == [key_hash(1, "k"), key_hash(1, "l"), key_hash(1, "k")]
    assert places == [40 + code % 1_000 * 4 for code in codes]
    heads = struct.pack(">iii", 7, 99, 7)  # 99 is of an entry that is not there
    entries, newest, fresh_count = chain(keys, codes, places, heads, 8, 5_000)
    assert list(struct.iter_unpack(">iqii", entries)) == [
        (codes[0], 100, 0, 7), (codes[1], 200, 1, 0), (codes[2], 300, 0, 8),
    ]  # fmt: skip
    assert newest == {places[0]: 10, places[1]: 9}
    assert fresh_count == 1


needs_lane = pytest.mark.skipif(
    native.index_lane is None, reason="the lane is not built, or left aside"
)


@needs_lane
@given(
    keys=ANY_KEYS,
    slots_count=st.integers(1, 9) | st.integers(1, 1 << 24),
    block_bits=st.sampled_from([0, 5, 16]),
)
def test_slots_are_what_plain_python_finds(
    keys: list[IndexKey], slots_count: int, block_bits: int
) -> None:
    assert native.index_lane is not None
    found = native.index_lane.find_slots(keys, slots_count, 40, block_bits)
    if not all(key.isascii() for _, key, _, _ in keys):
        assert found is None
        return
    codes, places = find_slots(keys, slots_count, 40)
    assert found is not None
    slots, blocks = found
    assert list(struct.iter_unpack("=II", slots)) == list(zip(codes, places, strict=True))
    assert blocks == {at >> block_bits for at in places}


@needs_lane
def test_slots_that_the_lane_does_not_find_are_for_plain_python() -> None:
    assert native.index_lane is not None
    odd: list[IndexKey] = [(1, "\ud800", 0, 0)]
    assert native.index_lane.find_slots(odd, 4, 40, 16) is None
    assert native.index_lane.find_slots([(1, "k", 0, 0)], 1 << 30, 40, 16) is None
    assert find_slots([(1, "k", 0, 0)], 1 << 30, 40)


@needs_lane
@given(
    keys=KEYS,
    slots_count=st.integers(1, 9),
    heads=st.lists(INT32 | st.integers(0, 40), min_size=9, max_size=9),
    first=st.integers(1, 30) | st.integers(1, (1 << 31) - 40),
    begin_ms=TIMES,
)
def test_entries_are_what_plain_python_makes(
    keys: list[IndexKey], slots_count: int, heads: list[int], first: int, begin_ms: int
) -> None:
    assert native.index_lane is not None
    memory = bytearray(bytes(40) + struct.pack(">9i", *heads))
    codes, places = find_slots(keys, slots_count, 40)
    given_heads = b"".join([memory[at : at + 4] for at in places])
    entries, newest, fresh_count = chain(keys, codes, places, given_heads, first, begin_ms)
    slots = b"".join([struct.pack("=II", *slot) for slot in zip(codes, places, strict=True)])
    found = native.index_lane.chain(bytes(memory), keys, slots, first, begin_ms)
    packed = b"".join([struct.pack("=II", *one) for one in newest.items()])
    assert found == (entries, packed, fresh_count)
    changed = memory.copy()
    native.index_lane.lead(changed, packed)
    for at, number in newest.items():
        memory[at : at + 4] = number.to_bytes(4, "big")
    assert changed == memory


@needs_lane
def test_entries_of_many_keys_are_what_plain_python_makes() -> None:
    assert native.index_lane is not None
    keys: list[IndexKey] = [(n % 7, f"key {n % 500}", n, 1_000 * n) for n in range(2_000)]
    memory = bytes(40 + 4 * 3_000)
    codes, places = find_slots(keys, 3_000, 40)
    slots = b"".join([struct.pack("=II", *slot) for slot in zip(codes, places, strict=True)])
    entries, newest, fresh_count = chain(keys, codes, places, bytes(4 * 2_000), 1, 0)
    packed = b"".join([struct.pack("=II", *one) for one in newest.items()])
    assert native.index_lane.chain(memory, keys, slots, 1, 0) == (entries, packed, fresh_count)


@needs_lane
def test_nonsense_is_refused() -> None:
    lane: Any = native.index_lane
    keys: list[IndexKey] = [(1, "k", 0, 0)]
    slot = struct.pack("=II", 1, 40)
    good = bytes(44), keys, slot, 1, 0
    assert lane.chain(*good)[2] == 1
    for nth in range(len(good)):
        for odd in (None, 1 << 80, "", b"12345", b"", [], [(), ()]):
            with pytest.raises((TypeError, ValueError, OverflowError)):
                lane.chain(*good[:nth], odd, *good[nth + 1 :])
    for place in (41, 44, (1 << 32) - 1):
        with pytest.raises(ValueError, match="beyond the file"):
            lane.chain(bytes(44), keys, struct.pack("=II", 1, place), 1, 0)
        with pytest.raises(ValueError, match="beyond the file"):
            lane.lead(bytearray(44), struct.pack("=II", place, 1))
    untouched = bytearray(44)
    for odd in (b"1234567", None, slot[::-1] + slot, struct.pack("=IIII", 40, 1, 41, 1)):
        with pytest.raises((TypeError, ValueError)):
            lane.lead(untouched, odd)
    with pytest.raises((BufferError, TypeError)):
        lane.lead(bytes(44), struct.pack("=II", 40, 1))
    assert untouched == bytes(44)
    for odd_slots in ((None, 1, 1, 1), (keys, 0, 1, 1), (keys, 1 << 40, 1, 1), (keys, 1, -1, 1)):
        with pytest.raises((TypeError, ValueError)):
            lane.find_slots(*odd_slots)
    for odd_bits in (-1, 32, 1 << 80, None):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            lane.find_slots(keys, 1, 1, odd_bits)
