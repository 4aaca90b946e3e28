"""The files beside the log, and the deletions of topics, as frames for the copies of a group."""

from __future__ import annotations

from escrowmq.base.ports import Disk
from escrowmq.group.frames import Gone, Kind, encode_struct, encode_table
from escrowmq.group.tables import COPIED, gone_key
from escrowmq.store.deletions import Deleted


class TableFrames:
    """Encodes the tables of a master."""

    def __init__(self, disk: Disk, deleted: Deleted) -> None:
        self._disk = disk
        self._deleted = deleted
        self._latest: dict[str, bytes] = {}
        """A file may be written later than it is sent."""

    def changed(self, path: str, data: bytes) -> bool:
        """Note that a file has changed. Returns whether copies get it."""
        if path not in COPIED:
            return False
        self._latest[path] = data
        return True

    def deletion(self, topic: str) -> bytes:
        """The frame that says when a topic was deleted."""
        found = self._deleted.of_topic[topic]
        return encode_struct(Kind.GONE, Gone(topic, found.log_end, found.stored_ms))

    def all(self, log_end: int) -> list[tuple[str, bytes, int]]:
        """Every table as a frame, by its path, empty if there is none: a copy may have one from the
        time when it was the master. And the log offset behind which it is sent: that of a deletion
        is before what the log has of a new topic of that name."""
        found = []
        for path in sorted(COPIED):
            data = self._latest.get(path) or self._disk.read(path) or b""
            found.append((path, encode_table(path, data), log_end))
        for topic, deletion in self._deleted.of_topic.items():
            found.append((gone_key(topic), self.deletion(topic), deletion.log_end))
        return found
