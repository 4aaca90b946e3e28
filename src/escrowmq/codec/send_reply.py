"""The reply to a stored message, a broker's most frequent reply.

All except four values are the same for every message, so the rest is encoded once. Measured: 0.7 us
in JSON and 1.1 us in binary form, where the general encoder takes 1.3 and 2.5 us."""

from __future__ import annotations

import struct
from typing import Final

from escrowmq.base.codes import Flag, Version
from escrowmq.base.command import Command
from escrowmq.codec.binary_header import encode_fields
from escrowmq.codec.command import BINARY, encode_reply

_FRONT: Final = struct.Struct(">II")
_LANGUAGE: Final = 3
_BINARY: Final = struct.Struct(">IIhbhiiii")
"""Frame size, kind and header size, then the fixed part of a binary header without a remark."""

_JSON: Final = (
    '{"code":0,"extFields":{%s"msgId":"%%s","queueId":"%%d","queueOffset":"%%d",'
    '"transactionId":"%%s"},"flag":1,"language":"PYTHON","opaque":%%d,'
    '"serializeTypeCurrentRPC":"JSON","version":%d}'
)
_SIZE_MAX: Final = 255
"""Longer keys are left to the general encoder: here a size is one character."""

_ESCAPED: Final = frozenset('"\\%')


class SentReplies:
    """Encodes replies from constant fields and those of one message."""

    def __init__(self, always: dict[str, str]) -> None:
        self._always = always
        text = "".join([*always, *always.values()])
        self._is_plain = text.isascii() and text.isprintable() and not _ESCAPED & set(text)
        members = "".join([f'"{name}":"{value}",' for name, value in always.items()])
        self._json = _JSON % (members.replace("%", "%%"), Version.OURS)
        self._binary = encode_fields(always).decode("latin-1")

    def encode(
        self,
        request: Command,
        message_id: str,
        *,
        queue_id: int,
        queue_offset: int,
        unique_key: str,
    ) -> bytes:
        """The whole frame."""
        if not (
            self._is_plain
            and unique_key.isalnum()
            and unique_key.isascii()
            and len(unique_key) <= _SIZE_MAX
        ):
            return encode_reply(
                request,
                0,
                ext=self._always | _fields(message_id, queue_id, queue_offset, unique_key),
            )
        if not request.is_binary:
            text = self._json % (message_id, queue_id, queue_offset, unique_key, request.opaque)
            header = text.encode()
            return _FRONT.pack(4 + len(header), len(header)) + header
        queue, offset = str(queue_id), str(queue_offset)
        # Sizes and texts are ASCII here, so that one string holds both and is encoded once.
        fields = (
            f"{self._binary}\0\5msgId\0\0\0{chr(len(message_id))}{message_id}"
            f"\0\7queueId\0\0\0{chr(len(queue))}{queue}"
            f"\0\x0bqueueOffset\0\0\0{chr(len(offset))}{offset}"
            f"\0\x0dtransactionId\0\0\0{chr(len(unique_key))}{unique_key}"
        ).encode("latin-1")
        size = _BINARY.size - _FRONT.size + len(fields)
        front = _BINARY.pack(
            4 + size,
            BINARY << 24 | size,
            0,
            _LANGUAGE,
            Version.OURS,
            request.opaque,
            Flag.REPLY,
            0,
            len(fields),
        )
        return front + fields


def _fields(message_id: str, queue_id: int, queue_offset: int, unique_key: str) -> dict[str, str]:
    return {
        "msgId": message_id,
        "queueId": str(queue_id),
        "queueOffset": str(queue_offset),
        "transactionId": unique_key,
    }
