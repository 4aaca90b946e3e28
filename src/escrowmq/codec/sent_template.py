"""Replies to the messages of one queue that differ in four values only."""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from escrowmq.base.codes import Flag, Version
from escrowmq.codec.binary_header import encode_fields
from escrowmq.codec.command import BINARY

_FRONT: Final = struct.Struct(">II")
_BINARY_FRONT: Final = struct.Struct(">IIhbh")
"""Frame size, kind and header size, code, language, version; the opaque follows."""

_BINARY_REST: Final = struct.Struct(">iii")
"""Flag, size of the remark, size of the fields."""

_SIZE: Final = struct.Struct(">I")
"""Size of a value."""

_FIXED_SIZE: Final = 21
_LANGUAGE: Final = 3
_PLACE_SIZE: Final = 16
"""Size of a log offset in a message id."""


class SentTemplate:
    """The replies to one queue's sends, for each form of request. A unique key is ASCII."""

    __slots__ = (
        "_always", "_before_ids", "_before_key", "_before_offset", "_before_signed", "_binary",
        "_end", "_fixed",
        "_host", "_in_json", "_json", "_json_of_batch", "_key_size", "_queue",
        "_sizes_of_batch", "_start",
    )  # fmt: skip

    def __init__(self, always: dict[str, str], host: bytes, queue_id: int) -> None:
        self._always = always
        self._fixed = encode_fields(always)
        self._host = host.hex().upper()
        self._queue = str(queue_id)
        self._start = self._end = self._key_size = 0
        self._binary = b""
        """By the number of digits of the queue offset, and the size of the key."""
        self._in_json = self._pieces_in_json()
        ids, offset, before_key, number, end = map(_literal, self._in_json)
        place = self._host.encode() + b"%016X"
        self._json = b"".join((ids, place, offset, b"%d", before_key, b"%b", number, b"%d", end))
        self._json_of_batch = b"".join((ids, b"%b", offset, b"%d%b", number, b"%d", end))
        self._before_ids = self._fixed + _name("msgId")
        self._before_offset = encode_fields({"queueId": self._queue}) + _name("queueOffset")
        self._before_key = _name("transactionId")
        self._before_signed = _name("escrowId")
        self._sizes_of_batch = len(self._before_ids) + len(self._before_offset) + 2 * _SIZE.size

    def binary(
        self, opaque: bytes, log_offset: int, queue_offset: int, key: bytes, signed_id: str = ""
    ) -> bytes:
        """The whole frame, in the binary form; with the id of a transaction, if it has one."""
        if signed_id:
            return self._of_half(opaque, log_offset, queue_offset, key, signed_id)
        if not self._start <= queue_offset < self._end or len(key) != self._key_size:
            self._adapt(queue_offset, len(key))
        return self._binary % (opaque, log_offset, queue_offset, key)

    def json(
        self, opaque: int, log_offset: int, queue_offset: int, key: bytes, signed_id: str = ""
    ) -> bytes:
        """The whole frame, in JSON."""
        if signed_id:
            return self._of_half(opaque, log_offset, queue_offset, key, signed_id)
        header = self._json % (log_offset, queue_offset, _in_json(key), opaque)
        return _FRONT.pack(4 + len(header), len(header)) + header

    def _of_half(
        self, opaque: bytes | int, log_offset: int, queue_offset: int, key: bytes, signed_id: str
    ) -> bytes:
        ids = self._host.encode() + b"%016X" % log_offset
        return self.of_batch(opaque, ids, queue_offset, key, signed_id.encode())

    def of_batch(
        self,
        opaque: bytes | int,
        ids: bytes,
        queue_offset: int,
        key: bytes,
        signed_id: bytes = b"",
    ) -> bytes:
        """The frame for a batch, in the form of the opaque given, with the ids of its messages;
        without a key if the batch has none. For a half, which is a batch of one here, also with its
        transaction's id."""
        if isinstance(opaque, int):
            told = self._in_json[2] + _in_json(key) if key else b""
            if signed_id:
                told += b'","escrowId":"%b' % signed_id
            header = self._json_of_batch % (ids, queue_offset, told, opaque)
            return _FRONT.pack(4 + len(header), len(header)) + header
        offset = b"%d" % queue_offset
        whole: tuple[bytes, ...] = (self._before_key, _SIZE.pack(len(key)), key) if key else ()
        size = self._sizes_of_batch + len(ids) + len(offset)
        if key:
            size += len(self._before_key) + _SIZE.size + len(key)
        if signed_id:
            whole += (self._before_signed, _SIZE.pack(len(signed_id)), signed_id)
            size += len(self._before_signed) + _SIZE.size + len(signed_id)
        header_size = _FIXED_SIZE + size
        return b"".join((
            _BINARY_FRONT.pack(
                4 + header_size, BINARY << 24 | header_size, 0, _LANGUAGE, Version.OURS
            ),
            opaque, _BINARY_REST.pack(Flag.REPLY, 0, size),
            self._before_ids, _SIZE.pack(len(ids)), ids,
            self._before_offset, _SIZE.pack(len(offset)), offset, *whole,
        ))  # fmt: skip

    def pieces(self) -> tuple[bytes, ...]:
        """The constant parts of the binary form: after the leading sizes, after the opaque, the
        fields up to the ids, from there to the queue offset, and from there to the key. All are in
        the form of a field's value: four bytes of size, and the text. Then the JSON parts up to the
        ids, the queue offset, the key, the opaque, and the end."""
        return (
            _BINARY_FRONT.pack(0, 0, 0, _LANGUAGE, Version.OURS)[8:],
            _BINARY_REST.pack(Flag.REPLY, 0, 0)[:8],
            self._before_ids,
            self._before_offset,
            self._before_key,
            *self._in_json,
        )

    def _adapt(self, queue_offset: int, key_size: int) -> None:
        digits = len(str(queue_offset))
        self._start, self._end = 10 ** (digits - 1) if digits > 1 else 0, 10**digits
        self._key_size = key_size
        texts: list[bytes] = [_literal(self._fixed)]
        size = len(self._fixed)
        for name, written, value_size in (
            ("msgId", self._host.encode() + b"%016X", len(self._host) + _PLACE_SIZE),
            ("queueId", self._queue.encode(), len(self._queue)),
            ("queueOffset", b"%d", digits),
            ("transactionId", b"%b", key_size),
        ):
            front = _name(name) + _size(value_size)
            texts.append(_literal(front) + written)
            size += len(front) + value_size
        header_size = _FIXED_SIZE + size
        front = _BINARY_FRONT.pack(
            4 + header_size, BINARY << 24 | header_size, 0, _LANGUAGE, Version.OURS
        )
        rest = _BINARY_REST.pack(Flag.REPLY, 0, size)
        self._binary = b"".join((_literal(front), b"%b", _literal(rest), *texts))

    def _pieces_in_json(self) -> tuple[bytes, bytes, bytes, bytes, bytes]:
        members = b"".join(
            msgspec.json.encode(name) + b":" + msgspec.json.encode(value) + b","
            for name, value in self._always.items()
        )
        return (
            b'{"code":0,"extFields":{%b"msgId":"' % members,
            b'","queueId":"%b","queueOffset":"' % self._queue.encode(),
            b'","transactionId":"',
            b'"},"flag":1,"language":"PYTHON","opaque":',
            b',"serializeTypeCurrentRPC":"JSON","version":%d}' % Version.OURS,
        )


def _in_json(key: bytes) -> bytes:
    return key if key.isalnum() else msgspec.json.encode(key.decode())[1:-1]


def _size(size: int) -> bytes:
    return _SIZE.pack(size)


def _name(name: str) -> bytes:
    return len(name).to_bytes(2, "big") + name.encode()


def _literal(text: bytes) -> bytes:
    """Text escaped for a template."""
    return text.replace(b"%", b"%%")
