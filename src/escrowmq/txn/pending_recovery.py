"""Restores the index of pending transactions from the files: half queue, op queue, and final
records.

It also works on a store that RocketMQ has written. There, halves may have several copies, of which
the newest counts, and op records may have been lost, so that final records must be found in the
log."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

import msgspec

from escrowmq.base.fixed_limits import LONG_MAX
from escrowmq.base.message import Property, StoredMessage, SysFlag, Topic
from escrowmq.base.own_properties import CARRIED, MORE, OUTCOMES
from escrowmq.codec.properties import parse_number, property_value
from escrowmq.codec.record import decode_record
from escrowmq.errors import CorruptRecord
from escrowmq.store.consume_queue import GAP_SIZE
from escrowmq.store.store import Store
from escrowmq.store.walk import walk_log, walk_queue
from escrowmq.txn.bundle import bundle_of
from escrowmq.txn.carry_forward import note_carried
from escrowmq.txn.engine import TransactionEngine
from escrowmq.txn.half_identity import identity_of_final, identity_of_half, is_final_of
from escrowmq.txn.half_shape import ShapeCache
from escrowmq.txn.op_records import STATES, bundles_ended_in, decode_op
from escrowmq.txn.pending import HalfRun
from escrowmq.txn.pending_snapshot import PendingSnapshot
from escrowmq.txn.put_back_halves import PutBackHalves
from escrowmq.txn.state import State, Verdict
from escrowmq.txn.stored_halves import (
    ODD_COUNT,
    Entry,
    decode_halves,
    match_known_shapes,
    surviving_properties,
)

_log = logging.getLogger(__name__)

_READ_COUNT: Final = 4096
_STRETCH_SIZE: Final = 1 << 20
_AT_ONCE: Final = 2_048
_OPS_REMEMBERED: Final = 20_000
"""The number of op records before the needed ones that are read for their outcomes, so that
repeated or contradicting ENDs after a restart get the right answer."""


_UNIQ_KEY: Final = f"{Property.UNIQ_KEY}\x01".encode()


class HalvesRecoveryResult(msgspec.Struct):
    """What a recovery has found."""

    pending_count: int = 0
    ops_count: int = 0
    derived_count: int = 0
    """The number of ends that no op record names, found by their final records or by copies of
    discarded halves."""


class HalvesRecovery:
    """Restores the pending halves of an engine from its store. Call `run` once after the store was
    opened."""

    def __init__(self, engine: TransactionEngine, store: Store) -> None:
        self._engine = engine
        self._store = store
        self._progress = engine.progress
        self._halves = engine.halves
        self._done: dict[int, State] = {}
        self._shapes = ShapeCache()
        self._put_back: PutBackHalves | None = None
        self._half_next = self._op_next = 0
        """The next half and op record to read."""
        self._last_op_log_offset, self._now_ms = -1, 0
        self._is_last_op_ours = False

    def run(
        self,
        now_ms: int,
        *,
        half_offset: int,
        op_offset: int,
        is_sound: bool,
        snapshot: PendingSnapshot | None = None,
    ) -> HalvesRecoveryResult:
        """Read both queues from the saved progress on, or from a snapshot's end, and complete
        interrupted ends. `is_sound`: the store has reported no damage."""
        self._put_back = PutBackHalves(self._engine, self._store)
        found = self.read_only(
            now_ms,
            half_offset=half_offset,
            op_offset=op_offset,
            is_sound=is_sound,
            snapshot=snapshot,
        )
        found.derived_count = self._find_unrecorded_ends(is_sound=is_sound, now_ms=now_ms)
        found.pending_count = len(self._halves.pending)
        return found

    def read_only(
        self,
        now_ms: int,
        *,
        half_offset: int,
        op_offset: int,
        is_sound: bool,
        snapshot: PendingSnapshot | None = None,
    ) -> HalvesRecoveryResult:
        """Read both queues like `run`, but write nothing and complete no ends."""
        assert not len(self._halves.pending), "halves are recovered into an empty index"
        found = HalvesRecoveryResult()
        self._now_ms = now_ms
        # First counts, then ends, then halves: a half is entered with its count, and a half whose
        # end is not known yet would be entered as pending and checked again.
        self._halves.tally.load(self._queue_end(Topic.HALF))
        start = self._first_offset(Topic.HALF, half_offset)
        op_start = self._first_offset(Topic.OP, op_offset)
        self._progress.start_at(op_start)
        if not is_sound or not self._is_snapshot_usable(snapshot, start, op_start):
            snapshot = None
        if snapshot is not None:
            op_start = self._skip_covered_ops(snapshot)
        self._load_recent_outcomes(
            self._first_offset(Topic.OP, op_start - _OPS_REMEMBERED), op_start
        )
        found.ops_count = self._read_ops(op_start, start)
        if snapshot is not None:
            self._read_listed([offset for offset in snapshot.pending if offset >= start])
            start = snapshot.half_end
        self._read_halves(start)
        self._done.clear()
        return found

    # -- a copy of another broker's log ------------------------------------------------------

    def read_appended(self, now_ms: int) -> None:
        """Read the halves and op records that were appended since the last call."""
        self._now_ms = now_ms
        # The first ones of a copy that joins late are those with which its master's log begins.
        self._half_next = max(self._half_next, self._store.bounds(Topic.HALF, 0)[0])
        self._op_next = max(self._op_next, self._store.bounds(Topic.OP, 0)[0])
        self._read_ops(self._op_next, self._half_next)
        self._read_halves(self._half_next)
        self._done.clear()

    def continue_from(
        self, other: HalvesRecovery, now_ms: int, *, is_sound: bool
    ) -> HalvesRecoveryResult:
        """Continue where another recovery has stopped, instead of reading the queues from their
        start: while this broker was a replica, that one has filled the same halves from the same
        log. Then complete interrupted ends. `is_sound`: the store has reported no damage."""
        self._half_next, self._op_next = other._half_next, other._op_next
        self._last_op_log_offset = other._last_op_log_offset
        self._is_last_op_ours = other._is_last_op_ours
        self._halves.tally.load(self._queue_end(Topic.HALF))
        self.read_appended(now_ms)
        derived_count = self._find_unrecorded_ends(is_sound=is_sound, now_ms=now_ms)
        return HalvesRecoveryResult(len(self._halves.pending), derived_count=derived_count)

    def _is_snapshot_usable(
        self, snapshot: PendingSnapshot | None, start: int, op_start: int
    ) -> bool:
        """Whether a snapshot belongs to this store, and shortens the reading."""
        return (
            snapshot is not None
            and start < snapshot.half_end <= self._store.bounds(Topic.HALF, 0)[1]
            and op_start < snapshot.op_end <= self._store.bounds(Topic.OP, 0)[1]
        )

    def _skip_covered_ops(self, snapshot: PendingSnapshot) -> int:
        """Skip the op records before the snapshot's end. Return where to continue."""
        last = snapshot.op_end - 1
        # They may name any half before its end, so they stay needed until all those are settled.
        self._progress.add_op_record(last, [snapshot.half_end - 1])
        for log_offset, _, _ in self._store.read_units(Topic.OP, 0, last, 1):
            self._last_op_log_offset, self._is_last_op_ours = log_offset, True
        return snapshot.op_end

    def _read_listed(self, queue_offsets: list[int]) -> None:
        """Read the halves at these queue offsets; adjacent ones in one read."""
        for _, group in groupby(enumerate(queue_offsets), key=lambda pair: pair[1] - pair[0]):
            offsets = [queue_offset for _, queue_offset in group]
            for first in range(0, len(offsets), _READ_COUNT):
                begin = offsets[first]
                count = len(offsets[first : first + _READ_COUNT])
                for stretch in _contiguous_groups(
                    self._store.read_units(Topic.HALF, 0, begin, count)
                ):
                    self._read_consecutive(begin, stretch)
                    begin += len(stretch)

    def _first_offset(self, topic: str, offset: int) -> int:
        low, high = self._store.bounds(topic, 0)
        return min(max(low, offset), high)

    def _queue_entries(self, topic: str, queue_offset: int) -> list[Entry]:
        """Return entries of a queue from an offset on. After the queue's end, return those of
        stored records that have no entry yet, because it cannot be written."""
        entries = self._store.read_units(topic, 0, queue_offset, _READ_COUNT)
        return entries or self._store.dispatcher.unseen_entries(topic, queue_offset)

    def _queue_end(self, topic: str) -> int:
        """Return the queue offset after the last record of a queue, with an entry or without."""
        end = self._store.bounds(topic, 0)[1]
        return end + len(self._queue_entries(topic, end))

    def _load_recent_outcomes(self, op_offset: int, op_end: int) -> None:
        """Record the outcomes in op records that are not needed otherwise."""
        record_outcome = self._halves.ledger.record_outcome
        for op in walk_queue(self._store, Topic.OP, op_offset, op_end):
            for half_offset, letter in decode_op(op):
                record_outcome(half_offset, STATES[letter])
            self._note_ended_bundles(op)

    def _note_ended_bundles(self, op: StoredMessage) -> None:
        for digest, state in bundles_ended_in(op):
            self._halves.bundles.note_ended(digest, state)

    def _read_ops(self, op_offset: int, half_start: int) -> int:
        count = 0
        while entries := self._queue_entries(Topic.OP, op_offset):
            for log_offset, size, _ in entries:
                try:
                    message = decode_record(self._store.read_record(log_offset, size))
                except CorruptRecord as error:
                    _log.error("op record %d is skipped: %s", op_offset, error)
                    op_offset += 1
                    continue
                named = decode_op(message)
                for half_offset, letter in named:
                    self._halves.ledger.record_outcome(half_offset, STATES[letter])
                    if half_offset >= half_start:
                        self._done[half_offset] = STATES[letter]
                    elif half_offset in self._halves.pending:
                        self._halves.remove_settled_elsewhere(half_offset)
                self._note_ended_bundles(message)
                self._progress.add_op_record(op_offset, [half_offset for half_offset, _ in named])
                # MORE says that another record of the same input should follow. If that one was
                # lost, finals before this record may have no op record, and must be found.
                if MORE not in message.properties:
                    self._last_op_log_offset = log_offset
                    self._is_last_op_ours = OUTCOMES in message.properties
                op_offset += 1
                count += 1
        self._op_next = op_offset
        return count

    def _read_halves(self, queue_offset: int) -> None:
        while entries := self._queue_entries(Topic.HALF, queue_offset):
            for stretch in _contiguous_groups(entries):
                self._read_consecutive(queue_offset, stretch)
                queue_offset += len(stretch)
        self._half_next = queue_offset

    def _read_consecutive(self, first: int, entries: list[Entry]) -> None:
        """Read consecutive halves in one read, verify and add them. The first entry has the given
        queue offset."""
        begin, end = entries[0][0], entries[-1][0] + entries[-1][1]
        # The entry of a gap in the log is larger than any segment. A whole segment would be read.
        data = b"" if end - begin >= GAP_SIZE else self._store.log.read(begin, end - begin)
        if self._put_back is not None:
            self._put_back.note_read(first, len(entries), data)
        nth, has_no_tally = 0, self._halves.tally.is_empty
        while nth < len(entries):
            if has_no_tally:
                nth = self._add_known_shapes(data, first, entries, nth)
            some = entries[nth : nth + ODD_COUNT]
            self._read_each(data, entries[0][0], first + nth, some)
            nth += len(some)

    def _add_known_shapes(self, data: bytes, first: int, entries: list[Entry], nth: int) -> int:
        """Add halves from the nth on that are plain and of known shapes. Return the index of the
        first half that is not."""
        all_ms, alike = match_known_shapes(data, entries[0][0], entries, first, nth, self._shapes)
        done, now_ms, at = self._done, self._now_ms, 0
        for known, group in groupby(alike):
            if not known.shape.is_plain:
                break
            begin, count = at, len(list(group))
            at += count
            numbers = range(first + nth + begin, first + nth + at)
            places = [log_offset for log_offset, _, _ in entries[nth + begin : nth + at]]
            times_ms = all_ms[begin:at]
            if max(times_ms) > now_ms:  # a clock was ahead
                times_ms = [min(stored_ms, now_ms) for stored_ms in times_ms]
            run = HalfRun(known.shape)
            if done.keys().isdisjoint(numbers):
                run.extend(numbers, places, times_ms)
            else:
                for number, place, stored_ms in zip(numbers, places, times_ms, strict=True):
                    if number not in done:
                        run.add(number, place, stored_ms)
            self._halves.add_half_run(run)
        return nth + at

    def _read_each(self, data: bytes, base: int, first: int, entries: list[Entry]) -> None:
        run, now_ms, has_no_tally = HalfRun(), self._now_ms, self._halves.tally.is_empty
        for number, log_offset, size, shape, stored_ms, properties_at in decode_halves(
            data, base, entries, first, done=self._done, shapes=self._shapes
        ):
            if shape is None:
                self._read_half(number, log_offset, size)
                continue
            if shape is not run.shape:
                self._halves.add_half_run(run)
                run = HalfRun(shape)
            if shape.is_plain and has_no_tally:
                run.add(number, log_offset, min(stored_ms, now_ms))
            else:
                encoded = data[properties_at : log_offset - base + size]
                key = property_value(encoded, _UNIQ_KEY).decode("utf-8", "replace")
                properties = {**shape.properties, Property.UNIQ_KEY: key}
                self._add_half(number, properties, log_offset, stored_ms)
        self._halves.add_half_run(run)

    def _read_half(self, queue_offset: int, log_offset: int, size: int) -> None:
        try:
            half = decode_record(self._store.read_record(log_offset, size))
        except CorruptRecord as error:
            self._halves.put_in_quarantine(queue_offset, str(error))
            # The rest of its transaction must not be committed without it.
            data = b"" if size >= GAP_SIZE else self._store.log.read(log_offset, size)
            self._halves.bundles.note_broken(bundle_of(surviving_properties(data)))
            return
        self._add_half(queue_offset, half.properties, log_offset, half.stored_ms)

    def _add_half(
        self, queue_offset: int, properties: dict[str, str], log_offset: int, stored_ms: int
    ) -> None:
        if CARRIED in properties:
            first_ms = parse_number(properties[CARRIED].rpartition(":")[2], most=LONG_MAX)
            stored_ms = stored_ms if first_ms is None else min(first_ms, stored_ms)
        try:
            self._halves.add_half(
                properties,
                queue_offset=queue_offset,
                log_offset=log_offset,
                stored_ms=min(stored_ms, self._now_ms),  # the clock may have been wrong then
                origin="",
            )
        except Exception as error:  # noqa: BLE001 - one half; set aside, the broker starts
            self._halves.put_in_quarantine(queue_offset, f"{type(error).__name__}: {error}")
            self._halves.bundles.note_broken(bundle_of(properties))
            return
        if CARRIED in properties:
            self._replace_copies(properties, queue_offset, log_offset)
        if properties.get(Property.UNIQ_KEY) and (
            Property.TRANSACTION_CHECK_TIMES in properties
            or Property.TRAN_PREPARED_QUEUE_OFFSET in properties
        ):
            self._halves.note_alias(identity_of_half(properties), queue_offset)

    def _replace_copies(
        self, properties: dict[str, str], queue_offset: int, log_offset: int
    ) -> None:
        """Let a carried half replace its earlier copies, even if the broker crashed before it wrote
        the op record."""
        pending = self._halves.pending
        first = parse_number(properties[CARRIED].partition(":")[0], most=LONG_MAX)
        if (
            first is not None
            and first in pending
            and not pending.share_group_and_topic(first, queue_offset)
        ):
            return  # older releases accepted this property from clients
        old = note_carried(self._halves, properties, queue_offset, log_offset)
        if old != queue_offset and old in pending:
            self._engine.supersede(old, queue_offset)

    def _find_unrecorded_ends(self, *, is_sound: bool, now_ms: int) -> int:
        """Find and record ends that no op record names. The log shows them by final records, and by
        copies of discarded halves. Return their number."""
        engine = self._engine
        oldest = engine.halves.pending.oldest_offset()
        if oldest is None:
            return 0
        start = engine.halves.pending.log_offset(oldest)
        if self._is_last_op_ours and is_sound:
            # We append the op record in the same input, so only the last ends can lack one.
            start = max(start, self._last_op_log_offset)
        if self._put_back is not None:  # only now: finals may be before the newest copy
            self._put_back.supersede_older()
        finals = walk_log(self._store, start, kind=SysFlag.COMMIT)
        count = self._record_ends(Verdict.COMMIT, map(self._half_of_final, finals), now_ms)
        discards = map(self._half_of_discard, self._discarded_messages(start))
        count += self._record_ends(Verdict.EXPIRE, discards, now_ms)
        if engine.unsealed:
            engine.unsealed.seal(now_ms)
            self._sync_log(now_ms)
        return count

    def _record_ends(self, verdict: Verdict, found: Iterable[int | None], now_ms: int) -> int:
        """Record these halves as ended, and complete their bundles. Return their number."""
        engine, count = self._engine, 0
        incomplete: set[int] = set()
        for queue_offset in found:
            if queue_offset is not None:
                # Look up its bundle first: an ended half no longer belongs to it.
                incomplete.update(engine.halves.bundles.members(queue_offset))
                engine.mark_ended(queue_offset, verdict, now_ms)
                count += 1
        pending = engine.halves.pending
        # Only now, because records of a bundle may be anywhere after its first.
        members = sorted(each for each in incomplete if each in pending)
        engine.complete_partial(members, verdict, now_ms)
        return count

    def _discarded_messages(self, log_offset: int) -> Iterator[StoredMessage]:
        """Yield discarded messages from a log offset on. On a full disk some have no queue entry
        yet."""
        topic, store = Topic.CHECK_MAX_TIME, self._store

        def place_of(queue_offset: int) -> int:
            entries = store.read_units(topic, 0, queue_offset, 1)
            return entries[0][0] if entries else -1  # a file of the queue may be gone

        low, end = store.bounds(topic, 0)
        first = low + bisect_left(range(low, end), log_offset, key=place_of)
        yield from walk_queue(store, topic, first, end)
        for place, _, _ in self._queue_entries(topic, end):
            if place >= log_offset and (discard := store.read(place)) is not None:
                yield discard

    def _half_of_discard(self, discard: StoredMessage) -> int | None:
        """Return the pending half of which a discarded message is the copy; None if there is
        none."""
        pending, like = self._halves.pending, identity_of_half(discard.properties)
        named = discard.prepared_log_offset
        half = self._store.read(named)
        is_half = half is not None and half.topic == Topic.HALF
        if half is not None and is_half and identity_of_half(half.properties) == like:
            number = half.queue_offset
            if pending.log_offset(number) == named:
                return number
        # RocketMQ's record names no half. A copy that was resumed later is not the one it is about.
        alias = self._halves.aliases.get(like)
        if named or alias is None or alias not in pending:
            return None
        return alias if pending.log_offset(alias) < discard.log_offset else None

    def _sync_log(self, now_ms: int) -> None:
        """Sync the log if it has SYNC_FLUSH. Without that, the first message of a transaction that
        is completed here would become visible before the others."""
        sync = self._store.next_sync(now_ms)
        if sync is not None:
            for file in sync.files:
                file.sync()
            self._store.sync_finished(sync.log_offset, now_ms)

    def _half_of_final(self, final: StoredMessage) -> int | None:
        """Return the pending half, or its pending copy, that a final record commits; None if there
        is none."""
        pending, like = self._halves.pending, identity_of_final(final)
        if not is_final_of(final, like):
            return None
        half = self._store.read(final.prepared_log_offset)
        if half is not None and (
            half.topic != Topic.HALF or identity_of_half(half.properties) != like
        ):
            return None
        if half is not None and pending.log_offset(half.queue_offset) == half.log_offset:
            return half.queue_offset
        # A message that was delivered after a delay names offset 0; its delayed form names the
        # half.
        if half is None and not final.prepared_log_offset:
            return None
        alias = self._halves.aliases.get(like)
        return alias if alias is not None and alias in pending else None


def _contiguous_groups(entries: list[Entry]) -> Iterator[list[Entry]]:
    """Yield groups of entries whose records are consecutive in the log, up to some size. Offsets
    rise, so a group whose length equals the sum of its sizes has no gap. Measured: 0.05 us each,
    where checking each entry takes 0.3."""
    for first in range(0, len(entries), _AT_ONCE):
        some = entries[first : first + _AT_ONCE]
        size = sum([size for _, size, _ in some])
        (begin, _, _), (last, last_size, _) = some[0], some[-1]
        if size == last + last_size - begin and size <= _STRETCH_SIZE:
            yield some
        else:
            yield from _split_at_gaps(some)


def _split_at_gaps(entries: list[Entry]) -> Iterator[list[Entry]]:
    first = total = 0
    for at, (log_offset, size, _) in enumerate(entries):
        if log_offset != entries[first][0] + total or total > _STRETCH_SIZE:
            yield entries[first:at]
            first, total = at, 0
        total += size
    yield entries[first:]
