"""The member that a group's master hands over to."""

from __future__ import annotations

from typing import Final

SWITCH_MS: Final = 3_000
"""A planned change of the master that takes longer is cancelled."""


class Successor:
    """The member that shall be the next master."""

    def __init__(self, member: str, *, until_ms: int) -> None:
        self.member = member
        self.until_ms = until_ms
        self.was_asked = False

    def note_asked(self) -> None:
        """It has been asked to take over."""
        self.was_asked = True
