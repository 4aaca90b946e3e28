"""Keeps settings that requests have changed across restarts, in a file of their own.

RocketMQ (Configuration.persist) rewrites the file with which it was started: comments are lost,
every default becomes fixed, and if the file is not writable the change is lost. Here the operator's
file stays unchanged. Each change is kept beside it, with the value that it replaced; if that value
has been edited since, the edit is newer, and the change is dropped.

    {"transactionTimeOut": {"insteadOf": "6000", "value": "100", "who": "10.0.0.9:40001",
      "atMs": 1700000000000}}
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from escrowmq.base.setting_facts import fields_of, parse_setting_value
from escrowmq.codec import fastjson
from escrowmq.codec.client_bodies import decode_body
from escrowmq.errors import EscrowMQError, UsageError

_log = logging.getLogger(__name__)


class SettingChange(msgspec.Struct, rename="camel", omit_defaults=True):
    """A changed setting: its value as text, the value it replaced, and who changed it when."""

    instead_of: str
    value: str
    who: str = ""
    at_ms: int = 0


class ChangedSettings:
    """Changes settings of a running broker, and records the changes. Settings are named as in
    RocketMQ."""

    def __init__(self, *tables: msgspec.Struct, fixed: frozenset[str] = frozenset()) -> None:
        self._places: dict[str, tuple[msgspec.Struct, msgspec.structs.FieldInfo]] = {
            field.encode_name: (table, field)
            for table in tables
            for field in fields_of(type(table))
        }
        self._fixed = fixed
        self._started = self.current_texts()
        self._changed: dict[str, SettingChange] = {}

    def current_texts(self) -> dict[str, str]:
        """Return the current value of every setting, in Java's spelling."""
        return {
            name: _java_text(getattr(table, field.name))
            for name, (table, field) in self._places.items()
        }

    def has_setting(self, name: str) -> bool:
        """Whether a setting exists."""
        return name in self._places

    def may_change(self, name: str) -> bool:
        """Whether a setting exists, and requests may change it now or for the next start."""
        return name in self._places and name not in self._fixed

    def load(self, data: bytes | None, *, source: str) -> None:
        """Apply the changes of a saved file. Invalid ones are logged and skipped."""
        if not data:
            return
        try:
            saved = decode_body(dict[str, SettingChange], data)
        except EscrowMQError as error:
            # An unreadable file must not keep a broker from starting; it is kept for inspection.
            _log.error("%s: changed settings cannot be read: %s", source, error)
            return
        for name, change in saved.items():
            if not self.may_change(name) or self._started[name] != change.instead_of:
                _log.warning(
                    "%s: %s=%s was set in place of %s, which has been edited since; not used",
                    source, name, change.value, change.instead_of,
                )  # fmt: skip
                continue
            try:
                parsed = self.parse_values({name: change.value})
                self.apply_values(parsed, who=change.who, at_ms=change.at_ms)
            except UsageError as error:
                _log.warning("%s: %s; not used", source, error)
                continue
            _log.info("%s: %s=%s", source, name, change.value)

    def parse_values(self, texts: dict[str, str]) -> dict[str, Any]:
        """Parse new values of settings that may be changed. Raises UsageError at the first invalid
        one."""
        parsed = {}
        for name, text in texts.items():
            try:
                parsed[name] = parse_setting_value(text.strip(), self._places[name][1].type)
            except msgspec.ValidationError as error:
                raise UsageError(f"{name}={text[:64]}: {error}") from error
        return parsed

    def encode_with(self, parsed: dict[str, Any], *, who: str = "", at_ms: int = 0) -> bytes:
        """Return the content of the file to save before these values are applied."""
        return fastjson.encode(dict(sorted(self._merged_changes(parsed, who, at_ms).items())))

    def changes_by_name(self) -> dict[str, SettingChange]:
        """Return the changed settings by name."""
        return dict(self._changed)

    def _merged_changes(
        self, parsed: dict[str, Any], who: str, at_ms: int
    ) -> dict[str, SettingChange]:
        changed = dict(self._changed)
        for name, value in parsed.items():
            known = changed.get(name)
            if known is not None and known.value == _java_text(value):
                continue
            changed[name] = SettingChange(self._started[name], _java_text(value), who, at_ms)
            if changed[name].value == changed[name].instead_of:
                del changed[name]
        return changed

    def apply_values(self, parsed: dict[str, Any], *, who: str = "", at_ms: int = 0) -> None:
        """Set new values, and record the changes."""
        self._changed = self._merged_changes(parsed, who, at_ms)
        for name, value in parsed.items():
            table, field = self._places[name]
            setattr(table, field.name, value)


def _java_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
