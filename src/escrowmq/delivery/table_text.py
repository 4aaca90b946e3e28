"""Caches the JSON text of a table's entries, so that a change of one entry costs the encoding of
one.

With 20 000 groups, encoding the whole table takes 60 ms and assembling it 1 ms, during which no
other request is served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from escrowmq.codec import fastjson

_INDENT: Final = b"  "


class EntryTextCache:
    """A cache of the JSON texts of a table's entries, by name. Callers that change an entry must
    forget its text."""

    def __init__(self, to_encode: Callable[[Any], object] | None = None) -> None:
        """`to_encode` converts an entry to the value to encode; None: entries are encoded as they
        are."""
        self._to_encode = to_encode
        self._texts: dict[str, bytes] = {}

    def clear(self) -> None:
        """Forget all texts."""
        self._texts.clear()

    def forget(self, name: str) -> None:
        """Forget the text of an entry that was changed or removed."""
        self._texts.pop(name, None)

    def render(self, table: Mapping[str, object]) -> bytes:
        """Return the table as JSON text, as a field of a file with an indent of two."""
        if not table:
            return b"{}"
        texts = self._texts
        found = []
        for name, value in table.items():
            text = texts.get(name)
            if text is None:
                if self._to_encode is not None:
                    value = self._to_encode(value)  # noqa: PLW2901 - the rest wants this one
                text = texts[name] = fastjson.encode(name) + b": " + indented_json(value, depth=2)
            found.append(text)
        return b"{\n    " + b",\n    ".join(found) + b"\n  }"


def indented_json(value: object, *, depth: int) -> bytes:
    """Return a value's JSON text, indented to this depth of the file."""
    # A line break within a text is written as \\n, so each real one separates lines.
    text: bytes = msgspec.json.format(fastjson.encode(value), indent=2)
    return text.replace(b"\n", b"\n" + _INDENT * depth)


def assemble_file(**members: bytes) -> bytes:
    """Return the JSON text of a file whose fields are already encoded."""
    lines = [b'  "%b": %b' % (name.encode(), text) for name, text in members.items()]
    return b"{\n" + b",\n".join(lines) + b"\n}"
