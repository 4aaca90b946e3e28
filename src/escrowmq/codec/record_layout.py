"""The layout of a record of the commit log, and its magic numbers. Big-endian.

offset size field
     0    4 record size
     4    4 magic             v1 0xDAA320A7, v2 0xDAA320AB, end-of-segment filler 0xCBD43194
     8    4 body CRC          CRC-32 & 0x7FFFFFFF of the body as stored
    12    4 queue id
    16    4 flag              the application's
    20    8 queue offset
    28    8 log offset        of this record
    36    4 sysFlag
    40    8 born time         ms, the client's clock
    48    8 born host         4 (16) address bytes, port as int32
    56    8 store time        ms
    64    8 store host
    72    4 reconsume times
    76    8 prepared offset   of the half record that this one commits
    84    4 body size         then the body
          1 topic size (2 in v2), then the topic
          2 properties size, then the properties

The offsets are for IPv4 hosts; an IPv6 host, marked in sysFlag, takes 12 bytes more, and shifts all
later fields: see `RecordHead`. A filler has only the first two fields."""

from __future__ import annotations

import struct
from typing import Final

from escrowmq.base.message import SysFlag

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
MAGICS: Final = (MAGIC_V1, MAGIC_V2)
MAGIC_FILLER: Final = 0xCBD43194
FILLER_SIZE: Final = 8

MAGIC_AT: Final = 4
CRC_AT: Final = 8
QUEUE_ID_AT: Final = 12
FLAG_AT: Final = 16
QUEUE_OFFSET_AT: Final = 20
LOG_OFFSET_AT: Final = 28
SYS_FLAG_AT: Final = 36
BORN_MS_AT: Final = 40
BORN_HOST_AT: Final = 48

HOST_V4_SIZE: Final = 8
HOST_V6_SIZE: Final = 20
V6_MORE: Final = HOST_V6_SIZE - HOST_V4_SIZE
HOSTS_V6: Final = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6

SIZE: Final = struct.Struct(">I")
FRONT: Final = struct.Struct(">II")
"""Record size and magic, at the beginning of a record."""

PLACED: Final = struct.Struct(">II20xqi")
"""Record size, magic, log offset and sysFlag. They distinguish a record at this position from bytes
that merely look like one."""

LOG_OFFSET: Final = struct.Struct(">q")
TIME: Final = struct.Struct(">q")
PROPERTIES_SIZE: Final = struct.Struct(">H")


class RecordHead:
    """The layout of a record's head, which depends on the hosts' address families. Structs that
    read it: `fields`, all of it; `walked`, the fields for a walk over a log (size, magic, CRC,
    queue id, queue offset, log offset, sysFlag, store time, body size); `place`, from the queue
    offset on, the fields that depend on where and when a record is stored, including born time and
    host."""

    __slots__ = (
        "body_size_at", "fields", "place", "prepared_at", "reconsume_times_at", "size",
        "store_host_at", "stored_at", "walked",
    )  # fmt: skip

    def __init__(self, born_size: int, store_size: int) -> None:
        self.stored_at = BORN_HOST_AT + born_size
        self.store_host_at = self.stored_at + TIME.size
        self.reconsume_times_at = self.store_host_at + store_size
        self.prepared_at = self.reconsume_times_at + 4
        self.body_size_at = self.prepared_at + LOG_OFFSET.size
        self.size = self.body_size_at + 4
        """The size of the head. The body begins here."""
        self.fields = struct.Struct(f">IIIiiqqiq{born_size}sq{store_size}siqi")
        self.walked = struct.Struct(f">IIIi4xqqi{8 + born_size}xq{store_size + 12}xi")
        self.place = struct.Struct(f">qqiq{born_size}sq")


HEADS: Final = {
    born | store: RecordHead(
        HOST_V6_SIZE if born else HOST_V4_SIZE, HOST_V6_SIZE if store else HOST_V4_SIZE
    )
    for born in (0, SysFlag.BORN_HOST_V6)
    for store in (0, SysFlag.STORE_HOST_V6)
}
"""The head layouts by the bits of sysFlag for IPv6 hosts (`HOSTS_V6`)."""

HEAD_V4: Final = HEADS[0]
HEAD_V6: Final = HEADS[HOSTS_V6]
"""The layout of the longest head."""

RECORD_SIZE_MIN: Final = HEAD_V4.size + 1 + PROPERTIES_SIZE.size
"""The size of a record without body, topic and properties."""


def topic_size_width(magic: int) -> int:
    """Return the number of bytes that hold the topic's length."""
    return 2 if magic == MAGIC_V2 else 1
