"""Delivers messages at arbitrary times: a heap of the records in the timer's topic. Memory holds
one number per pending message, its key: delivery time and queue offset (44 bytes).

The topic is authoritative. Deliveries are made in the order of keys, so two numbers say what was
delivered. Records with queue offsets below `taken` were read. Of these, the records with keys below
`border` are delivered, and all others are not. (This does not hold while a record that came too
late for its time is pending; then no progress is recorded.)

RocketMQ's progress has the same form: it has read the records below lastTimerQueueOffset, and
delivered those that were due before lastReadTimeMs.
"""

from __future__ import annotations

import heapq
from typing import Final

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.fixed_limits import LONG_MAX, TIMER_PENDING_MAX
from escrowmq.base.message import Property, StoredMessage, Topic
from escrowmq.codec.properties import parse_number
from escrowmq.delivery import timer_snapshot
from escrowmq.delivery.delay_progress import (
    BATCH_MAX,
    NEVER_MS,
    RETRY_MS,
    DelayedDeliverer,
    PastDeliveries,
    PutMessage,
)
from escrowmq.delivery.delayed_messages import restore_message
from escrowmq.delivery.pending_blocks import PendingBlocks
from escrowmq.delivery.timer_counts import WaitingCounts
from escrowmq.delivery.timer_distributions import DelayDistributions, DueTimes
from escrowmq.delivery.timer_file import (
    OFFSET_BITS,
    OFFSET_MASK,
    PATH,
    TimerProgress,
    check_file,
    complete_file,
    decode_file,
    decode_head,
    delivery_key,
    encode_both_parts,
    encode_head,
    rocketmq_files,
)
from escrowmq.delivery.timer_recalls import PendingRecalls
from escrowmq.delivery.timer_records import delivery_ms, earliest_slot, recall_key, slot_before
from escrowmq.delivery.timer_rolls import RolledRecords
from escrowmq.delivery.timer_unread import UNKNOWN_KEY, UnreadRecord, UnreadRecords
from escrowmq.errors import StorageError
from escrowmq.store.durable_progress import ProgressMark, UnsavedProgress
from escrowmq.store.optional_file import read_optional_file
from escrowmq.store.store import Arrival, Store

PENDING_MAX: Final = TIMER_PENDING_MAX + 2_000_000
"""The most records in memory. More are read when others have been delivered; only committed
transactions, which nobody may refuse, can be so many."""

_TAKE_MAX: Final = 512
_ENTRIES_READ: Final = 64
_UNSEEN_MS: Final = 60_000
"""How long a stored record may wait for a sync before it becomes visible. A RocketMQ broker that
takes over must allow for that."""


