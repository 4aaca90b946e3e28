"""Delay levels: each is a queue of the schedule topic, whose messages are delivered in order as
they become due.

A level that is no longer configured delivers the messages that it holds, at the times that were
set when they were stored. Its progress is kept, because the level may be configured again."""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec

from escrowmq.base.delay_levels import parse_delay_levels
from escrowmq.base.message import Property, Topic
from escrowmq.base.store_settings import StoreSettings
from escrowmq.codec import fastjson
from escrowmq.delivery.data_version import DataVersion
from escrowmq.delivery.delay_progress import (
    BATCH_MAX,
    NEVER_MS,
    RETRY_MS,
    DelayedDeliverer,
    PastDeliveries,
    PutMessage,
)
from escrowmq.delivery.delayed_messages import restore_message
from escrowmq.errors import StorageError
from escrowmq.store.durable_progress import ProgressMark, UnsavedProgress
from escrowmq.store.store import Arrival, Store
from escrowmq.store.walk import walk_queue

_log = logging.getLogger(__name__)

PATH: Final = "config/delayOffset.json"

_ENTRIES_READ: Final = 32
_LOG_OFFSET: Final = "escrowLogOffset"
"""A field of the file that RocketMQ does not know: it ignores the field, and writes the file
without it. So if it is present, no other broker has written the file since."""


def with_log_offset(body: bytes, log_offset: int) -> bytes:
    """Return a master's answer as delayOffset.json. Add the log offset where the master's
    deliveries end, if the answer does not say it: RocketMQ's masters do not."""
    file: dict[str, Any] = fastjson.decode_fastjson(body)
    return body if _LOG_OFFSET in file else fastjson.encode({_LOG_OFFSET: log_offset, **file})


