"""Limits the rate at which the log is sent to a copy that is not in sync. No producer waits for
that copy, and at full speed it would take disk and CPU time from producers."""

from __future__ import annotations

from typing import Final

_BURST_MS: Final = 20
"""One burst may have the bytes of this many milliseconds, if nothing was sent before."""


class CatchUpRate:
    """Limits how many bytes are sent on one connection. Rates are in bytes a second."""

    def __init__(self) -> None:
        self._sent_until_ms = 0.0
        """The time up to which the allowed bytes are used up."""

    def allowed_bytes(self, rate: int, now_ms: int) -> int:
        """Return how many bytes may be sent now."""
        self._sent_until_ms = max(self._sent_until_ms, now_ms - _BURST_MS)
        return max(0, int((now_ms - self._sent_until_ms) * rate / 1_000))

    def count_sent(self, size: int, rate: int) -> None:
        """Count bytes that were sent."""
        self._sent_until_ms += size * 1_000 / rate

    @property
    def next_allowed_ms(self) -> int:
        """Return when more bytes may be sent."""
        return int(self._sent_until_ms) + _BURST_MS // 2
