"""Has the pages of a log filled before it is written to there.

The first write to a page through a map has the kernel fill it with zeros, and with it whatever it
reads ahead: 8 MiB on some machines, 20 ms in which the loop serves nobody
(benchmarks/transactions.py --only overload). A thread asks for them as soon as they are allocated.
"""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Final

_STEP_SIZE: Final = 128 * 1024


class PageFiller:
    """One for a disk."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pages")
        self._read = bytearray(_STEP_SIZE)

    def fill(self, path: str, position: int, end: int) -> None:
        """Have the pages of a range filled soon. It is no more than a wish: where the file cannot
        be opened once more, or no thread be had, nothing happens."""
        with contextlib.suppress(RuntimeError):
            self._thread.submit(self._fill, path, position, end)

    def _fill(self, path: str, position: int, end: int) -> None:
        # By reads in order, for which the kernel takes larger pages than when it is advised
        # (posix_fadvise): writing there costs a third then.
        with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:
            for at in range(position, end, _STEP_SIZE):
                os.preadv(file.fileno(), [memoryview(self._read)[: end - at]], at)

    def close(self) -> None:
        """Nobody writes any more."""
        self._thread.shutdown()
