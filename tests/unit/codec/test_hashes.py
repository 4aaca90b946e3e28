from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.codec.hashes import body_crc, index_hash, java_hash, tags_code


def plain_java_hash(text: str) -> int:
    code = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        code = (code * 31 + int.from_bytes(data[at : at + 2], "big")) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code


@given(st.text(max_size=60) | st.text("ab", min_size=1_000, max_size=1_100))
def test_hash_of_a_text_is_that_of_java(text: str) -> None:
    assert java_hash(text) == plain_java_hash(text)


def test_known_hashes() -> None:
    assert (java_hash("TagA"), java_hash("TagB"), tags_code("")) == (2_598_919, 2_598_920, 0)
    assert java_hash("polygenelubricants") == -(1 << 31)
    assert body_crc(b"hello") == 907_060_870
    assert index_hash("T", "k") == abs(java_hash("T#k"))
