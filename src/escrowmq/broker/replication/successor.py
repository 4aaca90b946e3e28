"""The member to which a group's master hands over."""

from __future__ import annotations

from typing import Final

SWITCH_MS: Final = 3_000
"""The time after which an unfinished change of the master is cancelled."""


class Successor:
    """The member to which the master hands over, and until when it must have taken over."""

    def __init__(self, member: str, *, until_ms: int) -> None:
        self.member = member
        self.until_ms = until_ms
        self.was_asked = False

    def mark_asked(self) -> None:
        """Note that the member has been asked to take over."""
        self.was_asked = True
