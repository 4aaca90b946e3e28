"""What a Python process of an executor does so that its next task begins sooner."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Collection
from zipimport import zipimporter


class _Frozen:
    """Whether this process has put aside what it has loaded."""

    is_done = False


def make_ready() -> None:
    """Each task and each plan calls this first."""
    freeze_once()
    forget_finders(os.environ.get("PYTHONPATH", "").split(os.pathsep))


def freeze_once() -> None:
    """Spark collects garbage after every task of a worker, which walks over all that pandas and
    Arrow have loaded: 10 to 35 ms each time. What is loaded once is put aside here, once for a
    process; never in the user's own."""
    if not _Frozen.is_done:
        _Frozen.is_done = True
        gc.collect()
        gc.freeze()


def forget_finders(archives: Collection[str]) -> None:
    """Spark calls `importlib.invalidate_caches` before every task of a worker, and Python 3.11 then
    reads the directories of archives anew, once for each package that was imported out of them or
    looked for there: 110 ms of a task that takes 2 otherwise. Spark starts its processes with
    pyspark.zip and the jar of its core in PYTHONPATH, and these stay what they are. Whoever imports
    more of them makes a new finder, which takes the directory that was read before."""
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and finder.archive in archives:
            del sys.path_importer_cache[path]
