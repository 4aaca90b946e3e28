"""RocketMQ's settings for unsupported features, and impossible values.

A setting whose neglect would endanger messages is refused, with advice. An impossible value that
RocketMQ accepts is accepted in the same way, and logged in one line."""

from __future__ import annotations

import logging
import re
from typing import Final

from escrowmq.errors import UsageError
from escrowmq.store.retention import invalid_hours

_log = logging.getLogger(__name__)

_BOUNDS: Final = {
    # DefaultMessageStore.isSpaceToDelete uses 75 for a value out of bounds; the other two are set
    # to the nearest bound (getDiskSpaceWarningLevelRatio, getDiskSpaceCleanForciblyRatio).
    "diskMaxUsedSpaceRatio": (10, 95, 75, 75),
    "diskSpaceWarningLevelRatio": (35, 99, 35, 90),
    "diskSpaceCleanForciblyRatio": (30, 99, 30, 85),
}
"""For each setting: its lowest and highest valid value, and the values that replace a lower and a
higher one."""

_WITHOUT_EFFECT: Final = {
    "storePathConsumeQueue": "consumequeue",
    "storePathIndex": "index",
    "storeCheckpoint": "checkpoint",
    "abortFile": "abort",
}
"""Keys in many broker.conf files that no RocketMQ version reads; for each, the folder or file that
it seems to move."""


KEYS_CHECKED_HERE: Final = frozenset(
    {"storeType", "enableDLegerCommitLog", "enableControllerMode", "readOnlyCommitLogStorePaths"}
)
"""Keys that no settings class has, because only this module examines them."""


_WHOLE_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")


def is_whole_number(text: str) -> bool:
    """Whether a setting's text is a whole number, which `int` can convert."""
    return _WHOLE_NUMBER.fullmatch(text) is not None


def refuse_unsupported(found: dict[str, str], *, source: str) -> None:
    """Raise UsageError for a setting that asks for a kind of store or broker that is not
    supported."""
    kind = found.get("storeType", "default")
    if kind != "default":
        raise UsageError(
            f"{source}: storeType={kind}: only storeType=default, a store of files, is "
            "supported; name another data folder for it"
        )
    for key, what in (
        ("enableDLegerCommitLog", "a log that DLedger copies"),
        ("enableControllerMode", "brokers that a controller makes masters and slaves"),
    ):
        if _is_true(found.get(key)):
            raise UsageError(f"{source}: {key}=true: {what} are not supported; leave it out")
    if found.get("readOnlyCommitLogStorePaths"):
        raise UsageError(
            f"{source}: readOnlyCommitLogStorePaths: a log in several folders is not "
            "supported; bring its files together in storePathCommitLog"
        )
    if "," in found.get("storePathCommitLog", ""):
        raise UsageError(
            f"{source}: storePathCommitLog={found['storePathCommitLog']}: a log in several "
            "folders is not supported; bring its files together in one"
        )
    _check_hours(found.get("deleteWhen", ""), source=source)


def with_values_of_rocketmq(found: dict[str, str], *, source: str) -> dict[str, str]:
    """Return the settings, with impossible values replaced as RocketMQ replaces them."""
    changed = dict(found)
    for key, (low, high, below, above) in _BOUNDS.items():
        text = found.get(key, "")
        if is_whole_number(text) and not low <= int(text) <= high:
            changed[key] = str(below if int(text) < low else above)
            _log.warning(
                "%s: %s=%s is not from %d to %d: it counts as %s, as with RocketMQ",
                source, key, text, low, high, changed[key],
            )  # fmt: skip
    broker_id = found.get("brokerId", "0")
    is_slave = found.get("brokerRole") == "SLAVE"
    if is_whole_number(broker_id) and int(broker_id) > 0 and not is_slave:
        changed["brokerId"] = "0"
        _log.warning("%s: brokerId=%s: a master's is 0, as with RocketMQ", source, broker_id)
    name = found.get("brokerName", "")
    if any(letter.isspace() for letter in name):
        _log.warning("%s: brokerName=%s: many tools truncate names at blanks", source, name)
    for key, what in _WITHOUT_EFFECT.items():
        if changed.pop(key, None) is not None:
            _log.warning(
                "%s: %s has no effect, as with RocketMQ: %s is in storePathRootDir",
                source, key, what,
            )  # fmt: skip
    return changed


def _check_hours(text: str, *, source: str) -> None:
    """Log an invalid hour, but accept it, as RocketMQ does from existing files. A request that sets
    one is refused (store/retention.check_hours)."""
    never = invalid_hours(text)
    if not all(part.isdigit() for part in never):
        raise UsageError(
            f"{source}: deleteWhen={text}: hours of two digits, separated by `;`, are "
            "expected: 04;16"
        )
    if never:
        _log.warning(
            "%s: deleteWhen=%s: there is no hour %s; nothing is deleted by age at that hour",
            source, text, ", ".join(never),
        )  # fmt: skip


def _is_true(text: str | None) -> bool:
    return (text or "").lower() == "true"
