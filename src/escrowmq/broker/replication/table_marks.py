"""Notices which tables a master writes, and appends marks to the log: copies must have the tables
before the marks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from escrowmq.base.message import Message
from escrowmq.base.ports import Disk, DiskUsage, File
from escrowmq.broker.input_time import InputTime
from escrowmq.group.tables import COPIED
from escrowmq.store.store import PutResult, Store

MARK_TOPIC: Final = "ESCROW_GROUP_MARK"
_NO_QUEUE: Final = 4
"""The flag of records that belong to no queue, so that consumers never see them."""


class WatchedDisk:
    """A disk that reports written tables (base.ports.Disk)."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._on_table: Callable[[str, bytes], None] | None = None

    def watch(self, on_table: Callable[[str, bytes], None]) -> None:
        """Set the function that is called with each written table that copies get."""
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

    def usage(self, path: str) -> DiskUsage:
        """Return the usage of the disk."""
        return self._disk.usage(path)

    def lock(self, path: str) -> None:
        """Lock a file of the disk."""
        self._disk.lock(path)


class TableMarks:
    """Appends marks to the log after changed tables. The answer to a request that changed tables
    waits until the mark is confirmed. Copies get the tables before the mark."""

    def __init__(self, store: Store, moment: InputTime) -> None:
        self._store = store
        self._moment = moment
        self.is_due = False
        self._mark: PutResult | None = None
        self._denials_mark: PutResult | None = None

    def denial_mark(self) -> PutResult:
        """Append the mark that answers about missing things wait for, once per input. It does not
        use the space that is reserved for ENDs, because clients may ask for missing things as often
        as they like."""
        if self._denials_mark is None:
            is_short = self._store.write_gate.is_short_of_disk
            self._denials_mark = self._append_mark(is_settling=not is_short)
        return self._denials_mark

    def note_table_change(self) -> None:
        """Note that this input has changed a table, so that its answer needs a mark."""
        self.is_due, self._mark = True, None

    def change_mark(self, *, is_needed: bool = False) -> PutResult | None:
        """Append a mark for this input's changes; None if it changed no table, unless a mark is
        needed in any case. The mark may use the space that is reserved for ENDs, because tables may
        change while messages are refused."""
        if (self.is_due or is_needed) and self._mark is None:
            self._mark = self._append_mark(is_settling=True)
        return self._mark

    def input_ended(self) -> None:
        """Forget the marks of the input that has ended."""
        self.is_due, self._mark, self._denials_mark = False, None, None

    def _append_mark(self, *, is_settling: bool) -> PutResult:
        mark = Message(topic=MARK_TOPIC, body=b"", sys_flag=_NO_QUEUE)
        return self._store.put(mark, self._moment.now_ms, is_settling=is_settling)
