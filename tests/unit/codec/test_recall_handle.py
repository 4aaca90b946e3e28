from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.codec.recall_handle import RecallHandle, decode_recall_handle, encode_recall_handle
from escrowmq.errors import UsageError


@given(st.integers(0, 1 << 62), st.from_regex(r"[A-Za-z0-9_%-]{1,20}", fullmatch=True))
def test_recall_handle_is_read_as_written(deliver_ms: int, name: str) -> None:
    handle = RecallHandle(topic=name, broker_name="b", deliver_ms=deliver_ms, unique_key="U")
    assert decode_recall_handle(encode_recall_handle(handle)) == handle


@pytest.mark.parametrize(
    "text", ["", "x", "djIgYSBiIDEgYw==", "djEgYSBiIHggYw==", "é", "A" * 2_000]
)
def test_recall_handle_of_nobody_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        decode_recall_handle(text)
