"""Runs of consecutive requests that the native lane lays out: the data it needs for them. What it
cannot serve is served one by one (broker/fast/fast_path); what that learns, the lane knows the next
time."""

from __future__ import annotations

from typing import Final

from escrowmq.base.codes import Flag, Request
from escrowmq.base.fixed_limits import TOPIC_SIZE_MAX
from escrowmq.base.message import SysFlag
from escrowmq.broker.sends.forbidden_to_senders import ODD, ODD_OF_HALF
from escrowmq.codec.json_shapes import JsonSendShape
from escrowmq.codec.request_shapes import EndShape, SendShape
from escrowmq.codec.sent_template import SentTemplate
from escrowmq.lane.native import EndShape as GivenEnd
from escrowmq.lane.native import JsonShape, Place, Shape, TailGiven
from escrowmq.store.run import Tail
from escrowmq.txn.end_rules import plain_verdict
from escrowmq.txn.state import State

_PLACES_MAX: Final = 10_000
_CODE: Final = slice(8, 10)


def shape_of(shape: SendShape) -> Shape | None:
    """A shape of requests in the native lane's form; None when it does not serve them."""
    header, flag = shape.header, shape.flag
    sys_flag, code = header.sys_flag, int.from_bytes(shape.front[_CODE], "big")
    may_be = _may_be(code, sys_flag, header.topic, is_batch=header.batch, asks=shape.wants_id)
    if shape.signed is not None or flag & Flag.REPLY or may_be is None:
        return None
    return (
        shape.front, shape.suffix, _named(header.topic), *shape.spans,
        header.flag, sys_flag, sys_flag & ~SysFlag.TRANSACTION_MASK, header.reconsume_times,
        flag & Flag.ONE_WAY, *may_be,
    )  # fmt: skip


def json_shape_of(shape: JsonSendShape) -> JsonShape | None:
    """A shape of requests in JSON in the native lane's form; None when it does not serve them."""
    said, ext = shape.said, shape.said.extFields
    sys_flag, asks = int(ext.f), ext.escrowWantsId == "true"
    may_be = _may_be(said.code, sys_flag, ext.b, is_batch=ext.m == "true", asks=asks)
    if said.flag & Flag.REPLY or may_be is None:
        return None
    front, second, third, fourth, end = shape.pieces
    return (
        (front, second, third, fourth, end), shape.order, _named(ext.b),
        int(ext.h), sys_flag, sys_flag & ~SysFlag.TRANSACTION_MASK, int(ext.j),
        said.flag & Flag.ONE_WAY, *may_be,
    )  # fmt: skip


def _may_be(
    code: int, sys_flag: int, topic: str, *, is_batch: bool, asks: bool
) -> tuple[bool, bool, bool] | None:
    """Whether requests may be plain messages, or halves, and whether they are batches; None when
    the native lane does not serve them."""
    if code == Request.SEND_BATCH_MESSAGE:
        return len(topic) <= TOPIC_SIZE_MAX and not sys_flag & ODD, False, True
    if code == Request.SEND_MESSAGE_V2 and not is_batch:
        return not sys_flag & ODD, not (sys_flag & ODD_OF_HALF or asks), False
    return None


def end_shape_of(shape: EndShape) -> GivenEnd | None:
    """A shape of ENDs in the native lane's form; None when it does not serve them."""
    header, flag = shape.header, shape.flag
    state = plain_verdict(header.commit_or_rollback, is_from_check=header.from_transaction_check)
    if flag & Flag.REPLY or state is None:
        return None
    spans = sorted(shape.spans)
    (a, b), (c, d), (e, f), (g, h) = spans
    queue_offset, log_offset, key = (spans.index(span) for span in shape.spans[:3])
    return (
        shape.front, header.producer_group.encode(), a, b, c, d, e, f, g, h,
        queue_offset, log_offset, key, state == State.COMMITTED, bool(flag & Flag.ONE_WAY),
    )  # fmt: skip


def _named(topic: str) -> bytes:
    return topic.encode() + b"\0"


def tail_given(tail: Tail) -> TailGiven:
    """The end of a queue in the native lane's form."""
    return tail, tail.topic_part, tail.magic, tail.queue_id, tail.key_prefix


class Places:
    """The queues that the native lane knows."""

    def __init__(self) -> None:
        self.by_name: dict[bytes, Place] = {}
        """By topic and queue as requests write them."""
        self.by_half: dict[bytes, Place] = {}
        """Queues for halves that are read from the log, by the properties that name their
        target."""
        self.of_halves: TailGiven | None = None

    def note(
        self,
        target: object,
        topic: str,
        queue_id: int,
        tail: Tail | None,
        replies: SentTemplate,
        half_place: bytes,
        *,
        is_read: bool,
    ) -> None:
        """Add a queue, and its end if it is known; and whether messages of committed halves are put
        there at all."""
        if len(self.by_name) >= _PLACES_MAX:
            self.by_name.clear()
            self.by_half.clear()
        name = _named(topic) + b"%d" % queue_id
        given = None if tail is None else tail_given(tail)
        place = target, given, topic, queue_id, replies.pieces(), half_place
        self.by_name[name] = place
        if is_read:
            self.by_half[half_place] = place

    def note_halves(self, tail: Tail | None) -> None:
        """Add the queue of halves."""
        self.of_halves = None if tail is None else tail_given(tail)

    def clear(self) -> None:
        """Topics or settings have changed."""
        self.by_name.clear()
        self.by_half.clear()
        self.of_halves = None
