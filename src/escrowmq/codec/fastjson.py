"""JSON in the dialect of RocketMQ's library: integer keys without quotes, and objects as keys.

Both occur in its bodies (`{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"T"}:4}}`) and in
its files (`{0:12,1:3}`); neither is JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from escrowmq.errors import RemoteProtocolError

DEPTH_MAX: Final = 64

_TOKEN: Final = re.compile(
    rb'[ \t\r\n]*("(?:[^"\\]|\\.)*"|[{}\[\],:]|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null)',
    re.DOTALL,
)
_decode_strict: Final = msgspec.json.decode
encode: Final = msgspec.json.encode


def decode_fastjson(data: bytes) -> Any:  # noqa: ANN401 - JSON is what it is
    """Decode a text. A key that is an object becomes that object's compact JSON text with sorted
    members. Raises RemoteProtocolError if it is invalid even in RocketMQ's dialect."""
    try:
        return _decode_strict(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _FastjsonParser(data).parse_text()


class _FastjsonParser:
    """A parser of RocketMQ's JSON dialect."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._depth = 0

    def parse_text(self) -> Any:  # noqa: ANN401
        value = self._parse_value(self._next_token())
        if self._data[self._at :].strip():
            raise self._syntax_error("nothing more")
        return value

    def _syntax_error(self, expected: str) -> RemoteProtocolError:
        seen = self._data[self._at : self._at + 20]
        return RemoteProtocolError(f"JSON: {expected} expected at byte {self._at}, {seen!r} seen")

    def _next_token(self) -> bytes:
        match = _TOKEN.match(self._data, self._at)
        if match is None:
            raise self._syntax_error("a value")
        self._at = match.end()
        return match[1]

    def _parse_value(self, token: bytes) -> Any:  # noqa: ANN401
        if token not in (b"{", b"["):
            if token in (b"}", b"]", b",", b":"):
                raise self._syntax_error("a value")
            try:
                return _decode_strict(token)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise self._syntax_error("a value") from error
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._syntax_error(f"no more than {DEPTH_MAX} levels")
        value = self._parse_object() if token == b"{" else self._parse_array()
        self._depth -= 1
        return value

    def _parse_array(self) -> list[Any]:
        found: list[Any] = []
        token = self._next_token()
        while token != b"]":
            found.append(self._parse_value(token))
            token = self._next_token()
            if token == b",":
                token = self._next_token()
            elif token != b"]":
                raise self._syntax_error("`,` or `]`")
        return found

    def _parse_object(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        token = self._next_token()
        while token != b"}":
            key = self._parse_value(token)
            if not isinstance(key, str):
                key = msgspec.json.encode(key, order="deterministic").decode()
            if self._next_token() != b":":
                raise self._syntax_error("`:`")
            found[key] = self._parse_value(self._next_token())
            token = self._next_token()
            if token == b",":
                token = self._next_token()
            elif token != b"}":
                raise self._syntax_error("`,` or `}`")
        return found


class QueueId(msgspec.Struct, frozen=True, rename="camel"):
    """Identifies a message queue, in RocketMQ's JSON form."""

    broker_name: str
    queue_id: int
    topic: str


def encode_fastjson_map(items: Iterable[tuple[object, object]]) -> bytes:
    """Encode an object whose keys are objects, or numbers without quotes."""
    return b"{%b}" % b",".join(encode(key) + b":" + encode(value) for key, value in items)


def decode_queue_map(found: dict[str, Any]) -> dict[QueueId, Any]:
    """Convert a decoded object whose keys are queues."""
    return {msgspec.json.decode(key, type=QueueId): value for key, value in found.items()}
