"""Replies to pulls: to the byte those of the general coder."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from escrowmq.base.command import Command
from escrowmq.base.fixed_limits import FRAME_SIZE_MAX
from escrowmq.codec.command import encode_reply
from escrowmq.codec.pulled_reply import _KEPT_MAX, encode_pulled, pull_fields, pulled_template
from escrowmq.errors import LocalProtocolError

OPAQUES = st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(0, 20)
OFFSETS = st.integers(0, 12) | st.integers(0, (1 << 63) - 1)
REPLIES = st.tuples(
    st.booleans(),
    OPAQUES,
    st.sampled_from([(0, "FOUND"), (19, "OFFSET_OVERFLOW_ONE"), (20, "NO_MATCHED_MESSAGE")]),
    st.tuples(OFFSETS, OFFSETS, OFFSETS),
    st.tuples(st.integers(0, 3), st.integers(-1, 1 << 20)),
    st.sampled_from([0, 1, 70_000, FRAME_SIZE_MAX // 2, FRAME_SIZE_MAX // 2 + 1]),
)
Reply = tuple[bool, int, tuple[int, str], tuple[int, int, int], tuple[int, int], int]


def anew(reply: Reply) -> bytes:
    is_binary, opaque, (code, remark), offsets, flags, body_size = reply
    ext = pull_fields(*offsets)
    ext |= {"topicSysFlag": str(flags[0]), "groupSysFlag": str(flags[1])}
    request = Command(opaque=opaque, is_binary=is_binary)
    return encode_reply(request, code, remark=remark, ext=ext, later_size=body_size)


def told(reply: Reply) -> bytes:
    is_binary, opaque, (code, remark), offsets, flags, body_size = reply
    request = Command(opaque=opaque, is_binary=is_binary)
    return encode_pulled(request, code, remark, *offsets, flags, body_size)


@example([(True, 1, (0, "FOUND"), (10, 9, 100), (0, digits), 5) for digits in (0, 10, 1 << 20)])
@given(st.lists(REPLIES, max_size=6))
def test_they_are_what_is_encoded_anew(given_replies: list[Reply]) -> None:
    for reply in given_replies + given_replies:
        assert told(reply) == anew(reply)


def test_sizes_that_look_like_a_template_s_marks_are_none() -> None:
    """A size of 37 bytes is a percent sign."""
    for digits in range(1, 19):
        for flag_digits in range(1, 40):
            flags = (10 ** (flag_digits - 1), 0)
            offsets = (10 ** (digits - 1), 0, 10 ** (digits - 1))
            reply: Reply = (True, 1, (0, "FOUND"), offsets, flags, 0)
            assert told(reply) == anew(reply)


def test_only_so_many_are_kept() -> None:
    for flag in range(3 * _KEPT_MAX):
        told((True, 1, (0, "FOUND"), (1, 1, 1), (flag, 0), 0))
    assert pulled_template.cache_info().currsize <= _KEPT_MAX


def test_what_is_too_much_for_a_frame_is_told() -> None:
    for is_binary in (False, True):
        with pytest.raises(LocalProtocolError, match="allowed"):
            told((is_binary, 1, (0, "FOUND"), (1, 1, 1), (0, 0), FRAME_SIZE_MAX))
