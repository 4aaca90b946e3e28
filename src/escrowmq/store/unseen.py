"""Records that are in the log, and not in their queues yet."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate, count, repeat
from operator import attrgetter
from typing import NamedTuple

from escrowmq.base.message import Message
from escrowmq.codec.record import decode_record
from escrowmq.codec.store_entries import ENTRY
from escrowmq.store.consume_queue import ConsumeQueue
from escrowmq.store.index_chains import KEY
from escrowmq.store.results import Arrival


class UnseenRecord(NamedTuple):
    """A record that waits to be added to its queue and the index. Without a queue it gets no
    unit."""

    queue: ConsumeQueue | None
    message: Message
    queue_offset: int
    log_offset: int
    record_size: int
    stored_ms: int

    @property
    def needed_visible_end(self) -> int:
        """This record becomes visible once the log is visible up to this offset."""
        return self.log_offset + self.record_size

    def covers(self, log_offset: int) -> bool:
        """Whether this is the record that starts at a log offset."""
        return log_offset == self.log_offset

    def single_dispatches(self) -> list[UnseenRecord]:
        """Return this record only."""
        return [self]


class UnseenBatch(NamedTuple):
    """Consecutive records of one queue that become visible one by one. Fields that `UnseenRecord`
    has too are those of the first record."""

    queue: ConsumeQueue | None
    message: Message
    queue_offset: int
    log_offset: int
    stored_ms: int
    messages: Sequence[Message]
    sizes: Sequence[int]

    @property
    def needed_visible_end(self) -> int:
        """The first record becomes visible once the log is visible up to this offset."""
        return self.log_offset + self.sizes[0]

    def covers(self, log_offset: int) -> bool:
        """Whether one of these records starts at a log offset."""
        return log_offset in accumulate(self.sizes[:-1], initial=self.log_offset)

    def single_dispatches(self) -> list[UnseenRecord]:
        """Return the records, each on its own."""
        rows = zip(
            repeat(self.queue),
            self.messages,
            count(self.queue_offset),
            accumulate(self.sizes[:-1], initial=self.log_offset),
            self.sizes,
            repeat(self.stored_ms),
        )  # not strict, because some iterators are infinite
        return list(map(UnseenRecord._make, rows))


class QueueUnits(NamedTuple):
    """Consecutive units of one queue. Without a queue they are not written."""

    queue: ConsumeQueue | None
    topic: str
    queue_id: int
    queue_offset: int
    units: bytes

    def arrivals(self, stored_ms: int) -> Iterator[Arrival]:
        """Yield each unit's record as an arrival, for waiting consumers."""
        for nth, (log_offset, size, code) in enumerate(ENTRY.iter_unpack(self.units)):
            queue_offset = self.queue_offset + nth
            yield Arrival(
                self.topic, self.queue_id, queue_offset, code, stored_ms, log_offset, size
            )


class UnseenRun(NamedTuple):
    """Records of one input (store/record_run) that become visible together, with their index
    keys."""

    log_offset: int
    """The log offset of the first record."""

    data: bytes
    stored_ms: int
    parts: list[QueueUnits]
    keys: bytes

    @property
    def needed_visible_end(self) -> int:
        """These records become visible once the log is visible up to this offset, the end of the
        last one."""
        return self.log_offset + len(self.data)

    def covers(self, log_offset: int) -> bool:
        """Whether one of these records starts at a log offset."""
        return any(
            log_offset == at for part in self.parts for at, _, _ in ENTRY.iter_unpack(part.units)
        )

    def without_queues(self, doomed: Collection[ConsumeQueue]) -> UnseenRun:
        """Return this run without the units of some queues."""
        parts = [p._replace(queue=None) if p.queue in doomed else p for p in self.parts]
        return self._replace(parts=parts)

    def single_dispatches(self) -> list[UnseenRecord]:
        """Return the records, each on its own."""
        return self.rest_from_part(0)[0]

    def rest_from_part(self, nth: int) -> tuple[list[UnseenRecord], bytes]:
        """Split the run before its nth part. Return the records from that part on, each on its own,
        and the index keys of the records before them. Records that have their units already, but
        follow a record without one, are returned without a queue: keys must enter the index in the
        log's order."""
        singles = {}
        for queue, _, _, first, units in self.parts[nth:]:
            for queue_offset, (at, size, _) in enumerate(ENTRY.iter_unpack(units), first):
                message = decode_record(self.data, at - self.log_offset)
                own_ms = message.stored_ms  # the delivery time of a delayed one depends on it
                singles[at] = UnseenRecord(queue, message, queue_offset, at, size, own_ms)
        begin, before = min(singles, default=self.needed_visible_end), bytearray()
        for code, at, stored_ms in KEY.iter_unpack(self.keys):
            if at < begin:
                before += KEY.pack(code, at, stored_ms)
            elif at not in singles:
                message = decode_record(self.data, at - self.log_offset)
                size = message.record_size
                singles[at] = UnseenRecord(None, message, message.queue_offset, at, size, stored_ms)
        return sorted(singles.values(), key=attrgetter("log_offset")), bytes(before)


Unseen = UnseenRecord | UnseenBatch | UnseenRun
