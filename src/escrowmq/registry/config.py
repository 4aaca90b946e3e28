"""The name server's settings as text, `key=value` a line, read and changed while it runs."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from escrowmq.base.settings import NameServerSettings
from escrowmq.errors import UsageError

TEXT_SIZE_MAX: Final = 32_768

_NEVER: Final = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})
"""DefaultRequestProcessor.initConfigBlackList: refused whatever the black list says."""

_PAIR: Final = re.compile(
    r"((?:\\.|[^\\=: \t\f])*)(?:[ \t\f]*[=:][ \t\f]*|[ \t\f]+|\Z)(.*)", re.DOTALL
)
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class ConfigTextError(UsageError):
    """The text is not `key=value` a line."""


def parse_lines(text: str) -> dict[str, str]:
    """Java's properties format: comments, continued lines and escapes; the last value wins."""
    if len(text) > TEXT_SIZE_MAX:
        raise ConfigTextError(f"{len(text)} characters of settings; {TEXT_SIZE_MAX} are read")
    found: dict[str, str] = {}
    pending = ""
    for raw in re.split(r"\r\n|\r|\n", text):
        line = pending + raw.lstrip(" \t\f")
        if not pending and line[:1] in ("", "#", "!"):
            continue
        stripped = line.rstrip("\\")
        if (len(line) - len(stripped)) % 2:  # an odd backslash at the end continues the line
            pending = line[:-1]
            continue
        pending = ""
        _take(line, found)
    if pending:
        _take(pending, found)
    return found


def _take(line: str, found: dict[str, str]) -> None:
    pair = _PAIR.match(line)
    assert pair is not None
    found[_unescape(pair[1])] = _unescape(pair[2])


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_plain, text) if "\\" in text else text


def _plain(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] == "u":
        if len(code) == 1:
            raise ConfigTextError("a \\u without four hexadecimal digits")
        return chr(int(code[1:], 16))
    return _CONTROLS.get(code, code)


def format_settings(settings: NameServerSettings) -> str:
    """All settings under the peer's keys, sorted."""
    values = msgspec.to_builtins(settings)
    return "".join(f"{key}={_text(values[key])}\n" for key in sorted(values))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_forbidden(changes: dict[str, str], settings: NameServerSettings) -> bool:
    """Whether a request may not touch one of these keys."""
    return not (_NEVER | set(settings.blacklist.split(";"))).isdisjoint(changes)


def update_settings(settings: NameServerSettings, changes: dict[str, str]) -> None:
    """Change the settings in place; unknown keys are passed over, as at the peer.

    All or nothing: UsageError names the value that cannot be. (The peer, MixAll.properties2Object,
    passes such a value over and reports success.)"""
    fields = {f.encode_name: f for f in msgspec.structs.fields(settings)}
    known = {key: text for key, text in changes.items() if key in fields}
    parsed: dict[str, object] = {}
    for key, text in known.items():
        value: object = text.strip().lower() == "true" if fields[key].type is bool else text.strip()
        try:
            parsed[fields[key].name] = msgspec.convert(value, fields[key].type, strict=False)
        except msgspec.ValidationError as error:
            raise UsageError(f"{key}={text[:64]}: {error}") from error
    for name, value in parsed.items():
        setattr(settings, name, value)
