"""Revive records: popped messages on disk, in RocketMQ's form.

They are in `rmq_sys_REVIVE_LOG_<cluster>`, distinguished by their tags. A check point says that
messages were popped, an ack that some of them were acknowledged (PopCheckPoint, AckMsg,
BatchAckMsg). RocketMQ sends them through its timer; ours are stored in the topic immediately, and
TIMER_DELIVER_MS is their store time. RocketMQ's reviver (PopReviveService) takes the latest
TIMER_DELIVER_MS as the current time, so none may be in the future."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from escrowmq.base.fixed_limits import INT_MAX, PROPERTIES_SIZE_MAX
from escrowmq.base.message import Message, Property, StoredMessage, Topic
from escrowmq.codec.pop_receipt import NORMAL, retry_kind, retry_topic

CHECK_POINT_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"
ORDER_TAG: Final = "escrowOrder"
"""The tag of records with an orderly group's offset. RocketMQ does not have it, and ignores such
records."""

RESET_TAG: Final = "escrowReset"
"""The tag of records with the offsets that an operator has set for a group. RocketMQ does not have
it, and ignores such records."""

NEXT_PROPERTY: Final = "ESCROW_NEXT"
"""The property of a pop's check point with the group's next offset. RocketMQ does not have it."""

REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
"""The group whose offset in a revive queue is that of the last finished record."""

MARK_GROUP: Final = "CID_RMQ_SYS_ESCROW_POP"
"""The group whose offset in a revive queue says which records consumerOffset.json already
includes."""

_OVERHEAD_MAX: Final = 1024
"""An upper bound of the size of a record's other fields, its topic, and the added property."""

_CLASSES_MS: Final = (10_000, 30_000, 60_000, 300_000, 900_000, 1_800_000, 3_600_000)


class CheckPointBody(msgspec.Struct):
    """The body of a check point's record. The fields are in RocketMQ's order."""

    bm: int = 0
    bn: str | None = None
    c: str = ""
    d: list[int] | None = None
    it: int = 0
    n: int = 0
    pt: int = 0
    q: int = 0
    reviveTime: int = 0  # noqa: N815 - RocketMQ's spelling
    ro: int = 0
    rp: str | UnsetType = UNSET
    so: int = 0
    t: str = ""


class AckBody(msgspec.Struct):
    """The body of an ack's record: one message (`ao`), or several (`aol`)."""

    ao: int = -1
    aol: list[int] | UnsetType = UNSET
    bn: str | None = None
    c: str = ""
    pt: int = 0
    q: int = 0
    so: int = 0
    t: str = ""

    def offsets(self) -> list[int]:
        """Return the acknowledged queue offsets."""
        return [self.ao] if isinstance(self.aol, UnsetType) else self.aol


class OrderBody(msgspec.Struct):
    """The body of a record with an orderly group's offset in a queue."""

    c: str
    o: int
    q: int
    t: str


class ResetBody(msgspec.Struct):
    """The body of a record with the offsets that an operator has set for a group in a topic."""

    c: str
    o: dict[int, int]
    """The offsets by queue."""

    t: str


class CheckPointKey(NamedTuple):
    """Identifies a check point: its group, when and where its messages were popped, and its revive
    queue."""

    group: str
    topic: str
    queue_id: int
    start_offset: int
    pop_ms: int
    revive_queue: int


def revive_queue(invisible_ms: int, queues_count: int) -> int:
    """Return the revive queue for an invisible time. Check points with similar times share a queue,
    because RocketMQ's reviver stops at the first check point that is not due. (RocketMQ itself uses
    the queues in turn.)"""
    return min(bisect.bisect_left(_CLASSES_MS, invisible_ms), queues_count - 1)


def encode_check_point(
    handle: CheckPointKey, queue_offsets: Sequence[int], *, invisible_ms: int, broker_name: str
) -> bytes:
    """Return the body of a check point's record."""
    start = handle.start_offset
    return msgspec.json.encode(
        CheckPointBody(
            bn=broker_name,
            c=handle.group,
            d=[offset - start for offset in queue_offsets],
            it=invisible_ms,
            n=len(queue_offsets),
            pt=handle.pop_ms,
            q=handle.queue_id,
            reviveTime=handle.pop_ms + invisible_ms,
            so=start,
            t=handle.topic,
        )
    )


def encode_ack(
    handle: CheckPointKey, queue_offsets: list[int], *, broker_name: str
) -> tuple[str, bytes]:
    """Return the tag and the body of an ack's record."""
    is_one = len(queue_offsets) == 1
    body = AckBody(
        ao=queue_offsets[0] if is_one else -1,
        aol=UNSET if is_one else queue_offsets,
        bn=broker_name,
        c=handle.group,
        pt=handle.pop_ms,
        q=handle.queue_id,
        so=handle.start_offset,
        t=handle.topic,
    )
    return ACK_TAG if is_one else BATCH_ACK_TAG, msgspec.json.encode(body)


def revive_record(
    topic: str, tag: str, body: bytes, queue_id: int, *, deliver_ms: int, host: bytes
) -> Message:
    """Return a record of the revive topic, with this tag and body."""
    return Message(
        topic=topic,
        body=body,
        queue_id=queue_id,
        properties={Property.TAGS: tag, Property.TIMER_DELIVER_MS: str(deliver_ms)},
        born_ms=deliver_ms,
        born_host=host,
        store_host=host,
    )


def redelivery_copy(
    source: StoredMessage, handle: CheckPointKey, *, host: bytes, is_v2: bool
) -> Message:
    """Return the copy of a message for its next delivery (PopReviveService.reviveRetry), with the
    time of its first pop if there is space."""
    topic = source.topic
    if retry_kind(topic) == NORMAL:
        topic = retry_topic(topic, handle.group, 2 if is_v2 else 1)
    properties = dict(source.properties)
    properties.pop(Property.CRC32, None)  # of that record
    has_room = source.record_size - len(source.body) <= PROPERTIES_SIZE_MAX - _OVERHEAD_MAX
    if has_room and (source.reconsume_times == 0 or Property.FIRST_POP_TIME not in properties):
        properties[Property.FIRST_POP_TIME] = str(handle.pop_ms)
    return Message(
        topic=topic,
        body=source.body,
        queue_id=0,
        flag=source.flag,
        properties=properties,
        sys_flag=source.sys_flag,
        born_ms=source.born_ms,
        born_host=host,
        store_host=host,
        reconsume_times=min(source.reconsume_times + 1, INT_MAX),
    )


def revive_topic(cluster: str) -> str:
    """Return the name of the topic of revive records."""
    return Topic.REVIVE_PREFIX + cluster


def former_revive_topics(topics: Iterable[str], present: str) -> list[str]:
    """Return the revive topics of the cluster's former names."""
    return sorted(
        topic for topic in topics if topic.startswith(Topic.REVIVE_PREFIX) and topic != present
    )
