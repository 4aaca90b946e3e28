"""All consume queues of a store, by topic and queue id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from escrowmq.base.message import Message
from escrowmq.base.ports import Disk
from escrowmq.codec.log_walker import PointsToRecord
from escrowmq.errors import StorageError
from escrowmq.store.consume_queue import FOLDER, ConsumeQueue
from escrowmq.store.queue_journal import QueueJournal


class Queues:
    """The consume queues of a store, created when first needed."""

    def __init__(self, disk: Disk, *, segment_size: int) -> None:
        self._disk = disk
        self._segment_size = segment_size
        self.journal = QueueJournal(disk)
        self.by_key: dict[tuple[str, int], ConsumeQueue] = {}
        self._expected: set[tuple[str, int]] = set()
        self.topics_of_rocketmq: frozenset[str] | None = None

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self.by_key.values())

    def load(self) -> list[str]:
        """Load the queues that are on disk."""
        notes = []
        for topic in self._disk.names(FOLDER):
            for name in self._disk.names(f"{FOLDER}/{topic}"):
                if name.isdigit():
                    notes += self.get_or_create(topic, int(name)).load()
        return notes

    def expect_queues(self, places: set[tuple[str, int]]) -> None:
        """Set which queues (topic, queue id) must exist, because consumer groups have offsets in
        them."""
        self._expected = places

    def note_rocketmq(self, topics: frozenset[str]) -> None:
        """Note that RocketMQ has served the folder since this broker, and which topics it knew. It
        may have deleted topics: what a former process noted of their queues is void."""
        self.topics_of_rocketmq = topics

    def missing_queues(self) -> list[str]:
        """Return the expected queues that have no file."""
        places = sorted(self._expected)
        return [
            f"{topic}/{queue_id}"
            for topic, queue_id in places
            if (found := self.by_key.get((topic, queue_id))) is None or not found.files.starts
        ]

    def get_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return a queue; create it if there is none. It has no file before its first unit."""
        found = self.by_key.get((topic, queue_id))
        if found is None:
            found = ConsumeQueue(
                self._disk,
                topic,
                queue_id,
                segment_size=self._segment_size,
                journal=self.journal,
            )
            self.by_key[topic, queue_id] = found
        return found

    def reserve_units(self, messages: Iterable[Message]) -> bool:
        """Try to reserve space for the units of several messages. Return whether there is
        enough."""
        counts = Counter((message.topic, message.queue_id) for message in messages)
        try:
            for place, count in counts.items():
                self.get_or_create(*place).reserve_units(count)
        except (StorageError, OSError):
            return False
        return True

    def unit_check(self) -> PointsToRecord | None:
        """Return a function that tells whether a unit leads to a record; None when no queue has a
        unit."""
        return self.leads_to if any(queue.end > queue.min for queue in self) else None

    def leads_to(self, place: tuple[str, int], queue_offset: int, record: tuple[int, int]) -> bool:
        """Whether the unit at an offset of a queue (topic, queue id) leads to a record (log offset,
        size). Clients may forge bytes in the log that look like a record, but not a unit."""
        queue = self.by_key.get(place)
        if queue is None or not queue.min <= queue_offset < queue.end:
            return False
        unit = queue.unit(queue_offset)
        return unit is not None and unit[:2] == record

    def queues_of(self, topic: str) -> list[ConsumeQueue]:
        """Return the queues of a topic, by queue id."""
        found = [queue for queue in self if queue.topic == topic]
        return sorted(found, key=lambda queue: queue.queue_id)

    def topics(self) -> list[str]:
        """Return the topics that have a queue."""
        return sorted({queue.topic for queue in self})

    def remove_all(self) -> list[ConsumeQueue]:
        """Remove all queues and their files; return the queues."""
        removed = list(self)
        for queue in removed:
            queue.remove()
            del self.by_key[queue.topic, queue.queue_id]
        return removed

    def ends_without_records(self) -> dict[str, dict[int, int]]:
        """Return the ends of the queues whose records all are deleted, by topic and queue id. The
        log does not tell where they continue. Queues must be trimmed; no file is read, because
        there may be many."""
        found: dict[str, dict[int, int]] = {}
        for queue in self:
            if 0 < queue.min == queue.end == queue.next_offset:
                found.setdefault(queue.topic, {})[queue.queue_id] = queue.end
        return found

    def close(self) -> None:
        """Close every file."""
        for queue in self:
            queue.close()
        self.journal.close()
