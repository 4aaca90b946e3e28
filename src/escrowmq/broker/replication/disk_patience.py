"""How long a group's master waits for its disk before it lets another member take over."""

from __future__ import annotations

import logging
from typing import Final

_log = logging.getLogger(__name__)

PATIENCE_MS: Final = 2_000
"""A disk may have room again, or repair itself, within this time."""

RETRY_MS: Final = 30_000
"""The pause once every member that can take over was asked, and none has taken over."""

_NEVER_MS: Final = (1 << 62) - 1


class DiskPatience:
    """Asked each time that the master is woken."""

    def __init__(self) -> None:
        self._due_ms = _NEVER_MS
        self._said = ""

    def is_over(self, fault: str, now_ms: int) -> bool:
        """Whether another member should be asked to take over. `fault`: why the disk takes no
        messages; empty if it does."""
        if not fault:
            self._due_ms, self._said = _NEVER_MS, ""
        elif self._due_ms == _NEVER_MS:
            self._due_ms = now_ms + PATIENCE_MS
        elif now_ms >= self._due_ms:
            self._due_ms = now_ms + RETRY_MS
            return True
        return False

    def ask_next(self, now_ms: int) -> None:
        """A member has not taken over, and another one can be asked."""
        self._due_ms = min(self._due_ms, now_ms)

    def log(self, text: str) -> None:
        """Log what was tried, unless it was the same the last time."""
        if text != self._said:
            self._said = text
            _log.warning("%s", text)
