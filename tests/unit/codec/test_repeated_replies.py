"""Replies that repeat themselves: to the byte those that are encoded anew."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from escrowmq.base.command import Command
from escrowmq.codec.command import encode_reply
from escrowmq.codec.repeated_replies import _KEPT_MAX, ReplyTemplates

TEXTS = st.text(max_size=4) | st.sampled_from(['"language":"PYTHON","opaque":7', "7", "é"])
OPAQUES = st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(0, 20)
REPLIES = st.tuples(
    st.booleans(),
    st.sampled_from([0, 1, 19, 40_000]),
    st.none() | TEXTS,
    st.none() | st.dictionaries(TEXTS, TEXTS, max_size=3),
)


@example([(False, 0, None, None), (False, 0, None, {})], [(0, 0), (1, 0)])
@given(st.lists(REPLIES, min_size=1, max_size=4), st.lists(st.tuples(st.integers(0, 3), OPAQUES)))
def test_they_are_what_is_encoded_anew(
    replies: list[tuple[bool, int, str | None, dict[str, str] | None]],
    asked: list[tuple[int, int]],
) -> None:
    told = ReplyTemplates()
    for nth, opaque in asked:
        is_binary, code, remark, ext = replies[nth % len(replies)]
        request = Command(opaque=opaque, is_binary=is_binary)
        frame = told.encode(request, code, remark=remark, ext=ext)
        assert frame == encode_reply(request, code, remark=remark, ext=ext)


def test_only_so_many_are_kept() -> None:
    told = ReplyTemplates()
    for number in range(3 * _KEPT_MAX):
        told.encode(Command(opaque=1), 0, remark=str(number), ext=None)
        assert len(told._kept) <= _KEPT_MAX
