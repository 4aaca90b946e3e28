"""Encodes a master's table files, and its deletions of topics, as frames for the copies of a
group."""

from __future__ import annotations

import msgspec

from escrowmq.base.ports import Disk
from escrowmq.group.frames import GroupFrameKind, TopicDeletion, encode_struct, encode_table
from escrowmq.group.tables import COPIED, QUEUE_ENDS, deletion_key
from escrowmq.store.store import Store


class TableFrames:
    """Encodes the tables and deletions of a master as frames."""

    def __init__(self, disk: Disk, store: Store) -> None:
        self._disk = disk
        self._store = store
        self._deleted = store.deleted
        self._latest: dict[str, bytes] = {}
        """The newest content of each table, by path: the file may not be written yet when the frame
        is sent."""

    def record_change(self, path: str, data: bytes) -> bool:
        """Note the new content of a file. Return whether the file is one that copies get."""
        if path not in COPIED:
            return False
        self._latest[path] = data
        return True

    def deletion_frame(self, topic: str) -> bytes:
        """Return the frame that reports the deletion of a topic."""
        found = self._deleted.of_topic[topic]
        return encode_struct(
            GroupFrameKind.GONE, TopicDeletion(topic, found.log_end, found.stored_ms)
        )

    def all_frames(self, log_end: int) -> list[tuple[str, bytes, int]]:
        """Return each table and deletion: its key, its frame, and the log offset after which to
        send it. A table that does not exist is sent empty, because a copy may have one from its
        time as master. The ends of queues without records are sent if there are any. A deletion
        is sent before the records of a new topic of that name."""
        found = []
        for path in sorted(COPIED):
            data = self._latest.get(path) or self._disk.read(path) or b""
            found.append((path, encode_table(path, data), log_end))
        if ends := self._store.retention.ends_of_emptied_queues():
            frame = encode_table(QUEUE_ENDS, msgspec.json.encode(ends))
            found.append((QUEUE_ENDS, frame, log_end))
        for topic, deletion in self._deleted.of_topic.items():
            found.append((deletion_key(topic), self.deletion_frame(topic), deletion.log_end))
        return found
