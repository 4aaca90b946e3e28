"""The answer to a successful send, encoded by hand.

field of SendMessageResponse   field of SendResultEntry
1 status                       1 status
2 entries                      2 message_id
                               3 transaction_id
                               4 offset
                               5 recall_handle

Each answer has two nested messages, with three fields that differ: assembling it from bytes takes
0.6 us, protobuf's own classes take 3.8 (CPython 3.11, protobuf 6)."""

from __future__ import annotations

from typing import Final

from escrowmq.proxy.result_codes import OK


def field_with_size(tag: bytes, data: bytes) -> bytes:
    """Encode a field of text, bytes, or a nested message."""
    return tag + encode_varint(len(data)) + data


def encode_varint(value: int) -> bytes:
    """Encode an integer as a varint."""
    if value < 0x80:
        return _SMALL[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL: Final = [bytes((value,)) for value in range(0x80)]
"""All varints of one byte. Nearly all numbers in answers are in this range."""

_STATUS: Final = field_with_size(b"\x0a", OK.SerializeToString())


def encode_send_response(
    message_id: str, transaction_id: str, *, offset: int, recall_handle: str = ""
) -> bytes:
    """Encode a SendMessageResponse about one message."""
    entry = _STATUS
    if message_id == transaction_id and message_id:  # of all but halves
        data = message_id.encode()
        size = encode_varint(len(data))
        entry = b"".join((_STATUS, b"\x12", size, data, b"\x1a", size, data))
    else:
        if message_id:
            entry += field_with_size(b"\x12", message_id.encode())
        if transaction_id:
            entry += field_with_size(b"\x1a", transaction_id.encode())
    if offset:
        entry += b"\x20" + encode_varint(offset)
    if recall_handle:
        entry += field_with_size(b"\x2a", recall_handle.encode())
    return b"".join((_STATUS, b"\x12", encode_varint(len(entry)), entry))
