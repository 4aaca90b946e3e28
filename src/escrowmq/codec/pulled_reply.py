"""Encodes replies to pulls by templates: they differ only in their opaque, three offsets and the
size of the body."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from escrowmq.base.command import Command
from escrowmq.base.fixed_limits import FRAME_SIZE_MAX
from escrowmq.codec.command import encode_reply
from escrowmq.codec.reply_template import ReplyTemplate

_KEPT_MAX: Final = 256
BODY_SIZE_MAX: Final = FRAME_SIZE_MAX // 2
"""The largest body that the template encodes. A larger one may exceed a frame, which the general
encoder reports."""


def pull_fields(next_offset: object, low: object, high: object) -> dict[str, str]:
    """Return the fields that every reply to a pull has: the next offset, and the queue's bounds."""
    return {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(next_offset),
        "minOffset": str(low),
        "maxOffset": str(high),
    }


def encode_pulled(  # noqa: PLR0913 - what it says
    request: Command,
    code: int,
    remark: str,
    next_offset: int,
    low: int,
    high: int,
    flags: tuple[int, int],
    body_size: int,
) -> bytes:
    """Return a reply frame without its body, in the encoding of the request. `flags` are those of
    topic and group. The arguments are positional, for speed: this is called for every pull."""
    if body_size > BODY_SIZE_MAX:
        ext = pull_fields(next_offset, low, high) | _flag_fields(flags)
        return encode_reply(request, code, remark=remark, ext=ext, later_size=body_size)
    offsets = b"%d" % next_offset, b"%d" % low, b"%d" % high
    return pulled_template(code, remark, flags).frame(
        request.opaque, offsets, is_binary=request.is_binary, body_size=body_size
    )


@lru_cache(_KEPT_MAX)
def pulled_template(code: int, remark: str, flags: tuple[int, int]) -> ReplyTemplate:
    """Return the template of replies with these flags of topic and group, in which the three
    offsets vary."""
    offsets = dict.fromkeys(("nextBeginOffset", "minOffset", "maxOffset"))
    fields = {**pull_fields("", "", ""), **offsets, **_flag_fields(flags)}
    return ReplyTemplate(fields, code=code, remark=remark)


def _flag_fields(flags: tuple[int, int]) -> dict[str, str]:
    topic_flag, group_flag = flags
    return {"topicSysFlag": str(topic_flag), "groupSysFlag": str(group_flag)}
