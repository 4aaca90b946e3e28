"""Timeouts of the shell: for first bytes, dialling, unread bytes, and the disk."""

from __future__ import annotations

from typing import Final

HANDSHAKE_S: Final = 10.0
"""A TLS handshake that takes longer is aborted."""

MEMBER_HANDSHAKE_S: Final = 3.0
"""The timeout of a TLS handshake between members of a group. It is short, because members do not
wait longer for one another."""

DIAL_S: Final = 3.0
"""Timeout of opening a connection."""

IDLE_SCAN_S: Final = 10.0
"""Interval of searches for idle connections."""

FLUSH_S: Final = 5.0
"""A peer whose connection is being closed has this long to read what was written to it."""

DRAIN_S: Final = 5.0
"""The end of the process waits this long for replies that wait for the disk."""


def first_bytes_timeout_s(*, idle_ms: int, handshake_s: float | None) -> float:
    """Return how long a new connection may take until it shows its protocol: the idle timeout, or
    that of a handshake if it must begin with one."""
    return idle_ms / 1_000 if handshake_s is None else handshake_s
