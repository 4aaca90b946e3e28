"""Makes records visible: adds them to consume queues and index, and reports them as arrived."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from escrowmq.base.fixed_limits import LONG_MAX, RUNS_SHOWN_AT_ONCE
from escrowmq.base.message import Message, Property, SysFlag, split_keys
from escrowmq.codec.hashes import java_hash, tags_code
from escrowmq.codec.properties import parse_number
from escrowmq.errors import DiskFull, StorageError
from escrowmq.store.commit_log import CommitLog
from escrowmq.store.consume_queue import ConsumeQueue
from escrowmq.store.encoding import Piece
from escrowmq.store.held_back import RETRY_MS, HeldBackQueues, HeldUnit, stall_reason
from escrowmq.store.index import Index
from escrowmq.store.index_chains import KEY, KEY_SIZE, index_key
from escrowmq.store.log_ends import LogEnds
from escrowmq.store.results import Arrival, PutResult
from escrowmq.store.unseen import QueueUnits, Unseen, UnseenRecord, UnseenRun

_log = logging.getLogger(__name__)

_KEYS_BATCH_SIZE: Final = 256 * KEY_SIZE

KEYS_WAITING_MAX: Final = 1_000_000
"""Index keys, 20 bytes each, that wait in memory for an index that cannot be written. If there are
more, the index is given up until the next start."""


class Dispatcher:
    """Makes records visible: writes units and index entries in the log's order, up to
    `LogEnds.visible_end`. On a full disk it stalls, and continues when there is space. A queue that
    cannot be written for another reason is held back, and the others go on. Nothing is lost,
    because all of it can be derived from the log."""

    def __init__(
        self,
        log: CommitLog,
        ends: LogEnds,
        index: Index | None,
        delays_ms: dict[int, int],
    ) -> None:
        self._log = log
        self._ends = ends
        self._whole_index = index
        self.index = index
        """The index that gets the keys of new records; None if there is none, or it was given
        up."""
        self.waiting: deque[Unseen] = deque()
        self.held_back = HeldBackQueues()
        self.dispatched_offset = 0
        self.dispatched_ms = 0
        self.stalled: str | None = None
        self.delays_ms = delays_ms
        self.arrivals: list[Arrival] = []
        """Visible messages of awaited queues that were not reported yet."""
        self.is_awaited: Callable[[str, int], bool] = _always_awaited
        """Returns whether anything waits for the messages of a queue (`report_only_awaited`)."""
        self._keys = bytearray()
        self._keys_flushed_at = _KEYS_BATCH_SIZE
        """The size of the collected keys from which on they are written without being asked for."""
        self._keys_retry_ms = 0
        self._given_up_from: tuple[int, int] | None = None
        """Log offset and store time of the first record without keys in a given-up index."""
        self.keys_count = 0
        """The number of entries added to the index."""

    def report_only_awaited(self, is_awaited: Callable[[str, int], bool]) -> None:
        """From now on, report only messages of queues that something waits for when they become
        visible. Most queues have no waiting consumer."""
        self.is_awaited = is_awaited

    def take_arrivals(self) -> list[Arrival]:
        """Return the messages to report, and clear them.

        Index keys are not written here. They stay collected until there are enough, or a query
        arrives, or a flush round begins: one by one they would cost three times as much. Recovery
        adds those that a killed process did not write.
        """
        found = self.arrivals.copy()
        self.arrivals.clear()
        return found

    def start(self, log_end: int, stored_ms: int, stalled: Sequence[UnseenRecord]) -> None:
        """Start after a recovery that has dispatched the whole log, except the `stalled` records,
        which a full disk had no space for."""
        self.dispatched_offset, self.dispatched_ms = log_end, stored_ms
        if stalled:
            first = stalled[0]
            self.dispatched_offset, self.dispatched_ms = first.log_offset, first.stored_ms
            self.stall("the disk is full", stalled)

    def stall(self, reason: str, items: Sequence[Unseen] = ()) -> None:
        """Stop dispatching for this reason, and let these items wait."""
        self.stalled = reason
        self.waiting.extend(items)

    def enqueue(self, items: Iterable[Unseen]) -> None:
        """Let items wait to become visible, after all that wait already."""
        self.waiting.extend(items)

    @property
    def has_due_items(self) -> bool:
        """Whether `dispatch_waiting` has more to do now."""
        if not self.waiting or self.stalled is not None:
            return False
        return self.waiting[0].needed_visible_end <= self._ends.visible_end

    @property
    def is_overdue(self) -> bool:
        """Whether the first waiting item should be visible to consumers already. Call it only if
        items wait."""
        return (
            self.stalled is not None or self.waiting[0].needed_visible_end <= self._ends.visible_end
        )

    @property
    def waiting_size(self) -> int:
        """The size of the log that waits to become visible, without the queues held back."""
        return self._log.end_offset - self._waiting_from

    @property
    def unseen_size(self) -> int:
        """The size of the log from the first record on that consumers cannot see yet."""
        return self._log.end_offset - self.unseen_from

    @property
    def unseen_from(self) -> int:
        """The log offset from which on consumers may not see the records."""
        return self._before_held_back(self._waiting_from)

    @property
    def _waiting_from(self) -> int:
        return self.waiting[0].log_offset if self.waiting else self._log.end_offset

    def _before_held_back(self, log_offset: int) -> int:
        held = self.held_back.first
        return log_offset if held is None else min(log_offset, held.log_offset)

    @property
    def derived_offset(self) -> int:
        """The log offset before which all records have their units and index entries."""
        return min(self._before_held_back(self.dispatched_offset), self._first_unindexed[0])

    @property
    def derived_ms(self) -> int:
        """The store time of the last record before which all have their units and index entries."""
        held, found = self.held_back.first, min(self.dispatched_ms, self._first_unindexed[1])
        return found if held is None else min(found, held.stored_ms)

    @property
    def underived_from(self) -> int:
        """The log offset from which on records may lack units or index entries."""
        return min(self.unseen_from, self._first_unindexed[0])

    @property
    def _first_unindexed(self) -> tuple[int, int]:
        """Log offset and store time of the first record whose keys are not in the index; the
        largest numbers if all are."""
        if self._given_up_from is not None:
            return self._given_up_from
        return KEY.unpack_from(self._keys)[1:] if self._keys else (LONG_MAX, LONG_MAX)

    def unseen_entries(self, topic: str, queue_offset: int) -> list[tuple[int, int, int]]:
        """Return the records of the first queue of a topic that have no unit yet, from a queue
        offset on: log offset, record size, tags code (0 if it is not known)."""
        return [
            *self.held_back.entries(topic, queue_offset),
            *[
                (item.log_offset, item.record_size, 0)
                for item in self.waiting
                if isinstance(item, UnseenRecord)  # runs come later
                and item.message.topic == topic
                and item.queue_offset >= queue_offset
            ],
        ]

    def detach_queues(self, doomed: Collection[ConsumeQueue]) -> None:
        """Detach waiting records from queues that will be removed. They are still added to the
        index."""
        self.held_back.forget(doomed)
        for at, item in enumerate(self.waiting):
            if isinstance(item, UnseenRun):
                self.waiting[at] = item.without_queues(doomed)
            elif item.queue in doomed:
                self.waiting[at] = item._replace(queue=None)

    def make_visible(
        self,
        queue: ConsumeQueue | None,
        message: Message,
        queue_offset: int,
        log_offset: int,
        record_size: int,
    ) -> None:
        """Make the newest record visible, now or when it may be.

        The arguments are positional, for speed: this is called for each message.
        """
        stored_ms = self._log.stored_ms
        # A new record may be seen if everything before it may: then nothing has to be waited for.
        if not self.waiting and log_offset < self._ends.visible_end:
            try:
                self.dispatch(queue, message, queue_offset, log_offset, record_size, stored_ms)
            except (StorageError, OSError) as error:
                self.stalled = str(error)
            else:
                return
        if queue is not None:
            queue.set_next_offset(queue_offset + 1)
        self.waiting.append(
            UnseenRecord(queue, message, queue_offset, log_offset, record_size, stored_ms)
        )

    def make_run_visible(self, run: UnseenRun) -> None:
        """Make the newest records visible, now or when they may be."""
        if self.waiting or run.needed_visible_end > self._ends.visible_end:
            self.waiting.append(run)
            return
        try:
            self._dispatch_unseen(run)
        except (StorageError, OSError) as error:
            # A queue that alone cannot be written is found by `dispatch_waiting`, and held back.
            self.stalled = stall_reason(error)

    def dispatch_waiting(self, runs_max: int = RUNS_SHOWN_AT_ONCE) -> None:
        """Dispatch the waiting records that may be visible, but at most this many parts of long
        batches."""
        waiting, seen_until = self.waiting, self._ends.visible_end
        try:
            while waiting and waiting[0].needed_visible_end <= seen_until:
                first = waiting[0]
                if isinstance(first, UnseenRecord):
                    self.dispatch(*first)
                    waiting.popleft()
                elif isinstance(first, UnseenRun):
                    # Removed first: records without space are put back in front, one by one.
                    waiting.popleft()
                    self._dispatch_unseen(first)
                elif runs_max > 0:
                    runs_max -= 1
                    waiting.popleft()
                    waiting.extendleft(reversed(first.single_dispatches()))
                else:
                    break
            self.stalled = None
        except (StorageError, OSError) as error:
            self.stalled = stall_reason(error)  # as in `make_run_visible`

    def wake(self, now_ms: int) -> None:
        """Do the work that is due: what stalled, what waits, and what was held back."""
        if self._is_index_failing and now_ms >= self._keys_retry_ms:
            self._keys_retry_ms = now_ms + RETRY_MS
            self.flush_keys()
        if self.stalled or self.waiting:
            self.dispatch_waiting()
        if now_ms >= self.held_back.retry_at_ms:
            self.show_held_back(now_ms)

    def show_held_back(self, now_ms: int) -> None:
        """Make visible what was held back, as far as its queues can be written."""
        for queue, (queue_offset, log_offset, size, code, stored_ms) in self.held_back.write_again(
            now_ms
        ):
            topic, queue_id = queue.topic, queue.queue_id
            if self.is_awaited(topic, queue_id):
                at = queue_offset, code, stored_ms, log_offset, size
                self.arrivals.append(Arrival(topic, queue_id, *at))

    def dispatch(
        self,
        queue: ConsumeQueue | None,
        message: Message,
        queue_offset: int,
        log_offset: int,
        record_size: int,
        stored_ms: int,
    ) -> None:
        """Dispatch one record now; only hold its unit back if its queue cannot be written. Raises
        StorageError or OSError, with nothing done, when no queue can (`stall_reason`).

        The arguments are positional, for speed: this is called for each message.
        """
        properties = message.properties
        if queue is not None:
            tags = properties.get("TAGS")
            code = tags_code(tags) if tags else 0
            if queue.is_schedule:
                code = schedule_unit_code(properties, stored_ms, code, self.delays_ms)
            held_back, failure = self.held_back, None
            is_held = queue in held_back.units
            if not is_held:
                try:
                    queue.append_at(queue_offset, log_offset, record_size, code)
                except (StorageError, OSError) as error:
                    if stall_reason(error) is not None:
                        raise
                    is_held, failure = True, error
            topic, queue_id = message.topic, message.queue_id
            if is_held:
                unit = HeldUnit(queue_offset, log_offset, record_size, code, stored_ms)
                held_back.add(queue, unit, failure)
            elif self.is_awaited(topic, queue_id):
                at = queue_offset, code, stored_ms, log_offset, record_size
                self.arrivals.append(Arrival(topic, queue_id, *at))
        self.dispatched_offset = log_offset + record_size
        self.dispatched_ms = stored_ms
        if self.index is not None:
            if message.sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.ROLLBACK:
                return  # as in RocketMQ: dropped records must not be found
            prefix = java_hash(f"{message.topic}#") if queue is None else queue.key_prefix
            self._collect_keys(prefix, properties, log_offset, stored_ms)
            if len(self._keys) >= self._keys_flushed_at:
                self.flush_keys()

    def dispatch_batch(
        self, queue: ConsumeQueue, message: Message, pieces: Sequence[Piece], puts: list[PutResult]
    ) -> bool:
        """Dispatch the records of a batch now. Return False, with nothing done, when they must
        wait."""
        is_unseen = puts[0].log_offset >= self._ends.visible_end  # as in `make_visible`
        if is_unseen or self.waiting or queue.is_schedule or queue in self.held_back.units:
            return False
        codes = [tags_code(piece[3].get("TAGS", "")) for piece in pieces]
        places = [(put.log_offset, put.record_size) for put in puts]
        first, last = puts[0], puts[-1]
        assert queue.end == first.queue_offset, (queue.end, first.queue_offset)
        try:
            queue.append_run(
                [(at, size, code) for (at, size), code in zip(places, codes, strict=True)]
            )
        except (StorageError, OSError) as error:
            self.stalled = stall_reason(error)  # as in `make_run_visible`
            return False
        topic, queue_id, stored_ms = message.topic, message.queue_id, last.stored_ms
        if self.is_awaited(topic, queue_id):
            self.arrivals += [
                Arrival(topic, queue_id, put.queue_offset, code, stored_ms, at, size)
                for put, code, (at, size) in zip(puts, codes, places, strict=True)
            ]
        self.dispatched_offset, self.dispatched_ms = last.log_end, stored_ms
        if self.index is not None:
            for (_, _, _, properties), put in zip(pieces, puts, strict=True):
                self._collect_keys(queue.key_prefix, properties, put.log_offset, put.stored_ms)
            if len(self._keys) >= self._keys_flushed_at:
                self.flush_keys()
        return True

    def _collect_keys(
        self, prefix: int, properties: Mapping[str, str], log_offset: int, stored_ms: int
    ) -> None:
        unique, keys = properties.get("UNIQ_KEY"), properties.get("KEYS")
        if unique:
            self._keys += index_key(prefix, unique, log_offset, stored_ms)
        if keys:
            for key in split_keys(keys):
                self._keys += index_key(prefix, key, log_offset, stored_ms)

    def note_run_dispatched(self, end: int, stored_ms: int, keys: bytes | bytearray) -> None:
        """Note that all units up to a log offset are written, and collect the records' index
        keys."""
        self.dispatched_offset, self.dispatched_ms = end, stored_ms
        if self.index is not None:
            self._keys += keys
            if len(self._keys) >= self._keys_flushed_at:
                self.flush_keys()

    def _dispatch_unseen(self, run: UnseenRun) -> None:
        """Dispatch a run now. If a queue cannot be written, the queues before it in the run still
        become visible, and the other records wait, one by one."""
        for nth, (queue, topic, queue_id, first, units) in enumerate(run.parts):
            if queue is None:
                continue
            if queue in self.held_back.units:
                self._put_back(run, nth)
                return
            assert queue.end == first, (queue.end, first)
            try:
                queue.put_units(units)
            except (StorageError, OSError):
                self._put_back(run, nth)
                raise
            if self.is_awaited(topic, queue_id):
                self.add_arrivals(run.parts[nth], run.stored_ms)
        self.note_run_dispatched(run.needed_visible_end, run.stored_ms, run.keys)

    def _put_back(self, run: UnseenRun, nth: int) -> None:
        """Let the records of a run from its nth part on wait, one by one."""
        waiting, keys = run.rest_from_part(nth)
        self.waiting.extendleft(reversed(waiting))
        # Only before this offset do all records have units.
        self.note_run_dispatched(waiting[0].log_offset, run.stored_ms, keys)

    def add_arrivals(self, part: QueueUnits, stored_ms: int) -> None:
        """Report records of a run that became visible."""
        self.arrivals += part.arrivals(stored_ms)

    def flush_keys(self) -> None:
        """Write the collected index entries. If the index cannot be written, they stay
        collected."""
        self.keys_count += self._write_keys()

    def _write_keys(self) -> int:
        """Write the collected index entries; return how many were written."""
        if not self._keys:
            return 0
        assert self.index is not None, "keys are collected for it alone"
        keys, self._keys = self._keys, bytearray()
        before = len(keys)
        try:
            self.index.put(keys)
        except (StorageError, OSError) as error:
            self._keys = keys
            self._keep_keys(error)
        else:
            self._keys_flushed_at = _KEYS_BATCH_SIZE
            if not self.waiting:  # else the units may lack space; `dispatch_waiting` finds out
                self.stalled = None
        return (before - len(keys)) // KEY_SIZE

    @property
    def _is_index_failing(self) -> bool:
        """Whether the index could not be written the last time."""
        return self._keys_flushed_at > _KEYS_BATCH_SIZE

    def _keep_keys(self, error: Exception) -> None:
        """Keep the keys that the index could not take, unless there are too many of them."""
        self.stalled = str(error)
        if len(self._keys) >= KEYS_WAITING_MAX * KEY_SIZE:
            _log.error(
                "new messages are not found by their keys until the next start: %d keys wait for "
                "the index, and it cannot be written: %s", len(self._keys) // KEY_SIZE, error,
            )  # fmt: skip
            self._given_up_from = self._first_unindexed
            self.index, self._keys, self.stalled = None, bytearray(), None
        elif not self._is_index_failing:
            # From now on `wake` tries it: with each batch, it would cost more and more.
            self._keys_flushed_at = KEYS_WAITING_MAX * KEY_SIZE
            if not isinstance(error, DiskFull):
                _log.error("new messages are not found by their keys for now: %s", error)

    def index_recovered_keys(self, keys: bytearray) -> None:
        """Add keys that recovery found missing. If the index cannot be written, they stay collected
        as those of new records do: it keeps no broker from starting."""
        if self.index is None:
            return  # it was given up
        self._keys += keys
        if not self._is_index_failing or len(self._keys) >= self._keys_flushed_at:
            self._write_keys()

    def drop_collected_keys(self) -> None:
        """Drop the collected index keys, because recovery will find them again."""
        self._keys, self.stalled, self._given_up_from = bytearray(), None, None
        self.index, self._keys_flushed_at = self._whole_index, _KEYS_BATCH_SIZE


def _always_awaited(_topic: str, _queue_id: int) -> bool:
    return True


def schedule_unit_code(
    properties: dict[str, str], stored_ms: int, code: int, delays_ms: dict[int, int]
) -> int:
    """Return the value that a unit of the schedule topic has in place of a tags code: the delivery
    time."""
    delay = parse_number(properties.get(Property.DELAY), most=LONG_MAX)
    if not delay or not delays_ms:
        return code
    # As RocketMQ (CommitLog.checkMessageAndReturnSize): a level too high is the highest.
    return stored_ms + delays_ms[min(delay, max(delays_ms))]