class DelayQueues:
    """Delivers the messages of all delay levels of a broker. Call `load` first."""

    def __init__(
        self, store: Store, settings: StoreSettings, put: PutMessage | None = None
    ) -> None:
        self._store = store
        self.deliverer = DelayedDeliverer(store, put)
        self._spans_ms = parse_delay_levels(settings.delay_levels)
        self._offsets = dict.fromkeys(self._spans_ms, 0)
        self._due_ms = dict.fromkeys(self._spans_ms, NEVER_MS)
        self._past_deliveries = PastDeliveries(store, Property.DELAY)
        self._unsaved: UnsavedProgress[dict[int, int]] = UnsavedProgress()
        self._noted = ProgressMark(0, 0, dict(self._offsets))
        self._failing_levels: set[int] = set()
        """Levels whose last delivery failed."""
        self.version = DataVersion()

    def load(self, data: bytes | None, now_ms: int) -> None:
        """Load delayOffset.json, and find deliveries after it was written."""
        file: dict[str, Any] = fastjson.decode_fastjson(data) if data else {}
        self._add_former_levels()
        for level, offset in (file.get("offsetTable") or {}).items():
            if int(level) > 0:
                self._offsets[int(level)] = int(offset)
        if "dataVersion" in file:
            self.version = msgspec.convert(file["dataVersion"], DataVersion)
        log_offset = file.get(_LOG_OFFSET)
        if isinstance(log_offset, int):
            self._past_deliveries.read_log(log_offset, self._oldest_pending())
        elif not data:
            self._past_deliveries.read_without_progress(self._oldest_pending())
        elif self._past_deliveries.read_if_short(self._oldest_pending()):  # RocketMQ's file
            self._match_former_deliveries()
        for level, offset in self._offsets.items():
            start, end = self._store.bounds(Topic.SCHEDULE, level - 1)
            self._offsets[level] = min(max(offset, start), end)
            self._update_due(level, now_ms)
        self._log_former_levels()
        self._note_progress()

    def _match_former_deliveries(self) -> None:
        """Match the deliveries that the file of RocketMQ includes, so that none is taken for that
        of a pending twin."""
        for level, offset in self._offsets.items():
            start, end = self._store.bounds(Topic.SCHEDULE, level - 1)
            if not start < offset or not self._past_deliveries.has_any:
                continue
            for source in walk_queue(
                self._store, Topic.SCHEDULE, start, min(offset, end), queue_id=level - 1
            ):
                self._past_deliveries.match_delivery(source)

    def _add_former_levels(self) -> None:
        """Add levels that have a queue: other levels may have been configured when it was
        created."""
        for queue_id in self._store.queues_of(Topic.SCHEDULE):
            self._offsets.setdefault(queue_id + 1, 0)

    def _log_former_levels(self) -> None:
        for level, (offset, end) in self.backlog().items():
            if offset < end and level not in self._spans_ms:
                _log.warning(
                    "delay level %d is not in messageDelayLevel any more, and holds %d messages: "
                    "each is delivered at its time",
                    level,
                    end - offset,
                )

    def _oldest_pending(self) -> int | None:
        """Return the log offset of the first record that seems undelivered; None if there is
        none."""
        places = []
        for level, offset in self._offsets.items():
            start, _ = self._store.bounds(Topic.SCHEDULE, level - 1)
            places += self._store.read_units(Topic.SCHEDULE, level - 1, max(offset, start), 1)
        return min((log_offset for log_offset, _, _ in places), default=None)

    def oldest_needed_offset(self) -> int:
        """Return the log offset of the oldest undelivered record; retention must keep the log from
        there on."""
        oldest = self._oldest_pending()
        return self._store.end_offset if oldest is None else oldest

    def note_arrival(self, arrival: Arrival, now_ms: int) -> None:
        """Note that a record became visible in the schedule topic, and schedule its delivery."""
        level = arrival.queue_id + 1
        self._offsets.setdefault(level, 0)
        if self._due_ms.get(level, NEVER_MS) == NEVER_MS:
            # In this topic the tags code of a unit is the time of its delivery, as at RocketMQ.
            self._due_ms[level] = self._corrected_due_ms(level, arrival.tags_code, now_ms)

    def wake_at_ms(self) -> int:
        """The time to call `deliver_due` next."""
        return min(self._due_ms.values(), default=NEVER_MS)

    def wake(self, now_ms: int) -> None:
        """Deliver due messages if it is time."""
        if now_ms >= self.wake_at_ms():
            self.deliver_due(now_ms)

    def deliver_due(self, now_ms: int) -> int:
        """Deliver a bounded number of due messages. Return how many records were delivered
        or skipped."""
        passed = 0
        for level in sorted(self._due_ms, key=self._due_ms.__getitem__):
            if self._due_ms[level] > now_ms or passed >= BATCH_MAX:
                break
            passed += self._try_to_deliver(level, now_ms, BATCH_MAX - passed)
        # A level whose put failed has a later due time. Its next record must still be compared
        # with old deliveries, or it could be delivered twice.
        if not self._failing_levels and self.wake_at_ms() > now_ms:
            self._past_deliveries.clear()
        if passed:
            self._note_progress()
        return passed

    def _note_progress(self) -> None:
        self._noted = ProgressMark(
            self._store.end_offset, self._past_deliveries.scan_from, dict(self._offsets)
        )
        self._unsaved.add(self._noted)

    def _try_to_deliver(self, level: int, now_ms: int, count_max: int) -> int:
        """Deliver the due messages of a level. If the disk cannot read them, the level waits,
        without blocking others."""
        start = self._offsets[level]
        try:
            return self._deliver(level, now_ms, count_max)
        except (OSError, StorageError) as error:
            if level not in self._failing_levels:
                _log.error("delay level %d is delivered later: %s", level, error)
            self._due_ms[level] = now_ms + RETRY_MS
            self._failing_levels.add(level)
            return self._offsets[level] - start

    def _deliver(self, level: int, now_ms: int, count_max: int) -> int:
        """Deliver messages of a level until the next one is not due, a put fails, or the limit is
        reached. Return how many records were delivered or skipped."""
        start = self._offsets[level]
        while (passed := self._offsets[level] - start) < count_max:
            entries = self._store.read_units(
                Topic.SCHEDULE,
                level - 1,
                self._offsets[level],
                min(_ENTRIES_READ, count_max - passed),
            )
            if not entries:
                break
            for log_offset, size, code in entries:
                due_ms = self._corrected_due_ms(level, code, now_ms)
                if due_ms > now_ms:
                    self._due_ms[level] = due_ms
                    return self._offsets[level] - start
                if not self._deliver_record(log_offset, size, now_ms):
                    self._due_ms[level] = now_ms + RETRY_MS
                    self._failing_levels.add(level)
                    return self._offsets[level] - start
                self._failing_levels.discard(level)
                self._offsets[level] += 1
        self._update_due(level, now_ms)
        return self._offsets[level] - start

    def _corrected_due_ms(self, level: int, due_ms: int, now_ms: int) -> int:
        # A time further ahead than the level's own span was written before the clock was set back
        # (ScheduleMessageService.correctDeliverTimestamp): it is due. (The span of a former level
        # is unknown.)
        return now_ms if due_ms > now_ms + self._spans_ms.get(level, due_ms) else due_ms

    def _deliver_record(self, log_offset: int, size: int, now_ms: int) -> bool:
        source = self.deliverer.read_record(log_offset, size)
        if source is None:
            return True
        try:
            if self._past_deliveries.match_delivery(source):
                return True
            return self.deliverer.deliver(source, restore_message(source), now_ms)
        except (OSError, StorageError):
            raise  # of the disk, not of the record
        except Exception as error:  # noqa: BLE001 - one record; set aside, those behind it go on
            self.deliverer.skip_record(log_offset, f"{type(error).__name__}: {error}")
            return True

    def _update_due(self, level: int, now_ms: int) -> None:
        """Determine when the next message of a level is due."""
        offset = self._offsets[level]
        start, _ = self._store.bounds(Topic.SCHEDULE, level - 1)
        if offset < start:  # retention has removed the message to deliver
            self.deliverer.skip_record(-1, f"{start - offset} entries of level {level} are gone")
            offset = self._offsets[level] = start
        entries = self._store.read_units(Topic.SCHEDULE, level - 1, offset, 1)
        self._due_ms[level] = (
            self._corrected_due_ms(level, entries[0][2], now_ms) if entries else NEVER_MS
        )

    def backlog(self) -> dict[int, tuple[int, int]]:
        """Return for each level the next queue offset to deliver, and the end of its queue."""
        return {
            level: (offset, self._store.bounds(Topic.SCHEDULE, level - 1)[1])
            for level, offset in self._offsets.items()
        }

    def encode(self) -> bytes:
        """Return the body of the answer to GET_ALL_DELAY_OFFSET. RocketMQ ignores our own field."""
        mark = self._noted
        offsets = msgspec.Raw(fastjson.encode_fastjson_map(mark.state.items()))
        return fastjson.encode(
            {"dataVersion": self.version, _LOG_OFFSET: mark.scan_from, "offsetTable": offsets}
        )

    def content_to_save(self, now_ms: int) -> bytes | None:
        """Return the content of delayOffset.json, up to the deliveries that are durable; None if it
        was returned before.

        RocketMQ also reads quoted levels, and ignores the unknown field.
        """
        if self._unsaved.is_resave_due(self._store.end_offset):
            self._note_progress()
        mark = self._unsaved.take_unsaved(self._store.irrevocable_offset)
        if mark is None:
            return None
        self.version.advance(now_ms)
        file = {
            "dataVersion": self.version,
            _LOG_OFFSET: mark.scan_from,
            "offsetTable": {str(level): offset for level, offset in mark.state.items()},
        }
        return msgspec.json.format(fastjson.encode(file), indent=2)
