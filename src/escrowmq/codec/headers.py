"""The header fields of each request, as typed values.

The fields are RocketMQ's in snake case. A field without default is required: if it is missing,
RocketMQ and this broker answer with code 1. RocketMQ treats an unparsable number as a missing
field, except in the headers that it decodes by hand (`FastCodesHeader`)."""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from escrowmq.base.command import Int
from escrowmq.errors import UsageError

Long = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A 64-bit number, RocketMQ's type long. As in RocketMQ, a number outside its range is
unparsable."""


class HeaderError(UsageError):
    """A required header field is missing or unparsable. The answer has code 1."""


class Header(msgspec.Struct, rename="camel"):
    """Base of all header types: the typed fields of one request."""


class SendHeader(Header):
    """The fields of SEND_MESSAGE (10) and SEND_REPLY_MESSAGE (324)."""

    topic: str
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    producer_group: str = ""
    default_topic: str = ""
    default_topic_queue_nums: Int = 0
    flag: Int = 0
    properties: str = ""
    reconsume_times: Int = 0
    unit_mode: bool = False
    max_reconsume_times: Int | None = None
    batch: bool = False


class SendHeaderV2(
    msgspec.Struct,
    rename={
        "producer_group": "a",
        "topic": "b",
        "default_topic": "c",
        "default_topic_queue_nums": "d",
        "queue_id": "e",
        "sys_flag": "f",
        "born_timestamp": "g",
        "flag": "h",
        "properties": "i",
        "reconsume_times": "j",
        "unit_mode": "k",
        "max_reconsume_times": "l",
        "batch": "m",
    },
):
    """The fields of SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320), SEND_REPLY_MESSAGE_V2
    (325)."""

    topic: str
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    producer_group: str = ""
    default_topic: str = ""
    default_topic_queue_nums: Int = 0
    flag: Int = 0
    properties: str = ""
    reconsume_times: Int = 0
    unit_mode: bool = False
    max_reconsume_times: Int | None = None
    batch: bool = False


class PullHeader(Header):
    """The fields of PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361)."""

    consumer_group: str
    topic: str
    queue_id: Int
    queue_offset: Long
    max_msg_nums: Int
    sys_flag: Int
    commit_offset: Long = 0
    suspend_timeout_millis: Long = 0
    subscription: str | None = None
    sub_version: Long = 0
    expression_type: str | None = None
    max_msg_bytes: Int | None = None


class QueryMessageHeader(Header):
    """The fields of QUERY_MESSAGE (12)."""

    topic: str
    key: str
    max_num: Int
    begin_timestamp: Long
    end_timestamp: Long


class ViewMessageHeader(Header):
    """The fields of VIEW_MESSAGE_BY_ID (33)."""

    offset: Long
    topic: str | None = None


class QueryOffsetHeader(Header):
    """The fields of QUERY_CONSUMER_OFFSET (14)."""

    consumer_group: str
    topic: str
    queue_id: Int
    set_zero_if_not_found: bool = True


class CommitOffsetHeader(Header):
    """The fields of UPDATE_CONSUMER_OFFSET (15)."""

    consumer_group: str
    topic: str
    queue_id: Int | None = None
    commit_offset: Long | None = None


class QueueHeader(Header):
    """The fields of GET_MAX_OFFSET (30), GET_MIN_OFFSET (31), GET_EARLIEST_MSG_STORETIME (32)."""

    topic: str
    queue_id: Int


class SearchOffsetHeader(Header):
    """The fields of SEARCH_OFFSET_BY_TIMESTAMP (29)."""

    topic: str
    queue_id: Int
    timestamp: Long
    boundary_type: str = "LOWER"


class UnregisterClientHeader(Header):
    """The fields of UNREGISTER_CLIENT (35)."""

    client_i_d: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class SendBackHeader(Header):
    """The fields of CONSUMER_SEND_MSG_BACK (36)."""

    offset: Long
    group: str
    delay_level: Int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int | None = None


class EndTransactionHeader(Header):
    """The fields of END_TRANSACTION (37)."""

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int
    msg_id: str = ""
    from_transaction_check: bool = False
    transaction_id: str | None = None
    topic: str | None = None
    escrow_count: Int | None = None


class EndByIdHeader(Header):
    """The fields of END_TRANSACTION (37) with a signed transaction id, in place of group and
    offsets."""

    escrow_id: str
    commit_or_rollback: Int
    from_transaction_check: bool = False
    escrow_count: Int | None = None


class ConsumerGroupHeader(Header):
    """The fields of GET_CONSUMER_LIST_BY_GROUP (38), GET_CONSUMER_CONNECTION_LIST (203)."""

    consumer_group: str


class TopicHeader(Header):
    """The fields of requests about one topic (202, 215, 300, 351)."""

    topic: str


class GroupHeader(Header):
    """The fields of requests about one group (343, 352)."""

    group: str


class GroupTopicHeader(Header):
    """The fields of requests about a group and a topic (303, 345, 353, 223)."""

    group: str
    topic: str
    readable: bool | None = None
    client_addr: str | None = None


class CreateTopicHeader(Header):
    """The fields of UPDATE_AND_CREATE_TOPIC (17)."""

    topic: str
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    default_topic: str = ""
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int = 0
    order: bool = False
    attributes: str = ""
    force: bool = False


class DeleteGroupHeader(Header):
    """The fields of DELETE_SUBSCRIPTIONGROUP (207)."""

    group_name: str
    clean_offset: bool = False


class ProducerGroupHeader(Header):
    """The fields of GET_PRODUCER_CONNECTION_LIST (204)."""

    producer_group: str


class ConsumeStatsHeader(Header):
    """The fields of GET_CONSUME_STATS (208)."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class ResetOffsetHeader(Header):
    """The fields of INVOKE_BROKER_TO_RESET_OFFSET (222)."""

    topic: str
    group: str
    timestamp: Long
    queue_id: Int = -1
    offset: Long | None = None
    is_force: bool = True