class TimerQueue:
    """Delivers the messages of one broker that have a delivery time. Call `load` first."""

    def __init__(
        self, store: Store, settings: BrokerSettings, put: PutMessage | None = None
    ) -> None:
        self._store = store
        self.deliverer = DelayedDeliverer(store, put)
        self._precision_ms = settings.timer_precision_ms
        self._heap: list[int] = []
        self._taken = self._loaded_end = 0
        self._listed = timer_snapshot.ListedOffsets()
        """The records before `taken` that a start has still to read."""
        self._snapshots = timer_snapshot.SnapshotSaver()
        self._blocks = PendingBlocks()
        self.recalls = PendingRecalls()
        self._rolls = RolledRecords(self._precision_ms)
        self._past_deliveries = PastDeliveries(store, Property.TIMER_OUT_MS)
        self._unsaved: UnsavedProgress[TimerProgress] = UnsavedProgress()
        self._border = 0
        """A key above all delivered ones."""
        self._counter = 0
        self.counts = WaitingCounts()
        self.due_times = DueTimes()
        self.delays = DelayDistributions()
        self._before = TimerProgress(0, 0, 0)
        self._unread_slot_ms = 0
        """No record that is still to be read has a slot before this time."""
        self._is_of_rocketmq = False
        self._is_settled = False
        self._has_more = False
        self._retry_ms = 0
        self._unread = UnreadRecords()

    # -- life ------------------------------------------------------------------------------------

    def load(self, data: bytes | None) -> None:
        """Load timercheck, ours or RocketMQ's. Raises ValueError if it is damaged. Later calls of
        `deliver_due` read the records, a bounded number each."""
        if data is not None:
            check_file(data)
        start, end = self._store.bounds(Topic.TIMER, 0)
        ours, head = decode_file(data), decode_head(data)
        if ours is not None:
            log_offset, self._before = ours
            self._past_deliveries.read_log(log_offset, self._oldest_pending(start))
        elif head is not None:
            # A slot is the second that ends before the delivery time: everything due in slots
            # before the read time has a delivery time up to the read time.
            self._before = TimerProgress(
                head.queue_offset, delivery_key(head.read_ms + 1, 0), start, head.read_ms
            )
            self._is_of_rocketmq = True
            self._rolls.begin_replacing()
            self._past_deliveries.read_if_short(self._oldest_pending(start))
        else:
            self._past_deliveries.read_without_progress(self._oldest_pending(start))
        self._counter = 0 if head is None else head.counter
        self._border, self._unread_slot_ms = self._before.border, self._before.read_ms
        self._taken = min(max(self._before.oldest, start), end)
        if ours is not None:
            self._read_snapshot(end)
        self._loaded_end = end
        self._has_more = True

    def _read_snapshot(self, end: int) -> None:
        """Skip the records that a snapshot shows as delivered. It is removed if the log has lost
        its end: once that has grown again, it would hide other records from later starts."""
        disk = self._store.disk
        snapshot = timer_snapshot.decode(read_optional_file(disk, timer_snapshot.PATH))
        if snapshot is not None and snapshot.taken > end:
            disk.remove(timer_snapshot.PATH)
        elif snapshot is not None and snapshot.shortens(self._before, self._taken, end):
            self._listed.start(snapshot, self._taken)
            self._taken = snapshot.taken

    def _oldest_pending(self, start: int) -> int | None:
        """Return the log offset of the first record that may be undelivered; None if there is
        none."""
        oldest = max(self._before.oldest, start)
        places = self._store.read_units(Topic.TIMER, 0, oldest, 1)
        return places[0][0] if places else None

    def oldest_needed_offset(self) -> int:
        """Return the log offset of the oldest undelivered record; retention must keep the log from
        there on."""
        start, _ = self._store.bounds(Topic.TIMER, 0)
        places = self._store.read_units(Topic.TIMER, 0, max(self._oldest, start), 1)
        return places[0][0] if places else self._store.end_offset

    @property
    def _oldest(self) -> int:
        """A queue offset before which no record is pending."""
        oldest = self._listed.first if self._listed else self._taken
        return self._blocks.oldest_before(oldest)

    @property
    def is_rebuilt(self) -> bool:
        """Whether the records of before the start are read."""
        is_read = not self._listed and self._taken >= self._before.taken
        return is_read or not self._has_more

    @property
    def pending_count(self) -> int:
        """The number of records that wait, or are retried."""
        return len(self._heap) + len(self._unread.waiting)

    def late_ms(self, now_ms: int) -> int:
        """Return how long the next record has been due."""
        keys = [one.key for one in self._unread.waiting if one.key != UNKNOWN_KEY]
        key = min([*keys, *self._heap[:1]], default=None)
        return 0 if key is None else max(0, now_ms - (key >> OFFSET_BITS))

    @property
    def next_read_offset(self) -> int:
        """The next queue offset to read."""
        return self._taken

    def may_hold(self, topic: str) -> bool:
        """Whether messages of a topic wait here, or may be among records of an earlier process that
        are not read yet."""
        return self.counts.has(topic) or not self._is_start_read or bool(self._unread.count)

    def may_be_late(self, topic: str, now_ms: int) -> bool:
        """Whether due messages of a topic may wait here, though no longer than the timer needs. Not
        those that the disk cannot read."""
        if not self._is_start_read:
            return self._has_more
        return self.counts.has(topic) and self._is_any_due(now_ms)

    def _is_any_due(self, now_ms: int) -> bool:
        return bool(self._heap) and self._heap[0] >> OFFSET_BITS <= now_ms

    @property
    def _is_start_read(self) -> bool:
        """Whether all readable records of earlier processes are read."""
        return self._taken >= self._loaded_end and not self._listed

    def forget_topic(self, topic: str) -> None:
        """Remove the figures of a deleted topic."""
        self.counts.forget_topic(topic)
        self.delays.forget_topic(topic)

    def note_arrival(self, arrival: Arrival) -> None:
        """Note that a record became visible in the timer's topic, and must be read."""
        assert arrival.topic == Topic.TIMER
        self._has_more = True

    def wake_at_ms(self) -> int:
        """The time to call `deliver_due` next."""
        read_ms = self._unread.queue_retry_ms if self._has_more else NEVER_MS
        at_ms = max(self._heap[0] >> OFFSET_BITS, self._retry_ms) if self._heap else NEVER_MS
        return min(read_ms, at_ms, self._unread.wake_at_ms())

    def wake(self, now_ms: int) -> None:
        """Read new records and deliver due messages if it is time."""
        if now_ms >= self.wake_at_ms():
            self.deliver_due(now_ms)

    def deliver_due(self, now_ms: int) -> int:
        """Read new records, and deliver due messages, a bounded number of each. Return how many
        records were delivered or skipped."""
        if self._has_more and now_ms >= self._unread.queue_retry_ms:
            self._try_to_read(now_ms)
        while (unread := self._unread.take_due(now_ms)) is not None:
            self._retry_unread(unread, now_ms)
        if not self.is_rebuilt:
            return 0  # the first due record is not known yet
        if not self._is_settled:
            self._remove_rocketmq_timer(now_ms)
        passed, heap = 0, self._heap
        while self._is_any_due(now_ms) and passed < BATCH_MAX:
            queue_offset = heap[0] & OFFSET_MASK
            try:
                is_passed = self._process_due(queue_offset, now_ms)
            except (OSError, StorageError) as error:
                self._unread.schedule_retry(queue_offset, heap[0], now_ms, error)
                heapq.heappop(heap)
                continue
            self._unread.forget_read(queue_offset)
            if not is_passed:
                self._retry_ms = now_ms + RETRY_MS
                break
            self._retry_ms = 0
            key = heapq.heappop(heap)
            self._border = max(self._border, key + 1)
            self._forget_key(key)
            passed += 1
        if not (self._has_more or self._unread.count or self._is_any_due(now_ms)):
            self._past_deliveries.clear()
        if passed and not self._has_more and len(heap) < PENDING_MAX:
            self._has_more = self._taken < self._store.bounds(Topic.TIMER, 0)[1]
        self._note_progress(now_ms)
        return passed

    # -- taking in -------------------------------------------------------------------------------

    def _try_to_read(self, now_ms: int) -> None:
        """Read new records. If their queue cannot be read, the known ones are delivered meanwhile,
        unless this is still the start: its records may recall known ones."""
        try:
            self._read_new_records(now_ms)
        except (OSError, StorageError) as error:
            if not self._is_start_read:
                raise
            self._unread.schedule_queue_retry(now_ms, error)

    def _read_new_records(self, now_ms: int) -> None:
        store = self._store
        left_count = _TAKE_MAX
        while left_count > 0:
            start, end = store.bounds(Topic.TIMER, 0)
            if self._listed:
                run = self._listed.next_run(_ENTRIES_READ)
                left_count -= len(run)
                first = max(run.start, start)
                entries = store.read_units(Topic.TIMER, 0, first, run.stop - first)
                self._read_entries(first, entries, now_ms)
                self._listed.drop_before(run.stop)
                continue
            self._taken = max(self._taken, start)
            entries = store.read_units(Topic.TIMER, 0, self._taken, _ENTRIES_READ)
            if not entries or len(self._heap) >= PENDING_MAX:
                self._has_more = False
                return
            self._read_entries(self._taken, entries, now_ms)
            left_count -= _ENTRIES_READ
        self._has_more = bool(self._listed) or self._taken < end

    def _read_entries(
        self, queue_offset: int, entries: list[tuple[int, int, int]], now_ms: int
    ) -> None:
        """Read the records of these entries of the timer's queue, from an offset on. If that fails,
        the next call continues with the record that failed."""
        for number, (log_offset, size, _) in enumerate(entries, queue_offset):
            try:
                source = self.deliverer.read_record(log_offset, size)
            except (OSError, StorageError) as error:
                self._unread.schedule_retry(number, UNKNOWN_KEY, now_ms, error)
                self._blocks.add(number)
            else:
                if source is not None:
                    self._try_to_schedule(source, number, now_ms)
                    slot_ms = earliest_slot(source.stored_ms, self._precision_ms)
                    self._unread_slot_ms = max(self._unread_slot_ms, slot_ms)
            if self._listed:
                self._listed.drop_before(number + 1)
            else:
                self._taken = number + 1

    def _retry_unread(self, unread: UnreadRecord, now_ms: int) -> None:
        """Retry a record that could not be read: make it due again, or, if its time is unknown,
        read it."""
        _, queue_offset, key = unread
        if key != UNKNOWN_KEY:
            heapq.heappush(self._heap, key)
            return
        try:
            source = self._read(queue_offset)
        except (OSError, StorageError) as error:
            self._unread.schedule_retry(queue_offset, UNKNOWN_KEY, now_ms, error)
            return
        count = len(self._heap)
        if source is not None:
            self._try_to_schedule(source, queue_offset, now_ms)
        if len(self._heap) == count:  # it does not wait
            self._blocks.remove(queue_offset)
        self._unread.forget_read(queue_offset)

    def _try_to_schedule(self, source: StoredMessage, queue_offset: int, now_ms: int) -> None:
        try:
            self._schedule_record(source, queue_offset, now_ms)
        except Exception as error:  # noqa: BLE001 - one record; set aside, those behind it go on
            self.deliverer.skip_record(source.log_offset, f"{type(error).__name__}: {error}")

    def _schedule_record(self, source: StoredMessage, queue_offset: int, now_ms: int) -> None:
        slot_ms = parse_number(source.properties.get(Property.TIMER_OUT_MS), most=LONG_MAX)
        if slot_ms is None:
            self.deliverer.skip_record(source.log_offset, "it has no delivery time")
            return
        key = delivery_key(delivery_ms(source, slot_ms), queue_offset)
        if queue_offset < self._before.taken and key < self._before.border:  # delivered before
            if self._is_of_rocketmq:
                self._past_deliveries.match_delivery(source)  # not to be matched with its twin
            return
        self.counts.add(source, 1, now_ms)
        if (replaced := self._rolls.note_pending(source, slot_ms, key)) is not None:
            self.counts.add(source, -1, now_ms)
            self._forget_key(replaced)
        recall = source.properties.get(Property.TIMER_DEL_UNIQKEY)
        if recall is None:
            if queue_offset >= self._before.taken:
                topic = source.properties.get(Property.REAL_TOPIC, "")
                self.delays.count_delay(topic, max(0, slot_ms - source.born_ms) // 1000)
        elif recall == recall_key(source):
            # Older releases accepted this property from clients, for messages of any topic.
            self.recalls.add(recall, source.properties[Property.TIMER_OUT_MS])
        heapq.heappush(self._heap, key)
        self.due_times.add(key >> OFFSET_BITS)
        self._blocks.add(queue_offset)

    def _forget_key(self, key: int) -> None:
        self.due_times.drop(key >> OFFSET_BITS)
        self._blocks.remove(key & OFFSET_MASK)

    # -- delivering ------------------------------------------------------------------------------

    def _read(self, queue_offset: int) -> StoredMessage | None:
        entries = self._store.read_units(Topic.TIMER, 0, queue_offset, 1)
        if not entries:
            self.deliverer.skip_record(-1, f"entry {queue_offset} of the timer's queue is gone")
            return None
        return self.deliverer.read_record(*entries[0][:2])

    def _process_due(self, queue_offset: int, now_ms: int) -> bool:
        source = self._read(queue_offset)
        if source is None:
            return True
        try:
            is_over = self._rolls.has_copy(source) or self.recalls.apply_to(source)
            is_over = is_over or self._past_deliveries.match_delivery(source)
            is_passed = is_over or self._deliver(source, now_ms)
            if is_passed:
                self.counts.add(source, -1, now_ms)
        except (OSError, StorageError):
            raise  # of the disk, not of the record
        except Exception as error:  # noqa: BLE001 - one record; set aside, those behind it go on
            self.deliverer.skip_record(source.log_offset, f"{type(error).__name__}: {error}")
            return True
        return is_passed

    def _deliver(self, source: StoredMessage, now_ms: int) -> bool:
        added = {
            Property.TIMER_ENQUEUE_MS: str(source.stored_ms),
            Property.TIMER_DEQUEUE_MS: str(now_ms),
        }
        return self.deliverer.deliver(source, restore_message(source, **added), now_ms)

    # -- progress --------------------------------------------------------------------------------

    def _current_progress(self, now_ms: int) -> TimerProgress:
        read_ms = now_ms
        if self._heap:
            key_ms = self._heap[0] >> OFFSET_BITS
            read_ms = min(read_ms, slot_before(key_ms - 1, self._precision_ms))
        if self._listed or self._taken < self._store.bounds(Topic.TIMER, 0)[1]:
            read_ms = min(read_ms, self._unread_slot_ms)
        if self._unread.count:  # its time may be unknown
            read_ms = 0
        if self._store.unseen_size:  # messages not visible yet may be late for their slot
            read_ms = min(read_ms, now_ms - _UNSEEN_MS)
        return TimerProgress(
            self._taken, self._border, self._oldest, read_ms - read_ms % self._precision_ms
        )

    @property
    def _is_progress_exact(self) -> bool:
        """Whether `border` separates delivered from undelivered records: no undelivered record has
        a lower key than a delivered one."""
        if self._unread.count or not self._is_settled:
            return False
        return not self._heap or self._heap[0] >= self._border

    def _note_progress(self, now_ms: int) -> None:
        """Record the progress now, if it is exact."""
        if self._is_progress_exact:
            self._unsaved.add(
                ProgressMark(
                    self._store.end_offset,
                    self._past_deliveries.scan_from,
                    self._current_progress(now_ms),
                )
            )

    def progress_for_slave(self, now_ms: int) -> bytes:
        """Return the progress for a slave: the 56 bytes of RocketMQ's TimerCheckpoint, followed by
        our part of the file if the progress is exact."""
        state = self._current_progress(now_ms)
        head = encode_head(state, now_ms, self._counter)
        if not self._is_progress_exact:
            return head
        return encode_both_parts(head, state, self._past_deliveries.scan_from)

    def content_to_save(self, now_ms: int) -> bytes | None:
        """Return the content of timercheck, up to durable deliveries; None if it was written
        already."""
        if self._unsaved.is_resave_due(self._store.end_offset):
            self._note_progress(now_ms)
        mark = self._unsaved.take_unsaved(self._store.irrevocable_offset)
        return None if mark is None else self._encode(mark, now_ms)

    def snapshot_to_save(self, now_ms: int) -> bytes | None:
        """Return the content of the snapshot file, if one is due and durable."""
        store, count = self._store, len(self._heap)
        behind = self._taken - self._oldest
        is_due = self._snapshots.is_due(now_ms, pending_count=count, behind=behind)
        if is_due and self._is_progress_exact:
            self._note_progress(now_ms)
            self._snapshots.add(
                self._encode_snapshot(self._taken, self._border),
                now_ms,
                pending_count=count,
                log_end=store.end_offset,
            )
        return self._snapshots.take(store.irrevocable_offset)

    def _encode_snapshot(self, taken: int, border: int) -> bytes:
        offsets = [key & OFFSET_MASK for key in self._heap]
        offsets += [unread.queue_offset for unread in self._unread.waiting]
        return timer_snapshot.encode(taken, border, [each for each in offsets if each < taken])

    def _encode(self, mark: ProgressMark[TimerProgress], now_ms: int) -> bytes:
        self._counter += 1
        head = encode_head(mark.state, now_ms, self._counter)
        return complete_file(encode_both_parts(head, mark.state, mark.scan_from))

    def _remove_rocketmq_timer(self, now_ms: int) -> None:
        """Delete RocketMQ's wheel and timer log once all their records are read; otherwise a
        RocketMQ broker that returns would deliver them again. The progress is saved first."""
        self._is_settled = True
        disk = self._store.disk
        if self._is_of_rocketmq:
            self._is_of_rocketmq = False
            self._heap = self._rolls.stop_replacing(self._heap)
            snapshot = self._encode_snapshot(self._before.taken, self._before.border)
            disk.replace(timer_snapshot.PATH, snapshot)
        if not (paths := rocketmq_files(disk)):
            return
        mark = ProgressMark(self._store.end_offset, self._past_deliveries.scan_from, self._before)
        disk.replace(PATH, self._encode(mark, now_ms))
        for path in paths:
            disk.remove(path)
