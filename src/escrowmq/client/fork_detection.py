"""Whether this process is a fork of the one where a client was made.

Asking the system for the process id is a system call, which each send would make: 1.5 us of 20
here. The count of forks is a look at a number.
"""

from __future__ import annotations

import os


class Forks:
    """How often the process, or one that it comes from, was forked since this was imported."""

    count = 0


def _count_one() -> None:
    Forks.count += 1


os.register_at_fork(after_in_child=_count_one)
