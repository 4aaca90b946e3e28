"""Deletes old messages, by age and by space on the disk."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from datetime import datetime, tzinfo
from functools import lru_cache
from typing import Final, NamedTuple

from escrowmq.errors import StorageError, UsageError
from escrowmq.store.disk_watch import DiskWatch
from escrowmq.store.queue_snapshot import save_log_begin
from escrowmq.store.store_parts import StoreState

_log = logging.getLogger(__name__)

_HOUR_MS: Final = 3_600_000
_LAST_HOUR: Final = 23
_HOUR: Final = re.compile(r"[0-9]{1,2}")
_LOOK_AGAIN_MS: Final = 1_000
"""The pause before the next attempt to delete segments that were still needed."""

_TRIMMED_AT_ONCE: Final = 256
"""The most queues that are trimmed in one turn."""

_MANUAL_ROUNDS: Final = 20


def hour_function(zone: tzinfo) -> Callable[[int], int]:
    """Return a function that returns the hour of the day in a time zone."""
    return lambda now_ms: datetime.fromtimestamp(now_ms / 1000, zone).hour


@lru_cache(maxsize=8)
def parse_hours(text: str) -> frozenset[int]:
    """Return the hours that deleteWhen names. Invalid ones never match."""
    return frozenset(int(part) for part in _split_hours(text) if _HOUR.fullmatch(part))


def invalid_hours(text: str) -> list[str]:
    """Return the parts of deleteWhen that are not hours."""
    return [
        part for part in _split_hours(text) if not _HOUR.fullmatch(part) or int(part) > _LAST_HOUR
    ]


def check_hours(text: str) -> None:
    """Raise UsageError if deleteWhen has a part that is not an hour."""
    if invalid_hours(text):
        raise UsageError(
            f"deleteWhen={text[:64]}: hours from 00 to {_LAST_HOUR}, separated by `;`, are expected"
        )


def _split_hours(text: str) -> list[str]:
    return [part.strip() for part in text.split(";") if part.strip()]


class _FreedSegments(NamedTuple):
    """Segments before `until` are no longer needed, once the log is irrevocable up to `log_end`."""

    until: int
    log_end: int


class Retention:
    """Deletes old segments, and trims queues and index accordingly."""

    def __init__(self, state: StoreState, disk: DiskWatch, hour: Callable[[int], int]) -> None:
        self._state = state
        self._disk = disk
        self._hour = hour
        self._settings = state.settings
        self._manual_rounds = 0
        self.keeper: Callable[[int, int], int] | None = None
        """Called with the log offset before which segments will be deleted, and the time. It
        carries forward pending halves, and returns the log offset from which on the log is still
        needed."""
        self.kept_count = 0
        """The number of segments that are old enough to be deleted, but still needed."""
        self._told_of = -1
        self._freed = _FreedSegments(0, 0)
        self._untrimmed: list[tuple[str, int]] = []
        self.deleted_count = 0
        self._planned_ms = 0

    def request_cleanup(self) -> None:
        """Request a clean-up at the next wake-up, at any hour (RocketMQ's manual deletion)."""
        self._manual_rounds = _MANUAL_ROUNDS
        self._planned_ms = 0

    def start(self, now_ms: int) -> None:
        """Check the disk after the store was opened, and plan the first clean-up."""
        self._planned_ms = self._disk.check_disk(now_ms)

    def wake_at_ms(self) -> int:
        """The time to call `wake`."""
        return self._disk.next_check_ms(self._planned_ms)

    def wake(self, now_ms: int) -> None:
        """Check the disk and clean up, if it is time."""
        if now_ms < self.wake_at_ms():
            return
        if self._untrimmed:
            self._trim_some()
            return
        self._planned_ms = self._disk.check_disk(now_ms)
        self.clean_up(now_ms)

    def clean_up(self, now_ms: int) -> int:
        """Delete the segments that are due, and trim queues and index. Return how many were
        deleted."""
        settings = self._settings
        is_hour = self._hour(now_ms) in parse_hours(settings.delete_when)
        is_forced = (
            settings.deletes_forcibly and self._disk.percent > settings.disk_forcible_percent
        )
        is_due = is_hour or is_forced or self._disk.percent > settings.disk_used_max_percent
        if self._manual_rounds > 0:
            self._manual_rounds -= 1
            is_due = True
        deleted = self._delete(now_ms, is_forced=is_forced) if is_due else 0
        if deleted:
            _log.log(
                logging.WARNING if is_forced else logging.INFO,
                "%d files of the log (%d bytes) are deleted %s; it begins at %d now",
                deleted,
                deleted * self._state.log.segment_size,
                f"whatever their age, the disk is at {self._disk.percent} %"
                if is_forced
                else f"after {settings.reserved_hours} h",
                self._state.log.min_offset,
            )
            self._planned_ms = min(self._planned_ms, self._disk.check_disk(now_ms))
            self.trim_queues()
        return deleted

    def _delete(self, now_ms: int, *, is_forced: bool) -> int:
        log = self._state.log
        expired_ms = now_ms - self._settings.reserved_hours * _HOUR_MS
        doomed: list[int] = []
        for start in log.segments.starts:
            end = min(log.end_offset, self._state.ends.irrevocable_end)
            if start + log.segment_size > end or len(doomed) >= self._settings.delete_files_max:
                break
            if not is_forced and log.segments.modified_ms(start) >= expired_ms:
                break
            # Records without a unit can be shown from the log alone, however old they are.
            if start + log.segment_size > self._state.dispatcher.unseen_from:
                break
            doomed.append(start)
        doomed = self._deletable_segments(self._unneeded_segments(doomed, now_ms), now_ms)
        if doomed:
            self._save_log_begin(doomed[-1] + log.segment_size)
        for start in doomed:
            log.segments.remove(start)
        self.deleted_count += len(doomed)
        return len(doomed)

    def _unneeded_segments(self, doomed: list[int], now_ms: int) -> list[int]:
        """Return the segments that no message needs: none of pending transactions, and none with a
        later delivery time."""
        if not doomed or self.keeper is None:
            self.kept_count = 0
            return doomed
        size = self._state.log.segment_size
        needed_from = self.keeper(doomed[-1] + size, now_ms)
        free = [start for start in doomed if start + size <= needed_from]
        self.kept_count = len(doomed) - len(free)
        if self.kept_count:
            self._planned_ms = min(self._planned_ms, now_ms + _LOOK_AGAIN_MS)
            if self._told_of != doomed[len(free)]:
                self._told_of = doomed[len(free)]
                _log.warning(
                    "the segment at log offset %d is past its retention time and is kept: "
                    "messages in it wait for the end of their transaction, or for their "
                    "delivery time",
                    self._told_of,
                )
        return free

    def _deletable_segments(self, free: list[int], now_ms: int) -> list[int]:
        """Return the segments that may be deleted now. Copies of their messages may have been
        appended in this turn. Until these are durable, a power failure could take both; until the
        members of a group have them, a fail-over could."""
        log, ends, freed = self._state.log, self._state.ends, self._freed
        if not free or ends.irrevocable_end >= ends.written_end:
            return free
        is_safe = ends.irrevocable_end >= freed.log_end
        until = free[-1] + log.segment_size
        if is_safe and freed.until < until:
            self._freed = _FreedSegments(until, log.end_offset)
        self._planned_ms = min(self._planned_ms, now_ms + _LOOK_AGAIN_MS)
        return [start for start in free if is_safe and start < freed.until]

    def _save_log_begin(self, log_offset: int) -> None:
        try:
            save_log_begin(self._state, log_offset)
        except (StorageError, OSError) as error:
            # On a full disk, space matters more than the note for a start after a power failure.
            _log.warning("segments are deleted although that could not be recorded: %s", error)

    def trim_queues(self) -> None:
        """Trim queues and index to the beginning of the log, many queues over several turns.
        Meanwhile reads skip the missing records."""
        state = self._state
        self._untrimmed = list(state.queues.by_key)
        self._trim_some()
        if state.index is not None:
            state.index.drop_before(state.log.min_offset)

    def ends_of_emptied_queues(self) -> dict[str, dict[int, int]]:
        """Return the ends of the queues whose records all are deleted, by topic and queue id. The
        queues whose turn to be trimmed has not come yet are trimmed now."""
        while self._untrimmed:
            self._trim_some()
        return self._state.queues.ends_without_records()

    def _trim_some(self) -> None:
        state = self._state
        for place in self._untrimmed[-_TRIMMED_AT_ONCE:]:
            queue = state.queues.by_key.get(place)
            try:
                if queue is not None:
                    queue.drop_before(state.log.min_offset)
            except (StorageError, OSError) as error:  # the next round tries it again
                _log.error("queue %s/%d is not trimmed: %s", *place, error)
        del self._untrimmed[-_TRIMMED_AT_ONCE:]
        if self._untrimmed:
            self._planned_ms = 0
