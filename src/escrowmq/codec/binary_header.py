"""RocketMQ's binary form of a command's header (RocketMQSerializable), big-endian
  offset size field
       0    2 code
       2    1 language
       3    2 version
       5    4 opaque
       9    4 flag
      13    4 remark size, then the remark
            4 size of all fields, then each: 2 name size, name, 4 value size, value

One sender's headers differ only in their values, which seldom change their length. So the layout of
a header is cached by its size; the next header of that size is parsed by one `struct` call and
verified by one comparison of all names and sizes. Measured for a send request with 13 fields: 2.9
µs, against 8.5 µs for the walk field by field."""

from __future__ import annotations

import functools
import struct
from typing import Final

from escrowmq.base.command import Command
from escrowmq.base.fixed_limits import EXT_FIELDS_MAX
from escrowmq.errors import RemoteProtocolError

LANGUAGES: Final = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP",
    "OMS", "RUST", "NODE_JS",
)  # fmt: skip
_OUR_LANGUAGE: Final = LANGUAGES.index("PYTHON")

_FIXED: Final = struct.Struct(">hbhiii")
_INT: Final = struct.Struct(">i")
_LAYOUTS_MAX: Final = 1024
_SEPARATOR: Final = b"\0"


def decode_binary(data: bytes) -> Command:
    """Decode a binary header; raises RemoteProtocolError if it is invalid."""
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


def encode_binary(command: Command) -> bytes:
    """Encode a command's header in binary form. Raises struct.error or OverflowError if it does not
    fit."""
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


class _HeaderLayout:
    """The names and sizes of the fields of one header, with which similar headers are parsed."""

    __slots__ = ("names", "prefixes", "unpack")

    def __init__(self, data: bytes, spans: list[tuple[int, int, int]]) -> None:
        sizes = "".join(f"{value - start}s{end - value}s" for start, value, end in spans)
        self.unpack = struct.Struct(sizes).unpack
        self.prefixes = tuple(data[start:value] for start, value, _ in spans)
        self.names = [prefix[2:-4].decode() for prefix in self.prefixes]


_layouts: Final[dict[int, _HeaderLayout]] = {}


def decode_fields(data: bytes) -> dict[str, str]:
    """Decode names and values. Empty values are left out, because RocketMQ reads them as null."""
    layout = _layouts.get(len(data))
    if layout is not None:
        parts = layout.unpack(data)
        if parts[::2] == layout.prefixes:
            values = parts[1::2]
            try:
                texts = _SEPARATOR.join(values).decode().split("\0")
            except UnicodeDecodeError:
                texts = []  # reading field by field gives the same result
            if len(texts) == len(values):  # otherwise a value contains the separator
                return dict(zip(layout.names, texts, strict=True))
    return _decode_field_by_field(data)


def _decode_field_by_field(data: bytes) -> dict[str, str]:
    spans: list[tuple[int, int, int]] = []
    ext: dict[str, str] = {}
    at, end, count = 0, len(data), 0
    from_bytes = int.from_bytes
    while at < end:
        count += 1  # fields without value count too, and repeated names
        if count > EXT_FIELDS_MAX:
            raise RemoteProtocolError(
                f"more than {EXT_FIELDS_MAX} header fields; put the rest in the body"
            )
        name_end = at + 2 + from_bytes(data[at : at + 2], "big")
        value_at = name_end + 4
        value_end = value_at + from_bytes(data[name_end:value_at], "big")
        if value_end > end:
            raise RemoteProtocolError(f"a header field ends at byte {value_end} of {end}")
        if value_end > value_at:
            ext[data[at + 2 : name_end].decode()] = data[value_at:value_end].decode()
            spans.append((at, value_at, value_end))
        at = value_end
    if len(ext) == len(spans) and sum(end - at for at, _, end in spans) == len(data):
        if len(_layouts) >= _LAYOUTS_MAX:
            _layouts.clear()
        _layouts[len(data)] = _HeaderLayout(data, spans)
    return ext


def field_spans(data: bytes, at: int, end: int) -> dict[bytes, tuple[int, int]]:
    """Return by name where the value of each decoded field starts and ends. Return an empty
    dictionary if a name is repeated."""
    found: dict[bytes, tuple[int, int]] = {}
    while at < end:
        name_end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        value_at = name_end + 4
        name, at = data[at + 2 : name_end], value_at
        at += int.from_bytes(data[name_end:value_at], "big")
        if name in found:
            return {}
        found[name] = value_at, at
    return found


@functools.lru_cache(maxsize=4096)
def _field_prefix(name: str, value_size: int) -> bytes:
    key = name.encode()
    return len(key).to_bytes(2, "big", signed=True) + key + value_size.to_bytes(4, "big")


def encode_fields(ext: dict[str, str]) -> bytes:
    """Encode fields without their total size. Raises OverflowError if a name is too long."""
    parts: list[bytes] = []
    for name, text in ext.items():
        value = text.encode()
        parts += (_field_prefix(name, len(value)), value)
    return b"".join(parts)
