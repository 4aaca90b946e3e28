"""How fast the log is sent to a copy that is not in sync. No sender waits for that copy, and at
full speed it would take disks and cores from senders."""

from __future__ import annotations

from typing import Final

_BURST_MS: Final = 20
"""What was not sent for so long may be sent at once."""


class CatchUpRate:
    """The bytes that one connection may be sent now. Rates are bytes a second."""

    def __init__(self) -> None:
        self._sent_until_ms = 0.0
        """What the rate allowed before this time is sent, or has lapsed."""

    def room(self, rate: int, now_ms: int) -> int:
        """How many bytes may be sent now."""
        self._sent_until_ms = max(self._sent_until_ms, now_ms - _BURST_MS)
        return max(0, int((now_ms - self._sent_until_ms) * rate / 1_000))

    def sent(self, size: int, rate: int) -> None:
        """Note how many bytes were sent."""
        self._sent_until_ms += size * 1_000 / rate

    @property
    def due_ms(self) -> int:
        """When some more may be sent."""
        return int(self._sent_until_ms) + _BURST_MS // 2
