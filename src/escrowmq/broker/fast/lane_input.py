"""Prepares the native lane's input: shapes of requests, and the queues that they name."""

from __future__ import annotations

from typing import Final

from escrowmq.base.codes import Flag, Request
from escrowmq.base.fixed_limits import TOPIC_SIZE_MAX
from escrowmq.base.message import Property, SysFlag
from escrowmq.broker.sends.forbidden_to_senders import ODD_OF_HALF, UNUSUAL_FLAGS
from escrowmq.codec.headers import EndTransactionHeader, SendHeaderV2
from escrowmq.codec.properties import encode_properties
from escrowmq.codec.reply_template import ReplyTemplate
from escrowmq.codec.request_shapes import RequestShape
from escrowmq.lane.native import LaneQueue, LaneShape, LaneTail
from escrowmq.store.record_run import QueueTail, RecordRun
from escrowmq.txn.end_rules import plain_end_state
from escrowmq.txn.state import State

_PLACES_MAX: Final = 10_000


def lane_shape(alike: RequestShape) -> LaneShape | None:
    """Return a shape of sends or ENDs in the native lane's form; None if the lane does not serve
    such requests."""
    header, flag = alike.header, alike.command.flag
    if flag & Flag.REPLY:
        return None
    if isinstance(header, EndTransactionHeader):
        return _lane_shape_of_ends(alike, header, is_one_way=bool(flag & Flag.ONE_WAY))
    return _lane_shape_of_sends(alike, header, is_one_way=bool(flag & Flag.ONE_WAY))


def _lane_shape_of_ends(
    alike: RequestShape, header: EndTransactionHeader, *, is_one_way: bool
) -> LaneShape | None:
    if alike.command.code != Request.END_TRANSACTION:
        return None  # the code is not at the beginning of its header
    state = plain_end_state(header.commit_or_rollback, is_from_check=header.from_transaction_check)
    if state is None:
        return None
    return LaneShape(
        alike.pieces, alike.order, alike.is_json, header.producer_group.encode(),
        is_one_way=is_one_way, is_commit=state == State.COMMITTED,
    )  # fmt: skip


def _lane_shape_of_sends(
    alike: RequestShape, header: SendHeaderV2, *, is_one_way: bool
) -> LaneShape | None:
    code, sys_flag = alike.command.code, header.sys_flag
    is_batch = code == Request.SEND_BATCH_MESSAGE
    if code != Request.SEND_MESSAGE_V2 and not is_batch:
        return None
    if is_batch:
        may_be = len(header.topic) <= TOPIC_SIZE_MAX and not sys_flag & UNUSUAL_FLAGS, False
    elif header.batch:
        return None  # its code is for single messages, its header for a batch
    else:
        may_be = not sys_flag & UNUSUAL_FLAGS, not sys_flag & ODD_OF_HALF
    return LaneShape(
        alike.pieces, alike.order, alike.is_json, _encode_topic(header.topic),
        header.flag, sys_flag, sys_flag & ~SysFlag.TRANSACTION_MASK, header.reconsume_times,
        is_one_way, *may_be, is_batch, alike.wants_id,
    )  # fmt: skip


def _encode_topic(topic: str) -> bytes:
    return topic.encode() + b"\0"


def lane_tail(tail: QueueTail | None) -> LaneTail | None:
    """Return the end of a queue in the native lane's form; None if there is none."""
    if tail is None:
        return None
    return tail, tail.topic_part, tail.magic, tail.queue_id, tail.key_prefix


class TargetQueue:
    """A queue to which plain messages are sent, and the template of their replies."""

    __slots__ = ("place", "queue_id", "replies", "sizes", "tail", "topic")

    def __init__(self, topic: str, queue_id: int, replies: ReplyTemplate) -> None:
        self.topic, self.queue_id = topic, queue_id
        self.tail: QueueTail | None = None
        """The end of the queue; None until the queue exists and was looked up."""
        self.replies = replies
        self.sizes: list[int] = []
        """Sizes of the records that this run adds to the queue, including its halves."""
        place = {Property.REAL_TOPIC: topic, Property.REAL_QID: str(queue_id)}
        self.place = encode_properties(place)
        """The encoded properties by which a half names this queue as its target."""

    def find_tail(self, run: RecordRun) -> None:
        """Look up the end of the queue. It does not exist until the general path has created it."""
        self.tail = run.tail(self.topic, self.queue_id)


class LaneQueues:
    """The queues that the native lane knows, with their ends and reply templates."""

    def __init__(self) -> None:
        self.by_name: dict[bytes, LaneQueue] = {}
        """By topic and queue id, as requests write them."""
        self.by_half: dict[bytes, LaneQueue] = {}
        """By the target's properties, as halves in the log write them."""
        self.of_halves: LaneTail | None = None

    def add_queue(self, target: TargetQueue, *, is_read: bool) -> None:
        """Add a queue. `is_read`: whether consumers read it (not if the topic has fewer queues
        now); only then are the messages of committed halves put there too."""
        if len(self.by_name) >= _PLACES_MAX:
            self.by_name.clear()
            self.by_half.clear()
        name = _encode_topic(target.topic) + b"%d" % target.queue_id
        place = (
            target, lane_tail(target.tail), target.topic, target.queue_id, target.replies.pieces,
            target.place,
        )  # fmt: skip
        self.by_name[name] = place
        if is_read:
            self.by_half[target.place] = place

    def set_half_queue(self, tail: QueueTail | None) -> None:
        """Set the end of the half queue."""
        self.of_halves = lane_tail(tail)

    def clear(self) -> None:
        """Forget all queues, after topics or settings have changed."""
        self.by_name.clear()
        self.by_half.clear()
        self.of_halves = None
