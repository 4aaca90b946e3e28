"""Parses Java's properties format, in which RocketMQ stores its settings: `key=value` lines."""

from __future__ import annotations

import re
from typing import Final

from escrowmq.base.fixed_limits import SETTINGS_TEXT_SIZE_MAX
from escrowmq.errors import UsageError

_BLANKS: Final = " \t\f"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_PAIR: Final = re.compile(
    r"((?:\\.|[^\\=: \t\f])*)(?:[ \t\f]*[=:][ \t\f]*|[ \t\f]+|\Z)(.*)", re.DOTALL
)
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class ConfError(UsageError):
    """Raised for a text that is not a valid list of settings."""


def parse_java_properties(text: str) -> dict[str, str]:
    """Parse a text like java.util.Properties: comments, continued lines and escapes.

    The last of repeated keys counts, and trailing blanks belong to a value. A lone backslash as the
    last line is ignored; Java reads it as an empty key with an empty value.
    """
    if len(text) > SETTINGS_TEXT_SIZE_MAX:
        raise ConfError(
            f"{len(text)} characters of settings; {SETTINGS_TEXT_SIZE_MAX} are read; leave out "
            "what is not changed"
        )
    found: dict[str, str] = {}
    held = ""
    for raw in _LINE_END.split(text):
        line = held + raw.lstrip(_BLANKS)
        if not held and line[:1] in ("", "#", "!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:  # an odd backslash continues the line
            held = line[:-1]
            continue
        held = ""
        _add_property(line, found)
    if held:
        _add_property(held, found)
    return found


def _add_property(line: str, found: dict[str, str]) -> None:
    pair = _PAIR.match(line)
    assert pair is not None, line
    found[_unescape(pair[1])] = _unescape(pair[2])


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(_unescape_match, text)
    if _SURROGATE.search(plain):  # Java writes a character beyond the first 65,536 as two escapes
        plain = plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return plain


def _unescape_match(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] != "u":
        return _CONTROLS.get(code, code)
    if len(code) == 1:
        raise ConfError("a \\u without four hexadecimal digits; write \\\\ for a backslash")
    return chr(int(code[1:], 16))
