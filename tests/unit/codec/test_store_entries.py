from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.codec.store_entries import Checkpoint, decode_checkpoint, encode_checkpoint


@given(
    st.builds(
        Checkpoint,
        *[st.integers(0, (1 << 63) - 1)] * 5,
        st.integers(-1, (1 << 63) - 2),
        st.booleans(),
    )
)
def test_checkpoint_is_read_as_written(checkpoint: Checkpoint) -> None:
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint
    assert decode_checkpoint(b"") == Checkpoint()
