"""Consume-queue and index entries, and the checkpoint; all big-endian.

ConsumeQueue entry, 20 bytes
  offset size field
       0    8 log offset    where the record starts in the commit log
       8    4 record size   bytes
      12    8 tags code     Java hash of the tag; for a delayed message, its due time in ms

Index file: header (40 bytes), slots (4 bytes each), entries (20 bytes each)
  header 0    8 begin time        8 end time 8     16 begin log offset 8    24 end log offset 8
        32    4 used slots       36 entry count 4  (starts at 1; entry 0 is never used)
  entry  0    4 key hash          4 log offset 8   12 seconds since begin 4 16 previous entry 4

Checkpoint, 4096 bytes
       0    8 log time       store time (ms) up to which the commit log is durable
       8    8 queue time     the same of the consume queues
      16    8 index time     the same of the index
      24    8 master flushed offset      32 8 confirmed offset
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

ENTRY: Final = struct.Struct(">qiq")
ENTRY_SIZE: Final = ENTRY.size
CODE_AT: Final = 12
GAP_ENTRY: Final = ENTRY.pack(0, 0x7FFFFFFF, 0)
"""The entry that stands for no message, such as those before a queue's first message."""

INDEX_HEADER: Final = struct.Struct(">qqqqii")
INDEX_SLOT: Final = struct.Struct(">i")
INDEX_ENTRY: Final = struct.Struct(">iqii")

CHECKPOINT_SIZE: Final = 4096
_CHECKPOINT: Final = struct.Struct(">qqqqq")
_OURS: Final = struct.Struct(">qq")
_OURS_AT: Final = 496
"""The position of our own fields: at the end of the first sector. Newer RocketMQ brokers may use
the bytes before it."""


class Checkpoint(msgspec.Struct):
    """The content of the checkpoint file: store times up to which the files are durable."""

    log_ms: int = 0
    queue_ms: int = 0
    index_ms: int = 0
    master_flushed_offset: int = 0
    confirmed_offset: int = 0
    unseen_from: int = -1
    """The offset of the oldest record before `confirmed_offset` that has no queue entry yet,
    although newer records may have theirs; -1 if there is none. RocketMQ writes zeros here."""
    is_open: bool = False
    """Whether the store is open, or was not closed. Set only if the disk had no space for the file
    "abort"."""


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return the content of the file."""
    data = _CHECKPOINT.pack(
        checkpoint.log_ms,
        checkpoint.queue_ms,
        checkpoint.index_ms,
        checkpoint.master_flushed_offset,
        checkpoint.confirmed_offset,
    )
    ours = _OURS.pack(checkpoint.is_open, checkpoint.unseen_from + 1)
    return (data.ljust(_OURS_AT, b"\0") + ours).ljust(CHECKPOINT_SIZE, b"\0")


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Decode the content of the file. Missing bytes count as zeros."""
    data = data.ljust(CHECKPOINT_SIZE, b"\0")
    found = Checkpoint(*_CHECKPOINT.unpack_from(data))
    is_open, behind_unseen = _OURS.unpack_from(data, _OURS_AT)
    found.is_open, found.unseen_from = bool(is_open), max(behind_unseen, 0) - 1
    return found


def is_path_safe(topic: str) -> bool:
    """Whether a topic's name can be the name of a folder."""
    return (
        0 < len(topic.encode()) <= 255 and topic not in (".", "..") and not set(topic) & {"/", "\0"}
    )