class RunningInfoHeader(Header):
    """The fields of GET_CONSUMER_RUNNING_INFO (307)."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeDirectlyHeader(Header):
    """The fields of CONSUME_MESSAGE_DIRECTLY (309)."""

    consumer_group: str
    client_id: str
    msg_id: str
    broker_name: str | None = None
    topic: str | None = None


class CorrectionOffsetHeader(Header):
    """The fields of QUERY_CORRECTION_OFFSET (308)."""

    compare_group: str
    topic: str
    filter_groups: str = ""


class CloneOffsetHeader(Header):
    """The fields of CLONE_GROUP_OFFSET (314)."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class StatsHeader(Header):
    """The fields of VIEW_BROKER_STATS_DATA (315)."""

    stats_name: str
    stats_key: str


class QueryQueueHeader(Header):
    """The fields of QUERY_CONSUME_QUEUE (321)."""

    topic: str
    queue_id: Int
    index: Long
    count: Int
    consumer_group: str | None = None


class ResumeCheckHeader(Header):
    """The fields of RESUME_CHECK_HALF_MESSAGE (323)."""

    msg_id: str
    topic: str | None = None


class RecallHeader(Header):
    """The fields of RECALL_MESSAGE (370)."""

    topic: str
    recall_handle: str
    producer_group: str = ""


class PopHeader(Header):
    """The fields of POP_MESSAGE (200050), NOTIFICATION (200054), PEEK_MESSAGE (200052),
    POLLING_INFO (200055)."""

    consumer_group: str
    topic: str
    queue_id: Int
    max_msg_nums: Int = 0
    invisible_time: Long = 0
    poll_time: Long = 0
    born_time: Long = 0
    init_mode: Int = 0
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


class AckHeader(Header):
    """The fields of ACK_MESSAGE (200051) and CHANGE_MESSAGE_INVISIBLETIME (200053)."""

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long
    invisible_time: Long = 0


H = TypeVar("H", bound=msgspec.Struct)

_STRICT_HEADERS = (SendHeaderV2, PullHeader)
"""Header types for which RocketMQ has hand-written decoders: these refuse unparsable numbers
instead of ignoring them."""


def read_header(kind: type[H], ext: dict[str, str] | None) -> H:
    """Convert header fields to a typed header. Raises HeaderError if a required one is missing or
    unparsable."""
    try:
        return msgspec.convert(ext or {}, kind, strict=False)
    except msgspec.ValidationError as error:
        if kind in _STRICT_HEADERS:
            raise HeaderError(f"header: {error}") from error
    return _read_tolerantly(kind, ext or {})


def _read_tolerantly(kind: type[H], ext: dict[str, str]) -> H:
    kept: dict[str, object] = {}
    for item in msgspec.structs.fields(kind):
        if item.encode_name in ext:
            text = ext[item.encode_name]
            if item.type in (bool, bool | None):
                kept[item.encode_name] = text.lower() == "true"
                continue
            try:
                kept[item.encode_name] = msgspec.convert(text, item.type, strict=False)
            except msgspec.ValidationError:
                continue
    try:
        return msgspec.convert(kept, kind)
    except msgspec.ValidationError as error:
        raise HeaderError(f"header: {error}") from error
