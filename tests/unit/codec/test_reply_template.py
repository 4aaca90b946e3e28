"""Replies written from a template are, to the byte, those of the general encoder."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import example, given
from hypothesis import strategies as st

from escrowmq.base.command import Command
from escrowmq.codec.command import encode_reply
from escrowmq.codec.reply_template import (
    _KEPT_MAX,
    ReplyTemplate,
    ReplyTemplates,
    escaped,
    sent_template,
)

OPAQUES = st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(0, 20)
ASCII = st.text(st.characters(max_codepoint=0x7E), max_size=300)
TEXTS = st.text(max_size=4) | st.sampled_from(['"language":"PYTHON","opaque":7', "7", "é", "5%"])
ALWAYS = st.sampled_from(
    [{}, {"MSG_REGION": "Default", "TRACE_ON": "true"}, {"MSG_REGION": '50% "größer" %b'}]
)


@given(
    st.booleans(),
    OPAQUES,
    ALWAYS,
    st.none() | st.integers(0, 2_000),
    st.lists(st.tuples(ASCII, ASCII, ASCII, st.integers(0, 99)), min_size=1, max_size=3),
)
def test_reply_to_a_send_is_that_of_the_general_encoder(
    is_binary: bool,
    opaque: int,
    always: Mapping[str, str],
    queue_id: int | None,
    sent: list[tuple[str, str, str, int]],
) -> None:
    template = sent_template(always, queue_id)
    request = Command(opaque=opaque, is_binary=is_binary)
    for message_id, offset, key, queue in sent:
        fields = {
            "msgId": message_id,
            "queueId": str(queue if queue_id is None else queue_id),
            "queueOffset": offset,
            "transactionId": key,
        }
        varying = [text for name, text in fields.items() if queue_id is None or name != "queueId"]
        values = [text.encode() if is_binary else escaped(text) for text in varying]
        found = template.frame(opaque, values, is_binary=is_binary, body_size=7)
        assert found == encode_reply(request, 0, ext={**always, **fields}, later_size=7)


@given(
    OPAQUES,
    st.sampled_from([0, 17]),
    st.none() | st.text(min_size=1, max_size=4),
    st.dictionaries(st.sampled_from("abcd"), st.none() | TEXTS),
)
def test_pieces_are_what_stands_around_the_values(
    opaque: int, code: int, remark: str | None, fields: dict[str, str | None]
) -> None:
    template = ReplyTemplate(fields, code=code, remark=remark)
    values = [name.encode() * 3 for name, value in fields.items() if value is None]
    front, rest, *pieces = template.pieces
    before, (end, *in_json) = pieces[: len(values)], pieces[len(values) :]
    text = b"".join(
        [piece + len(one).to_bytes(4, "big") + one
         for piece, one in zip(before, values, strict=True)]
    ) + end  # fmt: skip
    header = front + opaque.to_bytes(4, "big", signed=True) + rest
    header += len(text).to_bytes(4, "big") + text
    assert template.frame(opaque, values, is_binary=True)[8:] == header
    *fronts, last = in_json
    told = [*values, b"%d" % opaque]
    header = b"".join([a + b for a, b in zip(fronts, told, strict=True)]) + last
    assert template.frame(opaque, values, is_binary=False)[8:] == header


def test_sizes_that_look_like_a_mark_of_a_format_are_none() -> None:
    """A size of 37 bytes is a percent sign."""
    for size in range(60):
        template = ReplyTemplate({"a": None, "b": "x" * size})
        fields = {"a": "y" * size, "b": "x" * size}
        found = template.frame(1, [fields["a"].encode()], is_binary=True)
        assert found == encode_reply(Command(opaque=1, is_binary=True), 0, ext=fields)


def test_only_so_many_sizes_are_kept() -> None:
    template = ReplyTemplate({"a": None})
    for size in range(2 * _KEPT_MAX):
        template.frame(1, [b"x" * size], is_binary=True)
        assert len(template._binary) <= _KEPT_MAX


REPLIES = st.tuples(
    st.booleans(),
    st.sampled_from([0, 1, 19, 40_000, -40_000]),
    st.none() | TEXTS,
    st.none() | st.dictionaries(TEXTS, TEXTS, max_size=3),
)


@example([(False, 0, None, None), (False, 0, None, {})], [(0, 0), (1, 0)])
@given(st.lists(REPLIES, min_size=1, max_size=4), st.lists(st.tuples(st.integers(0, 3), OPAQUES)))
def test_replies_given_again_are_those_of_the_general_encoder(
    replies: list[tuple[bool, int, str | None, dict[str, str] | None]],
    asked: list[tuple[int, int]],
) -> None:
    kept = ReplyTemplates()
    for nth, opaque in asked:
        is_binary, code, remark, ext = replies[nth % len(replies)]
        request = Command(opaque=opaque, is_binary=is_binary)
        frame = kept.encode(request, code, remark=remark, ext=ext)
        assert frame == encode_reply(request, code, remark=remark, ext=ext)


def test_only_so_many_templates_are_kept() -> None:
    kept = ReplyTemplates()
    for number in range(3 * _KEPT_MAX):
        kept.encode(Command(opaque=1), 0, remark=str(number), ext=None)
        assert len(kept._kept) <= _KEPT_MAX
