"""Shows the progress of a long command: one line on the terminal that is overwritten."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from escrowmq.base.human_format import format_byte_count
from escrowmq.net.clock import steady_s

_EVERY_S: Final = 0.5
_CLEAR: Final = "\r\x1b[K"


class Progress:
    """A line with the number of bytes done. Nothing is shown in the first half second, or if
    standard error is not a terminal."""

    def __init__(
        self,
        what: str,
        *,
        is_terminal: bool | None = None,
        now_s: Callable[[], float] = steady_s,
    ) -> None:
        self._what = what
        self._is_terminal = sys.stderr.isatty() if is_terminal is None else is_terminal
        self._now_s = now_s
        self._next_s = now_s() + _EVERY_S
        self._is_shown = False

    def __call__(self, done: int, total: int) -> None:
        """Show how many of how many bytes are done."""
        now_s = self._now_s()
        if not self._is_terminal or now_s < self._next_s:
            return
        self._next_s = now_s + _EVERY_S
        self._is_shown = True
        share = min(100, 100 * done // total) if total > 0 else 0
        text = f"{self._what}: {share} %, {format_byte_count(done)} of {format_byte_count(total)}"
        sys.stderr.write(_CLEAR + text)
        sys.stderr.flush()

    def erase(self) -> None:
        """Erase the line."""
        if self._is_shown:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
