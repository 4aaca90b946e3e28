"""Encodes command headers in RocketMQ's JSON form, and decodes every form that RocketMQ accepts."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, Final

import msgspec

from escrowmq.base.command import Command
from escrowmq.base.fixed_limits import EXT_FIELDS_MAX
from escrowmq.errors import RemoteProtocolError

_SHOWN_MAX: Final = 64
"""The number of characters of a wrong value that an error shows."""

_QUOTES_MAX: Final = 4 * EXT_FIELDS_MAX + 64
"""The most quotes in a JSON header with the allowed number of fields."""

_NULL: Final = b"null"
_ABSENT: Final = msgspec.Raw(_NULL)

_decode_command = msgspec.json.Decoder(Command).decode
_encode_json = msgspec.json.Encoder().encode


class _NumberText(str):
    """A number kept as text: parsing `1e300` takes 25 µs, and a header has room for many."""

    __slots__ = ()


_decode_any = msgspec.json.Decoder(float_hook=_NumberText).decode


class _LenientHeader(msgspec.Struct):
    """A JSON header with unparsed values. They are parsed on demand, and nested ones never as a
    whole, so that 80,000 empty lists cost nothing."""

    code: msgspec.Raw = _ABSENT
    opaque: msgspec.Raw = _ABSENT
    flag: msgspec.Raw = _ABSENT
    version: msgspec.Raw = _ABSENT
    language: msgspec.Raw = _ABSENT
    remark: msgspec.Raw = _ABSENT
    extFields: msgspec.Raw = _ABSENT  # noqa: N815 - the wire's spelling


_decode_odd = msgspec.json.Decoder(_LenientHeader).decode
_decode_odd_fields = msgspec.json.Decoder(dict[str, msgspec.Raw] | None).decode


class _WireHeader(msgspec.Struct, omit_defaults=True):
    """A JSON header for encoding. The fields are in RocketMQ's order."""

    code: int
    extFields: dict[str, str] | None  # noqa: N815 - the wire's spelling
    flag: int
    language: str
    opaque: int
    remark: str | None = None
    serializeTypeCurrentRPC: str = ""  # noqa: N815
    version: int | None = None  # always set, because a default would be left out


def decode_json(data: bytes) -> Command:
    """Decode a JSON header; raises RemoteProtocolError if it is invalid."""
    if len(data) > _QUOTES_MAX:
        _check_quotes(data)
    try:
        command = _decode_command(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        command = _decode_tolerantly(data)
    if command.ext is not None:
        _check_field_count(command.ext)
    command.body = b""
    command.is_binary = False
    return command


def _check_quotes(data: bytes) -> None:
    """Raise RemoteProtocolError if the header has too many quotes. Each field has at least two, and
    counting them takes a hundredth of the time of parsing."""
    if data.count(b'"') - data.count(b'\\"') > _QUOTES_MAX:
        raise RemoteProtocolError(
            f"more than {EXT_FIELDS_MAX} header fields; put the rest in the body"
        )


def _check_field_count(fields: Sized) -> None:
    if len(fields) > EXT_FIELDS_MAX:
        raise RemoteProtocolError(
            f"{len(fields)} header fields; {EXT_FIELDS_MAX} are allowed, put the rest in the body"
        )


def _decode_tolerantly(data: bytes) -> Command:
    """Decode a header as tolerantly as RocketMQ: numbers and nulls among the fields, unknown
    languages."""
    try:
        return _to_command(_decode_odd(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"header is not a JSON object: {error}") from error


def _to_command(raw: _LenientHeader) -> Command:
    remark, language = _decode_value(bytes(raw.remark)), _decode_value(bytes(raw.language))
    return Command(
        code=_decode_int(bytes(raw.code), "code"),
        opaque=_decode_int(bytes(raw.opaque), "opaque"),
        flag=_decode_int(bytes(raw.flag), "flag"),
        version=_decode_int(bytes(raw.version), "version"),
        language=language if isinstance(language, str | int) else None,
        remark=remark if isinstance(remark, str) else None,
        ext=_decode_fields(raw.extFields),
    )


def _decode_value(raw: bytes) -> object:
    """Decode a text, number, boolean or null. Return nested values unparsed."""
    return _decode_any(raw) if raw[:1] not in b"[{" else raw


def _decode_int(raw: bytes, name: str) -> int:
    value: Any = _decode_value(raw)
    if value is None:
        return 0
    try:
        number = int(float(value) if isinstance(value, _NumberText) else value)
    except (TypeError, ValueError, OverflowError) as error:
        seen = raw[:_SHOWN_MAX].decode(errors="replace")
        raise RemoteProtocolError(f"header field {name} is {seen}, not a number") from error
    if not -(1 << 31) <= number < 1 << 31:
        raise RemoteProtocolError(f"header field {name} is {number}, beyond 32 bits")
    return number


def _decode_fields(raw: msgspec.Raw) -> dict[str, str] | None:
    try:
        fields = _decode_odd_fields(raw)
    except msgspec.ValidationError as error:
        raise RemoteProtocolError("extFields is not an object") from error
    if fields is None:
        return None
    _check_field_count(fields)  # first: converting each field to text takes far longer
    written = ((name, bytes(value)) for name, value in fields.items())
    return {name: _field_text(value) for name, value in written if value != _NULL}


def _field_text(raw: bytes) -> str:
    """Return a field's value as text; lists and objects without blanks."""
    first = raw[:1]
    if first == b'"':
        text = _decode_any(raw)
        assert isinstance(text, str)
        return text
    return (msgspec.json.format(raw, indent=-1) if first in b"[{" else raw).decode()


def encode_json(command: Command) -> bytes:
    """Encode a command's header in JSON."""
    return _encode_json(
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
