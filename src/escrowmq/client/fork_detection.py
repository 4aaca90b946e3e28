"""Detects that this process is a fork of the one where a client was made.

Asking for the process id at each send would be a system call: 1.5 us of 20 here. Reading a counter
of forks is cheaper."""

from __future__ import annotations

import os


class ForkCounter:
    """Counts how often this process, or an ancestor, was forked since this module was imported."""

    count = 0


def _count_fork() -> None:
    ForkCounter.count += 1


os.register_at_fork(after_in_child=_count_fork)
