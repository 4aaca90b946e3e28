"""Notices which tables a master writes, and marks in the log that copies must have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from escrowmq.base.message import Message
from escrowmq.base.ports import Disk, File, Usage
from escrowmq.broker.input_time import InputTime
from escrowmq.group.tables import COPIED
from escrowmq.store.store import Put, Store

MARK_TOPIC: Final = "ESCROW_GROUP_MARK"
_NO_QUEUE: Final = 4
"""Records with this flag belong to no queue: consumers never see them."""


class WatchedDisk:
    """A disk that reports which tables are written. (base.ports.Disk)"""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._on_table: Callable[[str, bytes], None] | None = None

    def watch(self, on_table: Callable[[str, bytes], None]) -> None:
        """Report each table that copies get, with what is written."""
        self._on_table = on_table

    def replace(self, path: str, data: bytes, *, is_private: bool = False) -> None:
        """Replace a small file, and report it if copies get it."""
        self._disk.replace(path, data, is_private=is_private)
        if self._on_table is not None and path in COPIED:
            self._on_table(path, data)

    def open(self, path: str, *, size: int, is_sequential: bool = False) -> File:
        """Open a file of the disk."""
        return self._disk.open(path, size=size, is_sequential=is_sequential)

    def names(self, folder: str) -> list[str]:
        """The names in a folder of the disk."""
        return self._disk.names(folder)

    def size(self, path: str) -> int | None:
        """The size of a file of the disk."""
        return self._disk.size(path)

    def modified_ms(self, path: str) -> int:
        """The modification time of a file of the disk."""
        return self._disk.modified_ms(path)

    def read(self, path: str) -> bytes | None:
        """Read a small file of the disk."""
        return self._disk.read(path)

    def remove(self, path: str) -> None:
        """Remove a file of the disk."""
        self._disk.remove(path)

    def usage(self, path: str) -> Usage:
        """The usage of the disk."""
        return self._disk.usage(path)

    def lock(self, path: str) -> None:
        """Lock a file of the disk."""
        self._disk.lock(path)


class TableMarks:
    """Marks in the log for changed tables: the answer to a request that changed tables waits for
    the mark, as the answer to a message waits for its record. Copies get the tables before it."""

    def __init__(self, store: Store, moment: InputTime) -> None:
        self._store = store
        self._moment = moment
        self.is_due = False
        self.changes_end = 0
        self._mark: Put | None = None
        self._denials_mark: Put | None = None

    def of_denials(self) -> Put:
        """The mark for what this input is denied. It takes no space that is kept for ENDs: anybody
        may ask for what does not exist, as often as they like."""
        if self._denials_mark is None:
            is_short = self._store.write_gate.is_short_of_disk
            self._denials_mark = self._put(is_settling=not is_short)
        return self._denials_mark

    def changed(self) -> None:
        """Note that this input has changed a table."""
        self.is_due, self._mark = True, None

    def of_changes(self) -> Put | None:
        """The mark for this input's changes; None if it changed no table. A table is changed while
        messages are refused as well, so its mark is put like an END."""
        if self.is_due and self._mark is None:
            self._mark = self._put(is_settling=True)
            self.changes_end = max(self.changes_end, self._mark.log_end)
        return self._mark

    def input_ended(self) -> None:
        """The input is over: later answers belong to other requests."""
        self.is_due, self._mark, self._denials_mark = False, None, None

    def _put(self, *, is_settling: bool) -> Put:
        mark = Message(topic=MARK_TOPIC, body=b"", sys_flag=_NO_QUEUE)
        return self._store.put(mark, self._moment.now_ms, is_settling=is_settling)
