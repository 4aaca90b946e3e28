"""A log that is another broker's, byte by byte: what a slave appends, and what follows from it.

Whole records only are appended, at the place that they were written for, and shown to queues and
index as if they had been put here. What a start finds is then a log like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from escrowmq.base.fixed_limits import TOPIC_QUEUES_MAX, UNSEEN_MAX
from escrowmq.base.message import Property, StoredMessage, Topic
from escrowmq.codec.entries import is_path_safe
from escrowmq.codec.layout import RECORD_SIZE_MIN
from escrowmq.codec.log_stretches import Scanned
from escrowmq.codec.properties import number_in
from escrowmq.codec.record import decode_record
from escrowmq.errors import CorruptRecord, DiskFull
from escrowmq.store.consume_queue import ConsumeQueue
from escrowmq.store.queue_snapshot import write_snapshot
from escrowmq.store.store_parts import StoreState

_PREPARED: Final = 4
_GAP_MAX: Final = 1_000_000
"""Queue offsets that may be missing in front of a record, where the queue has units already."""


class CopiedLog:
    """The end of a log that grows by copying."""

    def __init__(self, held: StoreState, delete_topic: Callable[[str], int]) -> None:
        self._held = held
        self._log = held.log
        self._delete_topic = delete_topic
        self.segment_size = held.log.segment_size
        self.read = held.log.read
        self.has_crc = held.settings.appends_crc
        self._topics: dict[str, int] = {}

    @property
    def min_offset(self) -> int:
        """Where the oldest segment starts."""
        return self._log.min_offset

    @property
    def end_offset(self) -> int:
        """Where the next byte belongs."""
        return self._log.end_offset

    @property
    def kept_end(self) -> int:
        """Up to where the log is as safe as a broker's acknowledgements are: durable, where these
        wait for the disk."""
        ends = self._held.ends
        return ends.durable if ends.waits_for_disk else self.end_offset

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it, so that it may begin anywhere."""
        segments = self._log.segments
        return not segments.starts or self._log.end_offset == segments.first

    def begin_at(self, log_offset: int) -> None:
        """Begin an empty log where a segment of the master's does."""
        assert self.is_empty, self.end_offset
        assert not log_offset % self.segment_size, log_offset
        segments, held = self._log.segments, self._held
        if log_offset == self.end_offset and segments.has(log_offset):
            return
        segments.forget_empty()
        self._forget_derived()
        self._log.start(log_offset)
        held.ends.start(log_offset)
        held.dispatcher.start(log_offset, 0, ())
        # Once in its life. A start refuses a folder whose log is not there, although something
        # says that there was one: power that is lost must not leave such a folder behind.
        segments.make(log_offset).sync()
        write_snapshot(held)

    def _forget_derived(self) -> None:
        """Of a log that power that was lost has left nothing of."""
        held = self._held
        for queue in list(held.queues):
            queue.remove()
            del held.queues.by_key[queue.topic, queue.queue_id]
        held.dispatcher.forget_found()
        if held.index is not None:
            held.index.remove_all()

    def append(self, data: bytes, records: Sequence[Scanned]) -> None:
        """Append records that lie one behind another from the end on, and make them visible.
        DiskFull, with the log as far as it came, when there is no room; CorruptRecord when one
        cannot be of this log."""
        dispatcher = self._held.dispatcher
        if dispatcher.stalled is not None and dispatcher.behind_size > UNSEEN_MAX:
            raise DiskFull(f"{dispatcher.stalled}; more of the log is taken when queues have room")
        base, begin = self.end_offset, 0
        ahead: dict[ConsumeQueue, int] = {}
        queues: list[ConsumeQueue | None] = []
        for nth, record in enumerate(records):
            queue = self._queue_of(record, ahead)
            if queue is not None and record.queue_offset < ahead.get(queue, queue.next_offset):
                # The master has deleted the topic, and begun it again.
                self._append_run(data, base, records[begin:nth], queues)
                begin, queues = nth, []
                queue = self._begun_anew(record, queue)
            if queue is not None:
                ahead[queue] = record.queue_offset + 1
            queues.append(queue)
        self._append_run(data, base, records[begin:], queues)

    def _queue_of(self, record: Scanned, ahead: dict[ConsumeQueue, int]) -> ConsumeQueue | None:
        if record.sys_flag & _PREPARED:
            return None
        topic = record.topic.decode("utf-8", "replace")
        queues, queue_offset = self._held.queues, record.queue_offset
        known = queues.by_key.get((topic, record.queue_id))
        if known is not None and known.min <= queue_offset < known.next_offset:
            known.drop_gaps(queue_offset)  # of records that were damaged here, and come again
        next_offset = 0 if known is None else ahead.get(known, known.next_offset)
        if known is not None and next_offset == queue_offset:
            return known
        if record.queue_id < 0 or not is_path_safe(topic):
            raise CorruptRecord(
                f"the record at log offset {record.log_offset} is of queue {record.queue_id} of "
                f"topic {topic[:64]!r}, which cannot be"
            )
        # Each unit before it has a record in the log before it.
        most = record.log_offset // RECORD_SIZE_MIN
        if next_offset:
            most = min(most, next_offset + _GAP_MAX)
        if not 0 <= queue_offset <= most:
            raise CorruptRecord(
                f"the record at log offset {record.log_offset} is number {queue_offset} of its "
                f"queue; up to {most} could be"
            )
        return known or queues.make(topic, record.queue_id)

    def _begun_anew(self, record: Scanned, queue: ConsumeQueue) -> ConsumeQueue | None:
        if record.queue_offset:
            return None  # RocketMQ (ConsumeQueue.putMessagePositionInfo) passes it over, too
        self._delete_topic(queue.topic)
        return self._held.queues.make(queue.topic, record.queue_id)

    def _append_run(
        self,
        data: bytes,
        base: int,
        records: Sequence[Scanned],
        queues: Sequence[ConsumeQueue | None],
    ) -> None:
        if not records:
            return
        log, show = self._log, self._held.dispatcher.show
        first, last = records[0], records[-1]
        begin, end = first.log_offset - base, last.log_offset + last.size - base
        assert first.log_offset == log.end_offset, (first.log_offset, log.end_offset)
        log.append(data[begin:end], last.stored_ms)
        for record, queue in zip(records, queues, strict=True):
            message = decode_record(data, record.log_offset - base)
            if queue is not None:
                queue.expect(record.queue_offset + 1)
            self._note_topic(message)
            show(queue, message, record.queue_offset, record.log_offset, record.size)

    def _note_topic(self, message: StoredMessage) -> None:
        topic, queue_id = message.topic, message.queue_id
        if topic == Topic.HALF:
            properties = message.properties
            topic = properties.get(Property.REAL_TOPIC, topic)
            queue_id = number_in(properties.get(Property.REAL_QID), most=TOPIC_QUEUES_MAX - 1) or 0
        if self._topics.get(topic, -1) < queue_id < TOPIC_QUEUES_MAX:
            self._topics[topic] = queue_id

    def take_topics(self) -> dict[str, int]:
        """Hand over, and forget, of which topics messages or halves were appended, and the highest
        queue of each."""
        found, self._topics = self._topics, {}
        return found

    def fill(self, position: int, data: bytes) -> None:
        """Bytes behind the filler of a segment: they mean nothing, and are copied all the same."""
        if data.count(0) != len(data):
            self._log.fill(position, data)

    def roll(self) -> None:
        """Write the filler, and go on with the next segment."""
        self._log.roll(0)
