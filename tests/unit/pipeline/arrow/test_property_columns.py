"""Properties of many records at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from escrowmq.codec.properties import decode_properties, encode_properties  # noqa: E402
from escrowmq.pipeline.arrow.property_columns import Properties  # noqa: E402

KIND = pa.map_(pa.string(), pa.string())


def maps_of(encoded: list[bytes]) -> list[dict[str, str]]:
    found = Properties(pa.array(encoded, type=pa.binary())).maps(KIND).to_pylist()
    maps = [dict(pairs) for pairs in found]
    assert [len(pairs) for pairs in found] == [len(each) for each in maps], "a name came twice"
    return maps


_odd = st.binary(max_size=40).map(lambda data: data.replace(b"\xff", b"\x01"))
_entries = st.lists(
    st.tuples(
        st.sampled_from(["UNIQ_KEY", "WAIT", "KEYS", "a", "TRAN_PREPARED_QUEUE_OFFSET_1",
                         "TRAN_PREPARED_XXXXX_OFFSET_1"]),
        st.text("ab \x01é", min_size=1, max_size=5),
    ),
    max_size=12,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(_entries, min_size=1, max_size=8))
def test_maps_are_what_the_plain_decoder_says(rows: list[list[tuple[str, str]]]) -> None:
    encoded = ["".join(f"{name}\x01{value}\x02" for name, value in row).encode() for row in rows]
    assert maps_of(encoded) == [decode_properties(each) for each in encoded]


@settings(max_examples=300, deadline=None)
@given(st.lists(_odd, min_size=1, max_size=8))
def test_whatever_can_be_read_of_odd_bytes_is(encoded: list[bytes]) -> None:
    assert maps_of(encoded) == [decode_properties(each) for each in encoded]


@pytest.mark.parametrize("name", ["KEYS", "UNIQ_KEY", "a", "TRACE_ON", "none-of-them"])
def test_values_of_one_name(name: str) -> None:
    rows = [
        {"KEYS": "k", "UNIQ_KEY": "1", "TRACE_ON": "true"},
        {},
        {"a": "b", "UNIQ_KEZ": "x", "TRAN_MSG": "true"},
        {"UNIQ_KEY": "2"},
    ]
    encoded = pa.array([encode_properties(row) for row in rows], type=pa.binary())
    assert Properties(encoded).values(name).to_pylist() == [row.get(name) for row in rows]


def test_of_two_values_the_last_counts() -> None:
    encoded = pa.array([b"UNIQ_KEY\x01own\x02UNIQ_KEY\x01batch\x02"], type=pa.binary())
    assert Properties(encoded).values("UNIQ_KEY").to_pylist() == ["batch"]


def test_part_of_an_array() -> None:
    encoded = pa.array([b"a\x011\x02", b"a\x012\x02", b"a\x013\x02"], type=pa.binary())[1:]
    assert Properties(encoded).values("a").to_pylist() == ["2", "3"]
