"""The frames that members of a group exchange on the replication port; numbers are big-endian.

  offset size field
       0    4 size          of what follows
       4    1 kind
       5      content       JSON for the handshake; else:

LOG, from the master (an empty one is a keep-alive)
       5    8 log offset    of the first byte
      13    8 confirmed     the log is acknowledged up to here
      21    8 begin         of the master's log
      29      the log's bytes; a frame may end in the middle of a record

TABLE, from the master: a file beside the log; it agrees with the log bytes sent before it
       5    2 length of the path; path; content

GONE, from the master: a deleted topic
       5      JSON: the topic, and where the log ended

REPORT, from a copy
       5    8 end           the copy has stored the log up to here, and the tables sent before that
      13    8 tables        how many TABLE and GONE frames of this connection were stored
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterator
from enum import IntEnum
from hashlib import sha256
from typing import Final, NamedTuple, TypeVar

import msgspec

from escrowmq.errors import RemoteProtocolError

_SIZE: Final = struct.Struct(">I")
_LOG: Final = struct.Struct(">qqq")
_REPORT: Final = struct.Struct(">qq")
_PATH: Final = struct.Struct(">H")

FRAME_SIZE_MAX: Final = 256 * 1024 * 1024
HANDSHAKE_SIZE_MAX: Final = 1024 * 1024
"""Limit of a frame's size until the other end has proved that it knows the secret."""

S = TypeVar("S", bound=msgspec.Struct)


class GroupFrameKind(IntEnum):
    """The kind of a frame."""

    CHALLENGE = 1
    HELLO = 2
    WELCOME = 3
    REFUSAL = 4
    LOG = 5
    TABLE = 6
    GONE = 7
    REPORT = 8
    HAND_OVER = 9


class Challenge(msgspec.Struct, rename="camel"):
    """The master's first frame: a random text that the copy's proof must include."""

    nonce: str
    protocol: int = 1


class Hello(msgspec.Struct, rename="camel"):
    """A copy's name, and the state of its log."""

    cluster: str
    broker: str
    group: str
    member: str
    incarnation: str
    promised: int
    history: tuple[tuple[int, int], ...]
    log_begin: int
    log_end: int
    segment_size: int
    nonce: str
    proof: str = ""
    start_id: str | msgspec.UnsetType = msgspec.UNSET
    """A random id of this start of the copy's process. Older releases send none."""
    takes_queue_ends: bool | msgspec.UnsetType = msgspec.UNSET
    """Whether the copy takes the ends of queues without records. Older releases do not."""

    def proved_content(self) -> bytes:
        """Return the content that the proof covers. Masters of older releases do not know the
        newest fields, so these are not part of it."""
        unset = msgspec.UNSET
        known = msgspec.structs.replace(self, proof="", start_id=unset, takes_queue_ends=unset)
        return msgspec.json.encode(known)


class Welcome(msgspec.Struct, rename="camel"):
    """The master's answer to Hello: the offset at which the copy continues."""

    group: str
    epoch: int
    history: tuple[tuple[int, int], ...]
    starts_at: int
    """The log is sent from this offset on; the copy cuts off everything after it."""
    is_anew: bool
    """Whether the copy must first remove its whole log."""
    proof: str = ""


class RefusalFrame(msgspec.Struct, rename="camel"):
    """The master's refusal of a copy, with the reason."""

    reason: str
    epoch: int = 0
    is_name_taken: bool = False
    """Whether another process seems to be the same member, and to be connected."""
    is_duplicate: bool = False
    """Whether that is certain."""


class TopicDeletion(msgspec.Struct, rename="camel"):
    """A topic that the master has deleted, with the end of its log and the time of the newest
    record at that moment."""

    topic: str
    log_end: int
    stored_ms: int


class LogPart(NamedTuple):
    """A part of the master's log."""

    log_offset: int
    confirmed: int
    begin: int
    body: bytes


class TableFrame(NamedTuple):
    """A file beside the log, with its content."""

    path: str
    data: bytes


