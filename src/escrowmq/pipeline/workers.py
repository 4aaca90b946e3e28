"""What a Python process of an executor does once."""

from __future__ import annotations

import gc


class _Frozen:
    """Whether this process has put aside what it has loaded."""

    is_done = False


def freeze_once() -> None:
    """Spark collects garbage after every task of a worker, which walks over all that pandas and
    Arrow have loaded: 10 to 35 ms each time. What is loaded once is put aside here, once for a
    process; never in the user's own."""
    if not _Frozen.is_done:
        _Frozen.is_done = True
        gc.collect()
        gc.freeze()
