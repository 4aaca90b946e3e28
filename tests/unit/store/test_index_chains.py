"""Entries of an index, and that their compiled twins are what plain Python says."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.codec.hashes import index_hash, java_hash
from escrowmq.lane import native
from escrowmq.store.index_chains import (
    IndexKey,
    chain,
    chain_plain,
    find_slots,
    find_slots_plain,
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
    codes, places = find_slots_plain(keys, 1_000, 40)
    assert codes == [key_hash(1, "k"), key_hash(1, "l"), key_hash(1, "k")]
    assert places == [40 + code % 1_000 * 4 for code in codes]
    heads = struct.pack(">iii", 7, 99, 7)  # 99 is of an entry that is not there
    entries, newest, fresh_count = chain_plain(keys, codes, places, heads, 8, 5_000)
    assert list(struct.iter_unpack(">iqii", entries)) == [
        (codes[0], 100, 0, 7), (codes[1], 200, 1, 0), (codes[2], 300, 0, 8),
    ]  # fmt: skip
    assert newest == {places[0]: 10, places[1]: 9}
    assert fresh_count == 1


@given(keys=ANY_KEYS, slots_count=st.integers(1, 9) | st.integers(1, 1 << 24))
def test_slots_are_what_plain_python_finds(keys: list[IndexKey], slots_count: int) -> None:
    plain = find_slots_plain(keys, slots_count, 40)
    assert find_slots(keys, slots_count, 40) == plain
    if native.find_slots is not None:
        is_ascii = all(key.isascii() for _, key, _, _ in keys)
        assert native.find_slots(keys, slots_count, 40) == (plain if is_ascii else None)


def test_keys_with_half_of_a_pair_are_for_plain_python() -> None:
    keys: list[IndexKey] = [(1, "\ud800", 0, 0)]
    assert find_slots(keys, 4, 40) == find_slots_plain(keys, 4, 40)


@given(
    keys=KEYS,
    slots_count=st.integers(1, 9),
    heads=st.lists(INT32 | st.integers(0, 40), min_size=20, max_size=20),
    first=st.integers(1, 30) | st.integers(1, (1 << 31) - 40),
    begin_ms=TIMES,
)
def test_entries_are_what_plain_python_makes(
    keys: list[IndexKey], slots_count: int, heads: list[int], first: int, begin_ms: int
) -> None:
    codes, places = find_slots_plain(keys, slots_count, 40)
    given_heads = struct.pack(f">{len(keys)}i", *heads[: len(keys)])
    asked = keys, codes, places, given_heads, first, begin_ms
    entries, newest, fresh_count = chain_plain(*asked)
    found = chain(*asked)
    assert found == (entries, newest, fresh_count)
    assert list(found[1]) == list(newest)  # slots are written in this order


@pytest.mark.skipif(native.chain is None, reason="the lane is not built, or left aside")
def test_nonsense_is_refused() -> None:
    assert native.chain is not None
    assert native.find_slots is not None
    keys: list[IndexKey] = [(1, "k", 0, 0)]
    good = keys, [1], [40], bytes(4), 1, 0
    assert native.chain(*good)[2] == 1
    for nth in range(len(good)):
        for odd in (None, 1 << 80, "", b"12345", [], [(), ()]):
            asked = (*good[:nth], odd, *good[nth + 1 :])
            with pytest.raises((TypeError, ValueError, OverflowError)):
                native.chain(*asked)  # type: ignore[arg-type]
    for odd_slots in ((None, 1, 1), (keys, 0, 1), (keys, 1 << 40, 1), (keys, 1, -1)):
        with pytest.raises((TypeError, ValueError)):
            native.find_slots(*odd_slots)