class ReportFrame(NamedTuple):
    """How much of the log and tables a copy has stored."""

    end: int
    tables_count: int


def encode_frame(kind: GroupFrameKind, content: bytes) -> bytes:
    """Encode a frame."""
    return _SIZE.pack(len(content) + 1) + bytes((kind,)) + content


def encode_struct(kind: GroupFrameKind, value: msgspec.Struct) -> bytes:
    """Encode a frame whose content is JSON."""
    return encode_frame(kind, msgspec.json.encode(value))


def encode_log_head(log_offset: int, confirmed: int, begin: int, size: int) -> bytes:
    """Encode the part of a LOG frame before the log's bytes."""
    head = _LOG.pack(log_offset, confirmed, begin)
    return _SIZE.pack(1 + len(head) + size) + bytes((GroupFrameKind.LOG,)) + head


def encode_table(path: str, data: bytes) -> bytes:
    """Encode a table."""
    name = path.encode()
    return encode_frame(GroupFrameKind.TABLE, _PATH.pack(len(name)) + name + data)


def encode_report(end: int, tables_count: int) -> bytes:
    """Encode a report."""
    return encode_frame(GroupFrameKind.REPORT, _REPORT.pack(end, tables_count))


def decode_struct(kind: type[S], content: bytes) -> S:
    """Decode JSON. Raises RemoteProtocolError if it does not fit the struct."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"invalid {kind.__name__.lower()}: {error}") from None


def decode_log(content: bytes) -> LogPart:
    """Decode the content of a LOG frame."""
    if len(content) < _LOG.size:
        raise RemoteProtocolError(f"a part of the log of {len(content)} bytes has no head")
    log_offset, confirmed, begin = _LOG.unpack_from(content)
    return LogPart(log_offset, confirmed, begin, content[_LOG.size :])


def decode_table(content: bytes) -> TableFrame:
    """Decode the content of a TABLE frame."""
    try:
        size = _PATH.unpack_from(content)[0] + _PATH.size
        return TableFrame(content[_PATH.size : size].decode(), content[size:])
    except (struct.error, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"invalid table: {error}") from None


def decode_report(content: bytes) -> ReportFrame:
    """Decode the content of a REPORT frame."""
    if len(content) != _REPORT.size:
        raise RemoteProtocolError(f"a report of {len(content)} bytes")
    return ReportFrame(*_REPORT.unpack(content))


class FrameReader:
    """Splits bytes into frames; buffers at most one incomplete frame."""

    def __init__(self) -> None:
        self._data = bytearray()
        self.size_max = HANDSHAKE_SIZE_MAX

    def read_frames(self, data: bytes) -> Iterator[tuple[GroupFrameKind, bytes]]:
        """Return the frames that are complete now, in order."""
        held = self._data
        held += data
        at = 0
        try:
            while len(held) - at >= _SIZE.size:
                size = _SIZE.unpack_from(held, at)[0]
                if not 1 <= size <= self.size_max:
                    raise RemoteProtocolError(
                        f"a frame of {size} bytes; 1 to {self.size_max} are allowed here"
                    )
                begin = at + _SIZE.size
                if len(held) - begin < size:
                    return
                number = held[begin]
                if number not in _KINDS:
                    raise RemoteProtocolError(f"unknown kind of frame: {number}")
                at = begin + size
                yield GroupFrameKind(number), bytes(held[begin + 1 : at])
        finally:
            del held[:at]


_KINDS: Final = frozenset(GroupFrameKind)


def compute_proof(secret: bytes, role: str, nonce: str, content: bytes) -> str:
    """Compute the proof that the sender of this content knows the secret and has received the
    nonce."""
    return hmac.new(secret, f"{role}\n{nonce}\n".encode() + content, sha256).hexdigest()


def is_valid_proof(secret: bytes, role: str, nonce: str, content: bytes, proof: str) -> bool:
    """Whether a proof shows that the sender of this content knows the secret and has received the
    nonce."""
    own = compute_proof(secret, role, nonce, content)
    return hmac.compare_digest(own.encode(), proof.encode("utf-8", "replace"))
