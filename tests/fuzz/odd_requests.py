"""Requests to spoil where a reader of bytes is likely to err: lengths, numbers, escapes, batches.

Unlike those of `frames.spoil` these are still well-formed frames, except where the frame's own
lengths are wrong, so that they get past the first comparison."""

from __future__ import annotations

import random
import struct
from typing import Final

from escrowmq.codec.binary_header import field_spans

_SIZE: Final = struct.Struct(">I")
_FRONT_SIZE: Final = 8
_FIELDS_AT: Final = 21
_BINARY: Final = 1

LENGTHS: Final = (0, 1, 3, 4, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0xFFFFFF, 0x7FFFFFFF,
                  0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)  # fmt: skip
NUMBERS: Final = (b"", b"0", b"00", b"007", b"+1", b"-0", b"-1", b" 1", b"1 ", b"1e3", b"0x1",
                  b"2147483647", b"2147483648", b"9223372036854775807", b"9223372036854775808",
                  b"18446744073709551617", b"9" * 40, b"1\0", b"\xd9\xa1")  # fmt: skip
ESCAPES: Final = (rb"\u0001", rb"\u0002", rb"\u0000", rb"\u0041", rb"\u00e9", rb"\ud800", rb"\/",
                  rb"\n", rb"\\", rb"\"", rb"\u000", rb"\x01", b"\\", b'"', b"\x1f", b"\x7f",
                  b"\xc3\xa9", b"\xff")  # fmt: skip


def framed(kind: int, header: bytes, body: bytes) -> bytes:
    """A frame whose lengths are right."""
    front = _SIZE.pack(4 + len(header) + len(body)) + _SIZE.pack(kind << 24 | len(header))
    return front + header + body


def parts(frame: bytes) -> tuple[int, bytes, bytes]:
    """The kind, header and body of a well-formed frame."""
    end = _FRONT_SIZE + int.from_bytes(frame[5:8], "big")
    return frame[4], frame[_FRONT_SIZE:end], frame[end:]


def _near(size: int, chance: random.Random) -> bytes:
    """A length that is wrong: slightly, or one of those at which readers fail."""
    wrong = (
        size + chance.choice((-2, -1, 1, 2)) if chance.random() < 0.5 else chance.choice(LENGTHS)
    )
    return _SIZE.pack(wrong & 0xFFFFFFFF)


def wrong_length(frame: bytes, chance: random.Random) -> bytes:
    """One length is wrong: of the frame, the header, all fields, or one field."""
    kind, header, _ = parts(frame)
    places = [0, 4]
    if kind == _BINARY:
        spans = field_spans(header, _FIELDS_AT, len(header)).values()
        places += [_FRONT_SIZE + _FIELDS_AT - 4, *(_FRONT_SIZE + begin - 4 for begin, _ in spans)]
    at = chance.choice(places)
    said = _near(int.from_bytes(frame[at : at + 4], "big"), chance)
    if at == 4:  # three bytes, behind the kind
        said = frame[4:5] + said[1:]
    return frame[:at] + said + frame[at + 4 :]


def odd_number(frame: bytes, chance: random.Random) -> bytes:
    """A field that is a number has another text, in a frame of the right length."""
    kind, header, body = parts(frame)
    value = chance.choice(NUMBERS)
    if kind != _BINARY:
        places = [at for at in range(1, len(header)) if header[at - 1 : at] in (b'"', b":")]
        at = chance.choice(places)
        end = at
        while end < len(header) and header[end : end + 1].isdigit():
            end += 1
        return framed(kind, header[:at] + value + header[end:], body)
    spans = field_spans(header, _FIELDS_AT, len(header)).values()
    begin, end = chance.choice([span for span in spans if header[slice(*span)].isdigit()])
    changed = bytearray(header[: begin - 4] + _SIZE.pack(len(value)) + value + header[end:])
    changed[_FIELDS_AT - 4 : _FIELDS_AT] = _SIZE.pack(len(changed) - _FIELDS_AT)
    return framed(kind, bytes(changed), body)


def odd_escape(frame: bytes, chance: random.Random) -> bytes:
    """The header has an escape, a quote or a control character more, or in place of another."""
    kind, header, body = parts(frame)
    at = chance.randrange(len(header))
    odd = chance.choice(ESCAPES)
    return framed(kind, header[:at] + odd + header[at + chance.choice((0, 1, 6)) :], body)


def odd_body(frame: bytes, chance: random.Random) -> bytes:
    """The body is cut off, has more, or one of its bytes or lengths is wrong."""
    kind, header, body = parts(frame)
    at = chance.randrange(len(body) + 1)
    match chance.randrange(4):
        case 0:
            changed = body[:at]
        case 1:
            changed = body + chance.randbytes(chance.randrange(1, 30))
        case 2:
            changed = body[:at] + _SIZE.pack(chance.choice(LENGTHS)) + body[at + 4 :]
        case _:
            changed = body[:at] + body[at + chance.randrange(1, 24) :]
    return framed(kind, header, changed)


def odd_request(frame: bytes, chance: random.Random) -> bytes:
    """A valid request with one of these wrong."""
    return chance.choice((wrong_length, odd_number, odd_escape, odd_body))(frame, chance)
