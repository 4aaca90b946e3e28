"""How long a group's master waits for its disk before it lets another member take over."""

from __future__ import annotations

import logging
from typing import Final

_log = logging.getLogger(__name__)

PATIENCE_MS: Final = 2_000
"""How long a full or faulty disk may recover before another member is asked to take over."""

RETRY_MS: Final = 30_000
"""The pause after which members are asked again, when all have been asked and none has taken
over."""

_NEVER_MS: Final = (1 << 62) - 1


class DiskFaultTimer:
    """Decides when a master with a faulty disk asks another member to take over."""

    def __init__(self) -> None:
        self._due_ms = _NEVER_MS
        self._said = ""

    def must_hand_over(self, fault: str, now_ms: int) -> bool:
        """Whether to ask another member to take over now. `fault`: why the disk takes no messages;
        empty if it does."""
        if not fault:
            self._due_ms, self._said = _NEVER_MS, ""
        elif self._due_ms == _NEVER_MS:
            self._due_ms = now_ms + PATIENCE_MS
        elif now_ms >= self._due_ms:
            self._due_ms = now_ms + RETRY_MS
            return True
        return False

    def allow_next_request(self, now_ms: int) -> None:
        """Let another member be asked immediately, because the asked one has not taken over."""
        self._due_ms = min(self._due_ms, now_ms)

    def log_once(self, text: str) -> None:
        """Log what was tried, unless the last line was the same."""
        if text != self._said:
            self._said = text
            _log.warning("%s", text)
