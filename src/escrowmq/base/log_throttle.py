"""Limits frequent log lines: passes a number of lines of each kind per time span, and counts the
suppressed ones."""

from __future__ import annotations

from typing import Final

import msgspec

OTHERS: Final = "others"
"""The kind of all lines when there are too many kinds to remember."""


class _Kind(msgspec.Struct):
    until_ms: int
    lines_count: int = 0
    left_out_count: int = 0


class LogThrottle:
    """Decides which lines to write. Memory is bounded: beyond `kinds_max` kinds in a span, all
    further ones count as one kind."""

    def __init__(self, *, lines_max: int, span_ms: int, kinds_max: int) -> None:
        assert min(lines_max, span_ms, kinds_max) > 0, (lines_max, span_ms, kinds_max)
        self._lines_max = lines_max
        self._span_ms = span_ms
        self._kinds_max = kinds_max
        self._kinds: dict[str, _Kind] = {}
        """The kinds of lines, in the order in which their spans end."""

    def may_write(self, kind: str, now_ms: int) -> bool:
        """Whether a line of this kind may be written now; if not, it is counted as suppressed."""
        if kind not in self._kinds and len(self._kinds) >= self._kinds_max:
            kind = OTHERS
        known = self._kinds.get(kind)
        if known is None:
            known = self._kinds[kind] = _Kind(now_ms + self._span_ms)
        if known.lines_count < self._lines_max:
            known.lines_count += 1
            return True
        known.left_out_count += 1
        return False

    def take_suppressed(self, now_ms: int) -> list[tuple[str, int]]:
        """Return how many lines of each kind were suppressed in spans that are over, and forget
        these numbers."""
        found = []
        while self._kinds:
            kind, known = next(iter(self._kinds.items()))
            if known.until_ms > now_ms:
                break
            del self._kinds[kind]
            if known.left_out_count:
                found.append((kind, known.left_out_count))
        return found

    def wake_at_ms(self) -> int | None:
        """Return when the first span is over; None without recent lines."""
        return next((known.until_ms for known in self._kinds.values()), None)


class RepeatedErrors:
    """Limits lines about repeated errors. The first line is written immediately; then one per span,
    which says how many were suppressed. Memory and lines are bounded: beyond `kinds_max` kinds in a
    span, all further ones count as one kind."""

    def __init__(self, *, span_ms: int = 60_000, kinds_max: int = 64) -> None:
        self._span_ms = span_ms
        self._kinds_max = kinds_max
        self._kinds: dict[str, _Kind] = {}

    def suppressed_note(self, kind: str, now_ms: int) -> str | None:
        """Return the ending of a line of this kind, with the number of suppressed ones; None if the
        line must not be written."""
        if kind not in self._kinds and not self._has_room(now_ms):
            kind = OTHERS
        known = self._kinds.get(kind)
        if known is not None and now_ms < known.until_ms:
            known.left_out_count += 1
            return None
        self._kinds.pop(kind, None)
        self._kinds[kind] = _Kind(now_ms + self._span_ms)
        count = 0 if known is None else known.left_out_count
        return f" (and {count} times since that was said last)" if count else ""

    def _has_room(self, now_ms: int) -> bool:
        """Whether there is room for one more kind, after the oldest whose spans are over are
        forgotten."""
        while len(self._kinds) >= self._kinds_max:
            oldest, known = next(iter(self._kinds.items()))
            if now_ms < known.until_ms:
                return False
            del self._kinds[oldest]
        return True
