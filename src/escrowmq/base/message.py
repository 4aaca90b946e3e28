"""Messages as values, and names of properties with a meaning."""

from __future__ import annotations

from typing import Final

import msgspec

NO_HOST: Final = bytes(8)
"""An IPv4 address and port of zeros, packed as records keep them."""


KEYS_SEPARATOR: Final = " "
"""The character between keys in their property. Other blanks are part of a key."""


def split_keys(text: str) -> list[str]:
    """Split the text of a KEYS property into its keys."""
    return [key for key in text.split(KEYS_SEPARATOR) if key]


class Message(msgspec.Struct, kw_only=True):
    """A message to be stored. Hosts are packed: 4 or 16 address bytes, port as int32."""

    topic: str
    body: bytes
    queue_id: int = 0
    flag: int = 0
    properties: dict[str, str] = {}
    sys_flag: int = 0
    born_ms: int = 0
    born_host: bytes = NO_HOST
    store_host: bytes = NO_HOST
    reconsume_times: int = 0
    prepared_log_offset: int = 0


class StoredMessage(Message, kw_only=True):
    """A message that was read from the log."""

    queue_offset: int
    log_offset: int
    stored_ms: int
    record_size: int


class SysFlag:
    """Bits of a record's sysFlag."""

    COMPRESSED: Final = 0x1
    MULTI_TAGS: Final = 0x2
    PREPARED: Final = 0x4
    COMMIT: Final = 0x8
    ROLLBACK: Final = 0xC
    TRANSACTION_MASK: Final = 0xC
    BORN_HOST_V6: Final = 0x10
    STORE_HOST_V6: Final = 0x20
    NEED_UNWRAP: Final = 0x40
    INNER_BATCH: Final = 0x80
    COMPRESSION_MASK: Final = 0x700


class Property:
    """Property names with a meaning of their own (RocketMQ's MessageConst)."""

    KEYS: Final = "KEYS"
    TAGS: Final = "TAGS"
    WAIT: Final = "WAIT"
    DELAY: Final = "DELAY"
    RETRY_TOPIC: Final = "RETRY_TOPIC"
    REAL_TOPIC: Final = "REAL_TOPIC"
    REAL_QID: Final = "REAL_QID"
    TRAN_MSG: Final = "TRAN_MSG"
    PGROUP: Final = "PGROUP"
    ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
    MSG_REGION: Final = "MSG_REGION"
    TRACE_ON: Final = "TRACE_ON"
    UNIQ_KEY: Final = "UNIQ_KEY"
    CLUSTER: Final = "CLUSTER"
    MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
    RECONSUME_TIME: Final = "RECONSUME_TIME"
    CHECK_IMMUNITY_TIME: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
    TRAN_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
    TRANSACTION_ID: Final = "__transactionId__"
    TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
    CORRELATION_ID: Final = "CORRELATION_ID"
    REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
    TTL: Final = "TTL"
    PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
    MSG_TYPE: Final = "MSG_TYPE"
    POP_CK: Final = "POP_CK"
    FIRST_POP_TIME: Final = "1ST_POP_TIME"
    SHARDING_KEY: Final = "__SHARDINGKEY"
    INNER_NUM: Final = "INNER_NUM"
    INNER_BASE: Final = "INNER_BASE"
    TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
    TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
    TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
    TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
    TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
    TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
    TIMER_OUT_MS: Final = "TIMER_OUT_MS"
    TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
    INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
    INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
    CRC32: Final = "__CRC32#"
    TRACE_CONTEXT: Final = "TRACE_CONTEXT"
    BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
    BORN_HOST: Final = "__BORNHOST"
    DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
    DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
    PRIORITY: Final = "_SYS_MSG_PRIORITY_"


class Topic:
    """Topics and prefixes with a meaning of their own."""

    DEFAULT: Final = "TBW102"
    SCHEDULE: Final = "SCHEDULE_TOPIC_XXXX"
    TIMER: Final = "rmq_sys_wheel_timer"
    HALF: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
    OP: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
    CHECK_MAX_TIME: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
    SELF_TEST: Final = "SELF_TEST_TOPIC"
    OFFSET_MOVED: Final = "OFFSET_MOVED_EVENT"
    BENCHMARK: Final = "BenchmarkTest"
    TRACE: Final = "RMQ_SYS_TRACE_TOPIC"
    DECISIONS: Final = "rmq_sys_ESCROW_DECISIONS"
    """The topic with the decisions about epochs, which RocketMQ does not have."""

    RETRY_PREFIX: Final = "%RETRY%"
    DLQ_PREFIX: Final = "%DLQ%"
    SYSTEM_PREFIX: Final = "rmq_sys_"
    REVIVE_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
    REPLY_SUFFIX: Final = "_REPLY_TOPIC"


NOT_SENDABLE: Final = frozenset(
    {
        Topic.SCHEDULE,
        Topic.TIMER,
        Topic.HALF,
        Topic.OP,
        Topic.CHECK_MAX_TIME,
        Topic.DECISIONS,
        Topic.SELF_TEST,
        Topic.OFFSET_MOVED,
    }
)
"""Topics to which no client may send. (RocketMQ lets any client write to its timer and revive
topics, and later reads these records as its own.)"""


def is_sendable(topic: str) -> bool:
    """Whether a client may send to a topic, by its name."""
    return topic not in NOT_SENDABLE and not topic.startswith(Topic.REVIVE_PREFIX)
