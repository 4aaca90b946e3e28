"""Properties as columns: the same with the native lane and without."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

from escrowmq.codec.properties import decode_properties  # noqa: E402
from escrowmq.lane import native  # noqa: E402
from escrowmq.pipeline.arrow.cells import ByteBuffer  # noqa: E402
from escrowmq.pipeline.arrow.compiled import ParsedEntries, PropertyColumns, parse_properties  # noqa: E402
from escrowmq.pipeline.arrow.property_columns import Properties  # noqa: E402

KIND = pa.map_(pa.string(), pa.string())


def found_in(encoded: list[bytes]) -> PropertyColumns:
    ends = list(itertools.accumulate((len(each) for each in encoded), initial=4))
    places = np.array(ends, dtype=np.int64)
    return parse_properties(ByteBuffer(b"head" + b"".join(encoded)), places[:-1], places[1:])


_odd = st.lists(
    st.sampled_from([b"a", b"KEYS", b"\x01", b"\x02", b"\xff", "é".encode()]), max_size=20
).map(b"".join)


@settings(max_examples=200, deadline=None)
@given(st.lists(_odd, min_size=1, max_size=8))
def test_they_are_what_the_plain_decoder_says(encoded: list[bytes]) -> None:
    plain = [decode_properties(each) for each in encoded]
    assert [dict(pairs) for pairs in found_in(encoded).maps(KIND).to_pylist()] == plain
    for name in ("a", "KEYS", "none"):
        assert found_in(encoded).values(name).to_pylist() == [each.get(name) for each in plain]


@pytest.mark.skipif(native.find_entries is None, reason="the lane is not built, or left aside")
def test_who_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    many = b"".join(b"n%d\x01v\x02" % number for number in range(100))
    assert isinstance(found_in([b"a\x01b\x02"]), ParsedEntries)
    assert isinstance(found_in([b"a\x01b\x02", many]), Properties)
    assert found_in([b"a\x01b\x02", many]).values("n99").to_pylist() == [None, "v"]
    monkeypatch.setattr(native, "find_entries", None)
    assert isinstance(found_in([b"a\x01b\x02"]), Properties)


def test_no_records_have_no_properties() -> None:
    assert found_in([]).maps(KIND).to_pylist() == []
    assert found_in([]).values("a").to_pylist() == []
