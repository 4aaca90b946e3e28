from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.store.trailing_zeros import strip_trailing_zeros

SIZES = st.integers(0, 3 * 4096)


@given(st.lists(st.tuples(SIZES, st.binary(max_size=3)), max_size=4), SIZES)
def test_the_same_as_stripping(parts: list[tuple[int, bytes]], zeros_count: int) -> None:
    data = b"".join(bytes(count) + some for count, some in parts) + bytes(zeros_count)
    assert strip_trailing_zeros(data) == data.rstrip(b"\0")


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 8192])
def test_nothing_but_zeros_is_nothing(size: int) -> None:
    assert strip_trailing_zeros(bytes(size)) == b""
    assert strip_trailing_zeros(b"x" + bytes(size)) == b"x"
