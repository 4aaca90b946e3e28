"""Fills the pages of a log before they are written to.

At the first write to a page through a map, the kernel fills it and all read-ahead with zeros: 8 MiB
on some machines, 20 ms in which the loop serves no requests (benchmarks/transactions.py --only
overload). A thread does this as soon as pages are allocated."""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Final

_STEP_SIZE: Final = 128 * 1024


class PageFiller:
    """The page filler of one disk."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pages")
        self._read = bytearray(_STEP_SIZE)

    def fill_soon(self, path: str, position: int, end: int) -> None:
        """Fill the pages of a range soon, on a thread. This is only a hint: if the file cannot be
        opened, or no thread started, nothing happens."""
        with contextlib.suppress(RuntimeError):
            self._thread.submit(self._fill_pages, path, position, end)

    def _fill_pages(self, path: str, position: int, end: int) -> None:
        # By sequential reads: for these the kernel uses larger pages than with posix_fadvise, and a
        # later write costs a third as much.
        with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:
            for at in range(position, end, _STEP_SIZE):
                os.preadv(file.fileno(), [memoryview(self._read)[: end - at]], at)

    def close(self) -> None:
        """Stop filling pages: there are no more writes."""
        self._thread.shutdown()
