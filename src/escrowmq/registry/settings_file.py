"""The name server's settings as text, one `key=value` a line; they are shown and changed at run
time."""

from __future__ import annotations

from typing import Final

from escrowmq.base.nameserver_settings import NameServerSettings
from escrowmq.base.ports import Disk
from escrowmq.codec.changed_settings import ChangedSettings

_FORBIDDEN_KEYS: Final = frozenset(
    {"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"}
)
"""Keys that requests may never change, whatever the black list contains
(DefaultRequestProcessor.initConfigBlackList)."""

CHANGES_PATH: Final = "namesrvChanges.json"


class SettingsFile:
    """The name server's settings, and the file that keeps changes. Each change is durable before it
    is answered."""

    def __init__(self, settings: NameServerSettings, disk: Disk | None) -> None:
        self._disk = disk
        self._settings = settings
        self._changes = ChangedSettings(settings, fixed=_FORBIDDEN_KEYS)
        if disk is not None:
            self._changes.load(disk.read(CHANGES_PATH), source=CHANGES_PATH)

    def settings_text(self) -> str:
        """Return all settings under RocketMQ's keys, sorted."""
        return "".join(
            f"{key}={text}\n" for key, text in sorted(self._changes.current_texts().items())
        )

    def has_forbidden_key(self, texts: dict[str, str]) -> bool:
        """Whether requests may not change one of these keys."""
        return not (_FORBIDDEN_KEYS | set(self._settings.blacklist.split(";"))).isdisjoint(texts)

    def update(self, texts: dict[str, str]) -> None:
        """Change settings; unknown keys are ignored, as in RocketMQ.

        All or nothing: raises UsageError with the invalid value. (RocketMQ,
        MixAll.properties2Object, skips such a value and reports success.)"""
        known = {key: text for key, text in texts.items() if self._changes.may_change(key)}
        parsed = self._changes.parse_values(known)
        if self._disk is not None and parsed:
            self._disk.replace(CHANGES_PATH, self._changes.encode_with(parsed))
        self._changes.apply_values(parsed)
