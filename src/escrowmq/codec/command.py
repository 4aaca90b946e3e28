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

_QUOTES_MAX: Final = 4 * EXT_FIELDS_MAX + 64
"""Of a header in JSON that has no more fields than are allowed, and those of its own."""

_NULL: Final = b"null"
_ABSENT: Final = msgspec.Raw(_NULL)

_decode_json = msgspec.json.Decoder(Command).decode
_encode_json = msgspec.json.Encoder().encode


class _Fraction(str):
    """A number that is kept as it was written: to read `1e300` takes 25 µs, and a header has room
    for many of them."""

    __slots__ = ()


_decode_any = msgspec.json.Decoder(float_hook=_Fraction).decode


class _OddHeader(msgspec.Struct):
    """A JSON header as it was written. A value is read when it is wanted, and never as a whole
    when there are things in it: whoever sends 80,000 empty lists is not to have them made."""

    code: msgspec.Raw = _ABSENT
    opaque: msgspec.Raw = _ABSENT
    flag: msgspec.Raw = _ABSENT
    version: msgspec.Raw = _ABSENT
    language: msgspec.Raw = _ABSENT
    remark: msgspec.Raw = _ABSENT
    extFields: msgspec.Raw = _ABSENT  # noqa: N815 - the wire's spelling


_decode_odd = msgspec.json.Decoder(_OddHeader).decode
_decode_odd_fields = msgspec.json.Decoder(dict[str, msgspec.Raw] | None).decode


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
        if len(data) > _QUOTES_MAX:
            _check_quotes(data)
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


def _check_quotes(data: bytes) -> None:
    """Each field has two quotes at least, of which the first is never escaped: to count them
    takes a hundredth of what it takes to read the fields."""
    if data.count(b'"') - data.count(b'\\"') > _QUOTES_MAX:
        raise RemoteProtocolError(
            f"more than {EXT_FIELDS_MAX} header fields; put the rest in the body"
        )


def _check_count(fields: Sized) -> None:
    if len(fields) > EXT_FIELDS_MAX:
        raise RemoteProtocolError(
            f"{len(fields)} header fields; {EXT_FIELDS_MAX} are allowed, put the rest in the body"
        )


def _decode_json_tolerantly(data: bytes) -> Command:
    """As RocketMQ reads it: numbers and nulls among the fields, odd languages."""
    try:
        return _command_of(_decode_odd(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"header is no JSON object: {error}") from error


def _command_of(raw: _OddHeader) -> Command:
    remark, language = _value(bytes(raw.remark)), _value(bytes(raw.language))
    return Command(
        code=_int(bytes(raw.code), "code"),
        opaque=_int(bytes(raw.opaque), "opaque"),
        flag=_int(bytes(raw.flag), "flag"),
        version=_int(bytes(raw.version), "version"),
        language=language if isinstance(language, str | int) else None,
        remark=remark if isinstance(remark, str) else None,
        ext=_ext(raw.extFields),
    )


def _value(raw: bytes) -> object:
    """A text, a number, a truth value or nothing; of what has things in it, that there are some."""
    return _decode_any(raw) if raw[:1] not in b"[{" else raw


def _int(raw: bytes, name: str) -> int:
    value: Any = _value(raw)
    if value is None:
        return 0
    try:
        number = int(float(value) if isinstance(value, _Fraction) else value)
    except (TypeError, ValueError, OverflowError) as error:
        seen = raw[:_SHOWN_MAX].decode(errors="replace")
        raise RemoteProtocolError(f"header field {name} is {seen}, not a number") from error
    if not -(1 << 31) <= number < 1 << 31:
        raise RemoteProtocolError(f"header field {name} is {number}, beyond 32 bits")
    return number


def _ext(raw: msgspec.Raw) -> dict[str, str] | None:
    try:
        fields = _decode_odd_fields(raw)
    except msgspec.ValidationError as error:
        raise RemoteProtocolError("extFields is not an object") from error
    if fields is None:
        return None
    _check_count(fields)  # before a text is made of each: that takes far longer than to read them
    written = ((name, bytes(value)) for name, value in fields.items())
    return {name: _text(value) for name, value in written if value != _NULL}


def _text(raw: bytes) -> str:
    """What stands for a field's value: lists and objects without their blanks."""
    first = raw[:1]
    if first == b'"':
        text = _decode_any(raw)
        assert isinstance(text, str)
        return text
    return (msgspec.json.format(raw, indent=-1) if first in b"[{" else raw).decode()


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
