"""Parses what operators write for a position in a topic: a word, a time of day, or a date and
time."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, tzinfo
from typing import Final

from escrowmq.client.admin.offsets import ResetPosition
from escrowmq.errors import UsageError

_MS: Final = 1000
_TIME_OF_DAY: Final = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")


def parse_time_today(text: str, now_ms: int, zone: tzinfo) -> datetime | None:
    """Return today's datetime for a time of day such as `14:30`; None if the text is not one.
    Raises UsageError if that time does not exist today, or is still in the future."""
    if not _TIME_OF_DAY.fullmatch(text):
        return None
    today = datetime.fromtimestamp(now_ms / 1000, zone).date()
    try:
        found = datetime.combine(
            today, time.fromisoformat(text if text[2] == ":" else f"0{text}"), zone
        )
    except ValueError as error:
        raise UsageError(f"{text} is not a time of day; write 09:00 or 09:00:30") from error
    if found.timestamp() * 1000 > now_ms:
        raise UsageError(
            f"{text} has not come yet today ({found.isoformat()}); write the day as well, "
            "with its zone: 2026-11-21T09:00+01:00"
        )
    return found


def parse_reset_position(
    text: str, *, now_ms: int, zone: tzinfo, option: str = "to"
) -> ResetPosition:
    """Parse the position at which a group should continue. `zone` is the time zone for a time of
    day. Raises UsageError, which names the option and the expected forms."""
    if text == "first":
        return "first"
    if text == "last":
        return "last"
    if text.isascii() and text.isdecimal():
        try:
            return datetime.fromtimestamp(int(text) / _MS, UTC)
        except (ValueError, OverflowError, OSError) as error:
            raise UsageError(
                f"{option} {text}: this is not a valid time in milliseconds"
            ) from error
    today = parse_time_today(text, now_ms, zone)
    if today is not None:
        return today
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"{option} {text}: first, last, a time such as 09:00 (today) or 2026-11-21T10:00:00Z, "
            "or milliseconds since the epoch is expected"
        ) from error
    if found.tzinfo is None:
        raise UsageError(f"{option} {text}: the time has no zone; add Z or +01:00")
    return found
