"""Both header forms of a command: JSON, and RocketMQ's binary form (RocketMQSerializable).

Binary header, big-endian
  offset size field
       0    2 code
       2    1 language
       3    2 version
       5    4 opaque
       9    4 flag
      13    4 remark size, then the remark
            4 size of all fields, then each: 2 name size, name, 4 value size, value
"""

from __future__ import annotations

import struct
from collections.abc import Sized
from typing import Any, Final

import msgspec

from escrowmq.base.codes import Flag, Version
from escrowmq.base.command import Command
from escrowmq.base.limits import EXT_FIELDS_MAX, FRAME_SIZE_MAX
from escrowmq.codec.fields import decode_fields, encode_fields
from escrowmq.errors import LocalProtocolError, RemoteProtocolError

JSON: Final = 0
BINARY: Final = 1

LANGUAGES: Final = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP",
    "OMS", "RUST", "NODE_JS",
)  # fmt: skip
_OUR_LANGUAGE: Final = LANGUAGES.index("PYTHON")
_CODE_MAX_BINARY: Final = 32_767
_SHOWN_MAX: Final = 64
"""Characters of a wrong value that are shown."""

_FIXED: Final = struct.Struct(">hbhiii")
_INT: Final = struct.Struct(">i")
_FRONT: Final = struct.Struct(">II")

_decode_json = msgspec.json.Decoder(Command).decode
_encode_json = msgspec.json.Encoder().encode


class _Fraction(str):
    """A number that is kept as it was written: to read `1e300` takes 25 µs, and a header has room
    for many of them."""

    __slots__ = ()


_decode_any = msgspec.json.Decoder(float_hook=_Fraction).decode


class _WireHeader(msgspec.Struct, omit_defaults=True):
    """The JSON header in the order in which RocketMQ writes it."""

    code: int
    extFields: dict[str, str] | None  # noqa: N815 - the wire's spelling
    flag: int
    language: str
    opaque: int
    remark: str | None = None
    serializeTypeCurrentRPC: str = ""  # noqa: N815
    version: int | None = None  # always given, so that it is never the default that is left out


def decode_header(data: bytes, kind: int) -> Command:
    """The command that a header describes; RemoteProtocolError when it cannot be read."""
    if kind == JSON:
        try:
            command = _decode_json(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            command = _decode_json_tolerantly(data)
        if command.ext is not None:
            _check_count(command.ext)
        command.body = b""
        command.is_binary = False
        return command
    if kind == BINARY:
        return _decode_binary(data)
    raise RemoteProtocolError(f"header kind {kind}; 0 (JSON) or 1 (binary) is expected")


def _check_count(fields: Sized) -> None:
    if len(fields) > EXT_FIELDS_MAX:
        raise RemoteProtocolError(
            f"{len(fields)} header fields; {EXT_FIELDS_MAX} are allowed, put the rest in the body"
        )


def _decode_json_tolerantly(data: bytes) -> Command:
    """As RocketMQ reads it: numbers and nulls among the fields, odd languages."""
    try:
        raw = _decode_any(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"header is not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise RemoteProtocolError(f"header is a JSON {type(raw).__name__}, not an object")
    remark = raw.get("remark")
    language = raw.get("language")
    return Command(
        code=_int(raw, "code"),
        opaque=_int(raw, "opaque"),
        flag=_int(raw, "flag"),
        version=_int(raw, "version"),
        language=language if isinstance(language, str | int) else None,
        remark=remark if isinstance(remark, str) else None,
        ext=_ext(raw.get("extFields")),
    )


def _int(raw: dict[str, Any], name: str) -> int:
    value = raw.get(name)
    if value is None:
        return 0
    try:
        number = int(float(value) if isinstance(value, _Fraction) else value)
    except (TypeError, ValueError, OverflowError) as error:
        seen = repr(value)[:_SHOWN_MAX]
        raise RemoteProtocolError(f"header field {name} is {seen}, not a number") from error
    if not -(1 << 31) <= number < 1 << 31:
        raise RemoteProtocolError(f"header field {name} is {number}, beyond 32 bits")
    return number


def _ext(raw: object) -> dict[str, str] | None:
    if raw is None:
        return None
    if not isinstance(raw, dict):
        raise RemoteProtocolError("extFields is not an object")
    _check_count(raw)  # before a text is made of each: that takes far longer than to read them
    return {str(name): _text(value) for name, value in raw.items() if value is not None}


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return _encode_json(value).decode()


def _decode_binary(data: bytes) -> Command:
    try:
        code, language, version, opaque, flag, remark_size = _FIXED.unpack_from(data)
        at = _FIXED.size
        remark = None
        if remark_size:
            if not 0 < remark_size <= len(data) - at:
                raise RemoteProtocolError(f"remark of {remark_size} bytes in {len(data)}")
            remark = data[at : at + remark_size].decode()
            at += remark_size
        (fields_size,) = _INT.unpack_from(data, at)
        at += _INT.size
        if not 0 <= fields_size <= len(data) - at:
            raise RemoteProtocolError(f"fields of {fields_size} bytes in {len(data)}")
        ext = decode_fields(data[at : at + fields_size]) if fields_size else None
    except (struct.error, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"binary header does not parse: {error}") from error
    return Command(
        code=code,
        opaque=opaque,
        flag=flag,
        version=version,
        language=language,
        remark=remark,
        ext=ext,
        is_binary=True,
    )


def _frame(header: bytes, kind: int, body: bytes, body_size: int) -> bytes:
    size = 4 + len(header) + body_size
    if size + 4 > FRAME_SIZE_MAX:
        raise LocalProtocolError(f"frame of {size + 4} bytes; {FRAME_SIZE_MAX} allowed")
    return b"".join((_FRONT.pack(size, kind << 24 | len(header)), header, body))


def encode_command(command: Command, *, later_size: int = 0) -> bytes:
    """The whole frame of a request or reply, in the kind that it says. With `later_size`, so many
    bytes of body follow that the caller writes behind it: large bodies are not copied for it."""
    body = command.body
    body_size = len(body) + later_size
    if command.is_binary and command.code <= _CODE_MAX_BINARY:
        try:
            return _frame(_encode_binary(command), BINARY, body, body_size)
        except (struct.error, OverflowError):
            pass  # a number or a name that the binary form cannot hold: a client's, passed on
    header = _encode_json(
        _WireHeader(
            command.code,
            command.ext,
            command.flag,
            "PYTHON",
            command.opaque,
            command.remark,
            "JSON",
            command.version,
        )
    )
    return _frame(header, JSON, body, body_size)


def _encode_binary(command: Command) -> bytes:
    remark = command.remark.encode() if command.remark else b""
    fields = encode_fields(command.ext) if command.ext else b""
    return b"".join(
        (
            _FIXED.pack(
                command.code,
                _OUR_LANGUAGE,
                command.version,
                command.opaque,
                command.flag,
                len(remark),
            ),
            remark,
            _INT.pack(len(fields)),
            fields,
        )
    )


def encode_request(
    code: int,
    opaque: int,
    *,
    ext: dict[str, str] | None = None,
    body: bytes = b"",
    is_one_way: bool = False,
    remark: str | None = None,
) -> bytes:
    """The frame of a request of ours; always JSON, which every peer reads."""
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
    """The frame of a reply, in the kind of the request; `later_size` as in `encode_command`."""
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
