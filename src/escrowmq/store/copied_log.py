"""Appends another broker's log, byte by byte, and updates the queues and the index.

Only whole records are appended, at the offsets that they have at the master. They are added to
queues and index like records that were put here, so that a start finds a log like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from escrowmq.base.fixed_limits import TOPIC_QUEUES_MAX, UNSEEN_MAX
from escrowmq.base.message import SysFlag, Topic
from escrowmq.codec.log_records import ScannedRecord
from escrowmq.codec.properties import parse_number, property_value
from escrowmq.codec.record import decode_record
from escrowmq.codec.record_layout import RECORD_SIZE_MIN
from escrowmq.codec.store_entries import ENTRY, ENTRY_SIZE, is_path_safe
from escrowmq.errors import CorruptRecord, DiskFull, StorageError
from escrowmq.store.consume_queue import ConsumeQueue
from escrowmq.store.copied_deletions import CopiedDeletions
from escrowmq.store.queue_snapshot import write_snapshot
from escrowmq.store.scanned import RecordKeys, UnitTagsCodes
from escrowmq.store.store_parts import StoreState
from escrowmq.store.unseen import QueueUnits, UnseenRun

_PREPARED: Final = SysFlag.PREPARED  # this bit is set for rolled-back records too
_HALF: Final = Topic.HALF.encode()
_GAP_MAX: Final = 1_000_000
"""The most queue offsets that may be missing before a record, in a queue that already has units."""

_pack: Final = ENTRY.pack


class _QueuePart:
    """Collects the units of consecutive records of one queue that are appended together."""

    __slots__ = ("next_offset", "queue", "units")

    def __init__(self, queue: ConsumeQueue, next_offset: int) -> None:
        self.queue = queue
        self.next_offset = next_offset
        self.units = bytearray()


_Parts = dict[tuple[bytes, int], _QueuePart]


class CopiedLog:
    """Appends to a log that is copied from another broker."""

    def __init__(self, state: StoreState, forget_queues: Callable[[], None]) -> None:
        self._state = state
        self._log = state.log
        self.deletions = CopiedDeletions(state, forget_queues)
        self.segment_size = state.log.segment_size
        self.read = state.log.read
        self.has_crc = state.settings.appends_crc
        self._topics: dict[bytes, int] = {}
        self._codes = UnitTagsCodes(state.dispatcher.delays_ms)
        self._keys = RecordKeys()

    @property
    def min_offset(self) -> int:
        """The offset at which the oldest segment starts."""
        return self._log.min_offset

    @property
    def end_offset(self) -> int:
        """The offset at which the next byte is appended."""
        return self._log.end_offset

    @property
    def safe_end(self) -> int:
        """The offset up to which the log is as safe as an acknowledged record: durable, if
        acknowledgements wait for the disk."""
        ends = self._state.ends
        return ends.durable if ends.waits_for_disk else self.end_offset

    @property
    def is_empty(self) -> bool:
        """Whether the log is empty, so that it may begin at any segment."""
        segments = self._log.segments
        return not segments.starts or self._log.end_offset == segments.first_position

    def begin_at(self, log_offset: int) -> None:
        """Begin an empty log at the start of one of the master's segments."""
        assert self.is_empty, self.end_offset
        assert not log_offset % self.segment_size, log_offset
        segments, state = self._log.segments, self._state
        if log_offset == self.end_offset and segments.has(log_offset):
            return
        segments.remove_unwritten_files()
        self._remove_derived_files()
        self._log.start(log_offset)
        state.ends.start(log_offset)
        state.dispatcher.start(log_offset, 0, ())
        # This happens once per folder. A start refuses a folder whose log is missing although there
        # is evidence of one: a power failure must not leave such a folder.
        segments.get_or_create(log_offset).sync()
        write_snapshot(state)

    def _remove_derived_files(self) -> None:
        """Remove queues and index, because a power failure has left the log empty."""
        state = self._state
        state.queues.remove_all()
        state.dispatcher.drop_collected_keys()
        if state.index is not None:
            state.index.remove_all()

    def append(self, data: bytes, records: Sequence[ScannedRecord]) -> None:
        """Append consecutive records at the end, and make them visible. Raises DiskFull after
        appending as many as fit; CorruptRecord if a record cannot belong to this log; StorageError
        while a failed sync is repaired."""
        self._raise_if_repairing()
        dispatcher = self._state.dispatcher
        if dispatcher.stalled is not None and dispatcher.waiting_size > UNSEEN_MAX:
            raise DiskFull(
                f"{dispatcher.stalled}; copying continues when there is space for queues"
            )
        if dispatcher.held_back.is_full:
            raise StorageError("too many messages wait for queues that cannot be written")
        base, parts, keys = self.end_offset, _Parts(), bytearray()
        code_of, add_keys = self._codes.code_of, self._keys.add
        before: ScannedRecord | None = None
        for record in records:
            if not record.sys_flag & _PREPARED:
                place = record.topic, record.queue_id
                part = parts.get(place) or self._begin_part(record)
                if part is None or part.next_offset != record.queue_offset:
                    self._append_together(data, base, before, parts, keys)
                    self._append_single(data, base, record)
                    before, parts, keys = None, _Parts(), bytearray()
                    continue
                parts[place] = part
                code = code_of(record, is_schedule=part.queue.is_schedule)
                part.units += _pack(record.log_offset, record.size, code)
                part.next_offset += 1
            self._note_topic(record)
            add_keys(keys, record)
            before = record
        self._append_together(data, base, before, parts, keys)

    def _begin_part(self, record: ScannedRecord) -> _QueuePart | None:
        """Return a new part for the queue of a record; None if the record's queue offset does not
        follow the existing units."""
        queue = self._queue_of(record)
        next_offset = queue.next_offset
        if next_offset != record.queue_offset:
            return None
        dispatcher = self._state.dispatcher
        is_held = queue in dispatcher.held_back.units
        follows = queue.end == next_offset or dispatcher.waiting or is_held
        return _QueuePart(queue, next_offset) if follows else None

    def _queue_of(self, record: ScannedRecord) -> ConsumeQueue:
        topic = record.topic.decode("utf-8", "replace")
        queues, queue_offset = self._state.queues, record.queue_offset
        known = queues.by_key.get((topic, record.queue_id))
        if known is not None and known.min <= queue_offset < known.next_offset:
            known.drop_trailing_gaps(
                queue_offset
            )  # their records were damaged here, and are copied again
        next_offset = 0 if known is None else known.next_offset
        if known is not None and next_offset == queue_offset:
            return known
        if record.queue_id < 0 or not is_path_safe(topic):
            raise CorruptRecord(
                f"the record at log offset {record.log_offset} is of queue {record.queue_id} "
                f"of topic {topic[:64]!r}, which is impossible"
            )
        # Each unit before it has a record in the log before it.
        most = record.log_offset // RECORD_SIZE_MIN
        if next_offset:
            most = min(most, next_offset + _GAP_MAX)
        if not 0 <= queue_offset <= most:
            raise CorruptRecord(
                f"the record at log offset {record.log_offset} is number {queue_offset} of "
                f"its queue; at most {most} is possible"
            )
        return known or queues.get_or_create(topic, record.queue_id)

    def continue_queues(self, ends: Mapping[str, Mapping[int, int]]) -> None:
        """Let queues (by topic and queue id) that end before these offsets continue there: the
        master has had their records, and has deleted them."""
        most = self.end_offset // RECORD_SIZE_MIN
        for topic, by_queue in ends.items():
            for queue_id, end in by_queue.items():
                if queue_id < 0 or not 0 < end <= most or not is_path_safe(topic):
                    raise CorruptRecord(f"queue {queue_id} of {topic[:64]!r} cannot end at {end}")
                queue = self._state.queues.get_or_create(topic, queue_id)
                if queue.end == queue.next_offset < end:
                    queue.fill_gap(end)
                    queue.reset_next_offset()
                    queue.drop_before(self._log.min_offset)

    def _append_together(
        self,
        data: bytes,
        base: int,
        last: ScannedRecord | None,
        parts: _Parts,
        keys: bytearray,
    ) -> None:
        """Append all records up to and including `last`; `parts` has their units."""
        if last is None:
            return
        log, begin = self._log, self._log.end_offset
        part_of_data = data[begin - base : last.log_offset + last.size - base]
        log.append(part_of_data, last.stored_ms)
        units = []
        for part in parts.values():
            queue, next_offset = part.queue, part.next_offset
            queue.set_next_offset(next_offset)
            first = next_offset - len(part.units) // ENTRY_SIZE
            units.append(QueueUnits(queue, queue.topic, queue.queue_id, first, bytes(part.units)))
        run = UnseenRun(begin, part_of_data, log.stored_ms, units, bytes(keys))
        self._state.dispatcher.make_run_visible(run)

    def _append_single(self, data: bytes, base: int, record: ScannedRecord) -> None:
        """Append a record whose queue offset does not follow the last one. Either the master
        deleted and recreated the topic, or it skipped damaged records."""
        known = self._queue_of(record)
        is_before = record.queue_offset < known.next_offset
        queue = self._restarted_queue(record, known) if is_before else known
        begin = record.log_offset - base
        self._log.append(data[begin : begin + record.size], record.stored_ms)
        self._note_topic(record)
        self._state.dispatcher.make_visible(
            queue,
            decode_record(data, begin),
            record.queue_offset,
            record.log_offset,
            record.size,
        )

    def _restarted_queue(self, record: ScannedRecord, queue: ConsumeQueue) -> ConsumeQueue | None:
        if record.queue_offset:
            return None  # RocketMQ (ConsumeQueue.putMessagePositionInfo) skips it, too
        self.deletions.remove_restarted_queue(queue)
        return self._state.queues.get_or_create(queue.topic, record.queue_id)

    def _note_topic(self, record: ScannedRecord) -> None:
        topic, queue_id = record.topic, record.queue_id
        if topic == _HALF:
            properties = record.properties
            topic = property_value(properties, b"REAL_TOPIC\x01") or topic
            real = property_value(properties, b"REAL_QID\x01").decode("utf-8", "replace")
            queue_id = parse_number(real, most=TOPIC_QUEUES_MAX - 1) or 0
        if self._topics.get(topic, -1) < queue_id < TOPIC_QUEUES_MAX:
            self._topics[topic] = queue_id

    def take_topics(self) -> dict[str, int]:
        """Return, and forget, the topics of the appended messages and halves, each with its highest
        queue id."""
        found, self._topics = self._topics, {}
        return {topic.decode("utf-8", "replace"): queue_id for topic, queue_id in found.items()}

    def _raise_if_repairing(self) -> None:
        """Raise StorageError while a failed sync is repaired: the repair expects the log's end not
        to move."""
        if fault := self._state.write_gate.disk_fault:
            raise StorageError(fault)

    def write_padding(self, position: int, data: bytes) -> None:
        """Copy the bytes after a segment's filler. They have no meaning, but the logs must be
        equal."""
        self._raise_if_repairing()
        if data.count(0) != len(data):
            self._log.write_padding(position, data)

    def roll(self) -> None:
        """Write the filler, and continue with the next segment."""
        self._raise_if_repairing()
        self._log.roll(0)
