"""Timeouts of the shell: for first bytes, dialling, unread bytes, and the disk."""

from __future__ import annotations

from typing import Final

HANDSHAKE_S: Final = 10.0
"""A TLS handshake that takes longer is aborted."""

MEMBER_HANDSHAKE_S: Final = 3.0
"""The same between members of a group, who wait for nobody longer than that."""

DIAL_S: Final = 3.0
"""Timeout for a dialled peer to accept."""

IDLE_SCAN_S: Final = 10.0
"""Interval of searches for idle connections."""

FLUSH_S: Final = 5.0
"""How long a peer that is being closed has to read what was written to it."""

DRAIN_S: Final = 5.0
"""How long the process's end waits for replies that wait for the disk."""


def first_words_s(*, idle_ms: int, handshake_s: float | None) -> float:
    """The time in which a new connection must show its protocol: the idle timeout, or the timeout
    of a handshake where it must begin with one."""
    return idle_ms / 1_000 if handshake_s is None else handshake_s
