"""Encodes commands to frames, and decodes headers, in both encodings (codec/json_header,
codec/binary_header)."""

from __future__ import annotations

import struct
from typing import Final

from escrowmq.base.codes import Flag, Version
from escrowmq.base.command import Command
from escrowmq.base.fixed_limits import FRAME_SIZE_MAX
from escrowmq.codec.binary_header import decode_binary, encode_binary
from escrowmq.codec.json_header import decode_json, encode_json
from escrowmq.errors import LocalProtocolError, RemoteProtocolError

JSON: Final = 0
BINARY: Final = 1

_CODE_MAX_BINARY: Final = 32_767
_FRONT: Final = struct.Struct(">II")


def decode_header(data: bytes, kind: int) -> Command:
    """Decode a header; raises RemoteProtocolError if it is invalid."""
    if kind == JSON:
        return decode_json(data)
    if kind == BINARY:
        return decode_binary(data)
    raise RemoteProtocolError(f"header kind {kind}; 0 (JSON) or 1 (binary) is expected")


def _encode_header(command: Command) -> tuple[int, bytes]:
    if command.is_binary and command.code <= _CODE_MAX_BINARY:
        try:
            return BINARY, encode_binary(command)
        except (struct.error, OverflowError):
            pass  # a number or name from a client that the binary form cannot hold
    return JSON, encode_json(command)


def encode_command(command: Command, *, later_size: int = 0) -> bytes:
    """Encode a request or reply to a frame, in the command's encoding. With `later_size`, the
    caller writes a body of that size itself, so that it is not copied."""
    kind, header = _encode_header(command)
    size = 4 + len(header) + len(command.body) + later_size
    if size + 4 > FRAME_SIZE_MAX:
        raise LocalProtocolError(f"frame of {size + 4} bytes; {FRAME_SIZE_MAX} allowed")
    return b"".join((_FRONT.pack(size, kind << 24 | len(header)), header, command.body))


def encode_request(
    code: int,
    opaque: int,
    *,
    ext: dict[str, str] | None = None,
    body: bytes = b"",
    is_one_way: bool = False,
    remark: str | None = None,
) -> bytes:
    """Encode a request of ours to a frame, always in JSON, which every peer reads."""
    return encode_command(
        Command(
            code=code,
            opaque=opaque,
            flag=Flag.ONE_WAY if is_one_way else 0,
            version=Version.OURS,
            ext=ext,
            body=body,
            remark=remark,
        )
    )


def encode_reply(
    request: Command,
    code: int,
    *,
    ext: dict[str, str] | None = None,
    body: bytes = b"",
    remark: str | None = None,
    later_size: int = 0,
) -> bytes:
    """Encode a reply to a frame, in the encoding of its request. With `later_size`, the caller
    writes a body of that size itself, so that it is not copied."""
    return encode_command(
        Command(
            code=code,
            opaque=request.opaque,
            flag=Flag.REPLY,
            version=Version.OURS,
            ext=ext,
            body=body,
            remark=remark,
            is_binary=request.is_binary,
        ),
        later_size=later_size,
    )
