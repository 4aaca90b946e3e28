"""Reads files that only make a start faster."""

from __future__ import annotations

import logging

from escrowmq.base.ports import Disk
from escrowmq.errors import StorageError

_log = logging.getLogger(__name__)


def read_optional_file(disk: Disk, path: str) -> bytes | None:
    """Return a small file's content; None if there is none, or, after logging it, if the disk
    cannot read it."""
    try:
        return disk.read(path)
    except (OSError, StorageError) as error:
        _log.error("%s cannot be read, and this start takes longer: %s", path, error)
        return None
