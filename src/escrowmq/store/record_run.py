"""Puts records of one input together: with one write into the log, and one into each queue."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from escrowmq.base.message import Message
from escrowmq.codec.record import encode_records, encode_topic
from escrowmq.codec.store_entries import ENTRY, ENTRY_SIZE
from escrowmq.errors import StorageError
from escrowmq.store.consume_queue import ConsumeQueue
from escrowmq.store.held_back import stall_reason
from escrowmq.store.store_parts import StoreState
from escrowmq.store.unseen import QueueUnits, UnseenRun

_log = logging.getLogger(__name__)

_TAILS_MAX: Final = 10_000


class QueueTail:
    """The records that a run appends to one queue: what they have in common, and their units."""

    __slots__ = (
        "key_prefix", "magic", "next_offset", "queue", "queue_id", "topic", "topic_part", "units",
    )  # fmt: skip

    def __init__(self, queue: ConsumeQueue) -> None:
        self.queue = queue
        self.topic, self.queue_id = queue.topic, queue.queue_id
        self.key_prefix = queue.key_prefix
        self.magic, topic = encode_topic(self.topic)
        self.topic_part = topic
        self.next_offset = 0
        """The queue offset after the last record of this run."""
        self.units = bytearray()

    @property
    def first_offset(self) -> int:
        """The queue offset of the first record of this run."""
        return self.next_offset - len(self.units) // ENTRY_SIZE


class RecordRun:
    """A sequence of records that are written together. Begin, put, write and publish it before
    anything else is put."""

    def __init__(self, state: StoreState, host: bytes) -> None:
        self._state = state
        self.host = host
        self._ends = state.ends
        self._pieces: list[bytes] = []
        self._data = b""
        """All records as bytes, once they are written."""
        self._tails: dict[tuple[str, int], QueueTail] = {}
        """One tail for each queue, so that no offset is assigned twice."""
        self._touched: list[QueueTail] = []
        self._keys = bytearray()
        self.end = self.stored_ms = self.room_end = 0
        """The log offset of the next record, the store time of all records, and the offset at which
        they must end."""

    @property
    def is_allowed(self) -> bool:
        """Whether records may be put as a run now: not with checksums, and not while earlier
        records wait to become visible, or a queue is held back."""
        state, dispatcher = self._state, self._state.dispatcher
        return not (
            state.settings.appends_crc
            or state.write_gate.refusal is not None
            or dispatcher.held_back.units
            or (dispatcher.waiting and dispatcher.is_overdue)
        )

    def tail(self, topic: str, queue_id: int) -> QueueTail | None:
        """Return the end of a queue, valid until its topic is deleted. Return None when the queue
        does not exist yet, or is for delayed delivery."""
        queue = self._state.queues.by_key.get((topic, queue_id))
        if queue is None or queue.is_schedule:
            return None
        tail = self._tails.get((topic, queue_id))
        if tail is None or tail.queue is not queue:
            tail = self._tails[topic, queue_id] = QueueTail(queue)
        return tail

    def begin(self, now_ms: int) -> bool:
        """Begin a run. Return False if records cannot be put this way now. Puts must fit into the
        current segment's space."""
        if not self.is_allowed:
            return False
        log = self._state.log
        # Only here, never within a run: a second tail of a queue would assign the same offsets.
        if len(self._tails) > _TAILS_MAX:
            self._tails.clear()
        self.end = log.end_offset
        self.room_end = log.space_end
        self.stored_ms = now_ms
        if log.stored_ms > now_ms:
            self.stored_ms = log.stored_ms
        return True

    def put(self, tail: QueueTail, message: Message, properties: bytes, tags_code: int) -> int:
        """Append a message of the broker's own, without index keys. Return its log offset; -1, with
        nothing done, when there is no space."""
        log_offset = self.end
        (record,) = encode_records(
            message, ((0, message.body, properties, None),),
            queue_offset=tail.next_offset if tail.units else tail.queue.next_offset,
            log_offset=log_offset, stored_ms=self.stored_ms,
        )  # fmt: skip
        if log_offset + len(record) > self.room_end:
            return -1
        units = bytearray(ENTRY.pack(log_offset, len(record), tags_code))
        self.put_laid_out(record, [(tail, units)], b"")
        return log_offset

    def put_laid_out(
        self, records: bytes, units: Iterable[tuple[QueueTail, bytearray]], keys: bytes | bytearray
    ) -> None:
        """Append records that were laid out for this offset and time, with the units of each queue
        and all index keys."""
        begin, end = self.end, self.end + len(records)
        assert end <= self.room_end, (end, self.room_end)
        for tail, added in units:
            last_offset, size, _ = ENTRY.unpack_from(added, len(added) - ENTRY_SIZE)
            assert begin <= last_offset <= end - size, "units of these records"
            if not tail.units:
                self._touched.append(tail)
                tail.next_offset = tail.queue.next_offset
            tail.units += added
            tail.next_offset += len(added) // ENTRY_SIZE
        self._pieces.append(records)
        self._keys += keys
        self.end = end

    def write(self) -> bool:
        """Write the run into the log: all of it, or nothing. Return whether it was written. After
        success, call `publish`; call `done` in any case."""
        if not self._pieces:
            return True
        self._data = data = b"".join(self._pieces)
        self._pieces.clear()
        log = self._state.log
        try:
            log.append(data, self.stored_ms)
        except (StorageError, OSError) as error:
            _log.debug("%d bytes of messages are stored one by one: %s", len(data), error)
            self.clear()
            return False
        assert log.end_offset == self.end, (log.end_offset, self.end)
        return True

    def publish(self) -> None:
        """Make the records findable in their queues and by their keys, now or when they may be
        seen."""
        dispatcher = self._state.dispatcher
        if not self._touched:
            return
        if self.end > self._ends.visible_end:
            for tail in self._touched:
                tail.queue.set_next_offset(tail.next_offset)
            dispatcher.enqueue([self._unseen(self._touched)])
            return
        for nth, tail in enumerate(self._touched):
            try:
                tail.queue.put_units(bytes(tail.units))
            except (StorageError, OSError) as error:
                self._wait(self._unseen(self._touched[nth:]))
                dispatcher.stalled = stall_reason(error)  # as in `make_run_visible`
                return
            if dispatcher.is_awaited(tail.topic, tail.queue_id):
                dispatcher.add_arrivals(_units_of(tail), self.stored_ms)
        dispatcher.note_run_dispatched(self.end, self.stored_ms, self._keys)

    def _unseen(self, tails: list[QueueTail]) -> UnseenRun:
        """Return the records of some of the queues, and all keys, to become visible later."""
        parts = [_units_of(tail) for tail in tails]
        data = self._data
        begin = self.end - len(data)
        return UnseenRun(begin, data, self.stored_ms, parts, bytes(self._keys))

    def _wait(self, unseen: UnseenRun) -> None:
        """Let the records of queues that could not be written wait."""
        for queue, _, _, first, units in unseen.parts:
            assert queue is not None, "it was found just now"
            queue.set_next_offset(first + len(units) // ENTRY_SIZE)
        waiting, keys = unseen.rest_from_part(0)
        self._state.dispatcher.enqueue(waiting)
        self._state.dispatcher.note_run_dispatched(waiting[0].log_offset, self.stored_ms, keys)

    def clear(self) -> None:
        """Clear the run."""
        for tail in self._touched:
            tail.units.clear()
        self._touched.clear()
        self._keys.clear()
        self._pieces.clear()
        self._data = b""


def _units_of(tail: QueueTail) -> QueueUnits:
    return QueueUnits(tail.queue, tail.topic, tail.queue_id, tail.first_offset, bytes(tail.units))
