"""Removes the store of a group member from its data folder.

An operator may have files in the same folder: accounts, certificates, a configuration. A file
system may have its own (`lost+found`). So what is removed is listed, and not what stays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from escrowmq.base.ports import FORMER
from escrowmq.delivery.timer_file import TIMER_LOG, WHEEL
from escrowmq.group.tables import COPIED
from escrowmq.store import checkpoint, consume_queue, index, queue_journal, queue_snapshot
from escrowmq.store.recovery import ABORT
from escrowmq.txn import check_counts, epoch_decision, pending_snapshot

_FILES: Final = (
    ABORT, checkpoint.PATH, queue_snapshot.PATH, queue_journal.PATH, WHEEL,
    pending_snapshot.PATH, epoch_decision.PATH, *sorted(COPIED),
)  # fmt: skip
_ENDINGS: Final = ("", FORMER, ".former", ".tmp")
"""The endings of a file's own name, its previous content's, and that of a replacement that a crash
left behind."""

_NUMBERED: Final = (index.FOLDER, TIMER_LOG, check_counts.FOLDER)
"""Folders of files that are named by numbers, beside those of log and queues."""


def remove_store(data: Path, log: Path) -> None:
    """Remove log, queues, index, tables and everything derived from them. Raises OSError if one of
    them cannot be removed."""
    _remove_numbered(log)
    for folder in _NUMBERED:
        _remove_numbered(data / folder)
    for topic in _subfolders(data / consume_queue.FOLDER):
        for queue in _subfolders(topic):
            if _is_number(queue.name):
                _remove_numbered(queue)
                _remove_if_empty(queue)
        _remove_if_empty(topic)
    for name in _FILES:
        for ending in _ENDINGS:
            (data / f"{name}{ending}").unlink(missing_ok=True)


def _remove_numbered(folder: Path) -> None:
    for file in _folder_entries(folder):
        if _is_number(file.name) and not file.is_dir():
            file.unlink()


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):  # something of another's is in it, or it is a link
        folder.rmdir()


def _subfolders(folder: Path) -> Iterator[Path]:
    return (entry for entry in _folder_entries(folder) if entry.is_dir())


def _folder_entries(folder: Path) -> list[Path]:
    if not folder.is_dir() or folder.name == "lost+found":  # which only root may read
        return []
    return sorted(folder.iterdir())


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()
