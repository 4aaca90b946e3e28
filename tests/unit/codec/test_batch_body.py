from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.codec.batch_body import decode_batch, encode_batch
from escrowmq.errors import RemoteProtocolError

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
ENTRIES = st.lists(st.tuples(INT32, st.binary(max_size=50), st.binary(max_size=50)), max_size=5)


@given(ENTRIES)
def test_batch_is_read_as_written(entries: list[tuple[int, bytes, bytes]]) -> None:
    assert decode_batch(encode_batch(entries)) == entries


@given(ENTRIES.filter(bool), st.data())
def test_cut_batch_is_refused(entries: list[tuple[int, bytes, bytes]], data: st.DataObject) -> None:
    last = len(encode_batch(entries[-1:]))
    body = encode_batch(entries)
    with pytest.raises(RemoteProtocolError):
        decode_batch(body[: len(body) - data.draw(st.integers(1, last - 1))])
