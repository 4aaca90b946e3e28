"""The results of putting, reading and recovering, and the messages that arrived."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec

from escrowmq.codec.log_walker import LogDamage


class PutStatus(enum.Enum):
    """The result of storing a message (RocketMQ's PutMessageStatus)."""

    OK = "ok"
    MESSAGE_ILLEGAL = "message illegal"
    PROPERTIES_SIZE_EXCEEDED = "properties size exceeded"
    SERVICE_NOT_AVAILABLE = "service not available"
    CREATE_FILE_FAILED = "create file failed"
    UNKNOWN_ERROR = "unknown error"


class PutResult(msgspec.Struct, gc=False):
    """The result of a put. If the status is OK, the record is at `log_offset`..`log_end`. It is
    durable once the store's `durable_offset` has reached `log_end`."""

    status: PutStatus
    log_offset: int = -1
    queue_offset: int = -1
    record_size: int = 0
    stored_ms: int = 0
    log_end: int = -1
    reason: str = ""


class Arrival(msgspec.Struct, gc=False):
    """A message that became visible to consumers."""

    topic: str
    queue_id: int
    queue_offset: int
    tags_code: int
    stored_ms: int
    log_offset: int
    record_size: int


class GetStatus(enum.IntEnum):
    """The status of a read of a queue (RocketMQ's GetMessageStatus)."""

    FOUND = 1
    NO_MATCHED_MESSAGE = 2
    MESSAGE_WAS_REMOVING = 3
    OFFSET_FOUND_NULL = 4
    OFFSET_OVERFLOW_BADLY = 5
    OFFSET_OVERFLOW_ONE = 6
    OFFSET_TOO_SMALL = 7
    NO_MATCHED_LOGIC_QUEUE = 8
    NO_MESSAGE_IN_QUEUE = 9


class GetResult(msgspec.Struct):
    """The result of a read of a queue. A chunk holds one whole record or several."""

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    chunks: list[bytes] = []
    count: int = 0
    size: int = 0
    queue_offsets: Sequence[int] = ()
    is_behind: bool = False


class FoundByKey(msgspec.Struct):
    """The result of a query by key: records, newest first, and up to where the index reaches."""

    records: list[bytes]
    last_ms: int
    last_log_offset: int


class RecoveryReport(msgspec.Struct):
    """What a recovery found and repaired."""

    was_clean: bool = True
    scanned_from: int = 0
    log_end: int = 0
    records_count: int = 0
    truncated_size: int = 0
    damaged: list[LogDamage] = []
    queues_mended: list[str] = []
    index_rebuilt: list[str] = []
    notes: list[str] = []
    is_short: bool = False
    """Whether the log ends earlier than it did before: data that had been written, or were durable,
    are missing."""

    @property
    def lost_from(self) -> int | None:
        """The log offset from which on written data are missing or unreadable; None if nothing is
        known to be lost."""
        if self.damaged:
            return self.damaged[0].log_offset
        return self.log_end if self.is_short else None
