"""The subset of YAML for accounts: mappings, lists and strings, nothing else.

A general loader converts what it reads: `0x1234567` to a number, `no` to a boolean, a tag to an
object of any class. A secret key is the literal text in the file, so only the parser's events are
used here. Anchors, tags, a second document and repeated names are refused.

It is imported only when a file is read: a server without accounts needs no YAML (10 ms of its
start)."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import yaml

from escrowmq.base.fixed_limits import ACL_FILE_SIZE_MAX
from escrowmq.errors import UsageError

Value: TypeAlias = "str | list[Value] | dict[str, Value] | None"

_DEPTH_MAX: Final = 8
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_PARSER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class DocumentError(UsageError):
    """Raised if a file cannot be parsed. The text names the line, never its content, which may be a
    secret."""


def parse_yaml(data: bytes) -> Value:
    """Parse a file into its single document; None if the file is empty."""
    if len(data) > ACL_FILE_SIZE_MAX:
        raise DocumentError(
            f"the file has {len(data)} bytes, {ACL_FILE_SIZE_MAX} are allowed; divide it"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(f"byte {error.start} is not UTF-8; save the file in UTF-8") from error
    builder = _DocumentBuilder()
    try:
        for event in yaml.parse(text, Loader=_PARSER):
            builder.add_event(event)
    except yaml.YAMLError as error:
        # The error's own text quotes the line, which may contain a secret key.
        raise DocumentError(f"{_error_place(error)}: this is not YAML") from None
    return builder.value


def _error_place(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f"line {mark.line + 1}" if mark is not None else "somewhere"


class _DocumentBuilder:
    """Builds a document from the parser's events."""

    def __init__(self) -> None:
        self.value: Value = None
        self._documents_count = 0
        self._open: list[list[Value] | dict[str, Value]] = []
        self._names: list[str | None] = []
        """For each open mapping: the key whose value comes next; None for a list."""

    def add_event(self, event: yaml.Event) -> None:
        """Process the next event of the parser."""
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents_count += 1
            if self._documents_count > 1:
                raise _document_error(event, "a second document begins; one is allowed")
        elif isinstance(event, yaml.AliasEvent):
            raise _document_error(event, "an alias; write the value out")
        elif isinstance(event, yaml.NodeEvent):
            if event.anchor is not None or getattr(event, "tag", None) is not None:
                raise _document_error(event, "an anchor or a tag; plain values are allowed")
            self._add_node(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._open.pop()
            self._names.pop()

    def _add_node(self, event: yaml.NodeEvent) -> None:
        if isinstance(event, yaml.ScalarEvent):
            is_plain = not event.style and event.implicit[0]
            is_null = is_plain and event.value in _NULLS
            self._add_value(event, None if is_null else str(event.value))
            return
        if len(self._open) == _DEPTH_MAX:
            raise _document_error(event, f"more than {_DEPTH_MAX} levels")
        inner: list[Value] | dict[str, Value]
        inner = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._add_value(event, inner)
        self._open.append(inner)
        self._names.append(None)

    def _add_value(self, event: yaml.NodeEvent, value: Value) -> None:
        """Put a value where it belongs: it is the document, an item of a list, or a key or value of
        a mapping."""
        if not self._open:
            self.value = value
            return
        inner = self._open[-1]
        if isinstance(inner, list):
            inner.append(value)
            return
        name = self._names[-1]
        if name is not None:
            inner[name] = value
            self._names[-1] = None
            return
        if not isinstance(value, str):
            raise _document_error(event, "a name is expected before the colon")
        if value in inner:
            raise _document_error(event, "a name is given twice; keep one")
        self._names[-1] = value


def _document_error(event: yaml.Event, reason: str) -> DocumentError:
    mark = event.start_mark
    line = mark.line + 1 if mark is not None else 0
    return DocumentError(f"line {line}: {reason}")


def encode_yaml(value: object) -> bytes:
    """Encode a document, with names in alphabetical order as in RocketMQ."""
    text: str = yaml.safe_dump(value, default_flow_style=False, allow_unicode=True, sort_keys=True)
    return text.encode()
