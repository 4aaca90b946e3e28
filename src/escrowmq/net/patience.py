"""How long the shell waits for others: for first words, to be reached, to read, for the disk."""

from __future__ import annotations

from typing import Final

HANDSHAKE_S: Final = 10.0
"""A TLS handshake that takes longer is given up."""

DIAL_S: Final = 3.0
"""A peer that is called has this long to let us in."""

IDLE_SCAN_S: Final = 10.0
"""Between looks for connections that have said nothing for their time."""

FLUSH_S: Final = 5.0
"""A peer that is to be closed gets this long to read what was written to it before."""

DRAIN_S: Final = 5.0
"""Replies that wait for the disk get this long when the process is to end."""


def first_words_s(*, idle_ms: int, handshake_s: float | None) -> float:
    """How long a new connection may take to show which protocol it speaks: as long as any may be
    idle, and where it has to begin with a handshake as long as that may take."""
    return idle_ms / 1_000 if handshake_s is None else handshake_s
