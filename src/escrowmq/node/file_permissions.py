"""Warns, at the start, of files with secrets or messages that other users of the machine can
read."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from escrowmq.base.fixed_limits import ACL_FILES_MAX

_log = logging.getLogger(__name__)

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_READ: Final = stat.S_IRGRP | stat.S_IROTH
_TOLD_MAX: Final = 10


def warn_of_wide_permissions(*, data: str, accounts: str, settings: str | None) -> list[str]:
    """Log a warning for files that users other than the owner can read; return their paths. The
    modes are not changed, because the operator may intend them for a group."""
    folder = Path(accounts)
    config = Path(data) / "config"
    every = [config / "auth.json", config / "consolePassword", folder / "plain_acl.yml"]
    every += _yaml_files(folder / "acl")
    if settings:
        every.append(Path(settings))
    wide = [str(path) for path in every if _permission_bits(path) & _READ]
    for path in wide[:_TOLD_MAX]:
        _log.warning(
            "%s contains secrets, and other users of this machine can read it: chmod 600 it", path
        )
    if (
        _permission_bits(Path(data)) & _OTHERS
        and _permission_bits(Path(data) / "commitlog") & _OTHERS
    ):
        wide.append(data)
        _log.warning(
            "%s contains messages, and other users of this machine can read it: chmod 700 it", data
        )
    return wide


def _yaml_files(folder: Path) -> Iterator[Path]:
    found: Iterable[Path] = folder.rglob("*.y*ml")
    for count, path in enumerate(found):
        if count == ACL_FILES_MAX:
            return
        yield path


def _permission_bits(path: Path) -> int:
    """Return a file's permission bits; 0 if there is no file."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return 0
