"""Notices which tables a master writes, and marks in the log that copies must have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from escrowmq.base.message import Message
from escrowmq.base.ports import Disk, File, Usage
from escrowmq.broker.input_time import InputTime
from escrowmq.group.tables import COPIED
from escrowmq.store.store import Store

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
        """As the disk does."""
        return self._disk.open(path, size=size, is_sequential=is_sequential)

    def names(self, folder: str) -> list[str]:
        """As the disk does."""
        return self._disk.names(folder)

    def size(self, path: str) -> int | None:
        """As the disk does."""
        return self._disk.size(path)

    def modified_ms(self, path: str) -> int:
        """As the disk does."""
        return self._disk.modified_ms(path)

    def read(self, path: str) -> bytes | None:
        """As the disk does."""
        return self._disk.read(path)

    def remove(self, path: str) -> None:
        """As the disk does."""
        self._disk.remove(path)

    def usage(self, path: str) -> Usage:
        """As the disk does."""
        return self._disk.usage(path)

    def lock(self, path: str) -> None:
        """As the disk does."""
        self._disk.lock(path)


class TableMarks:
    """An answer to a request that has changed tables waits like that to a message: for a record in
    the log. Copies get the tables before it."""

    def __init__(self, store: Store, moment: InputTime) -> None:
        self._store = store
        self._moment = moment
        self.is_due = False
        self._end = 0

    def put(self) -> int:
        """Append a mark. Returns the log's end after it."""
        self.changed()
        return self.end()

    def changed(self) -> None:
        """Note that this input has changed a table."""
        self.is_due, self._end = True, 0

    def end(self) -> int:
        """The log's end after the mark for this input's changes; 0 if it changed no table."""
        if self.is_due and not self._end:
            mark = Message(topic=MARK_TOPIC, body=b"", sys_flag=_NO_QUEUE)
            self._end = self._store.put(mark, self._moment.now_ms).log_end
        return self._end if self.is_due else 0

    def input_ended(self) -> None:
        """The input is over: later answers belong to other requests."""
        self.is_due, self._end = False, 0
