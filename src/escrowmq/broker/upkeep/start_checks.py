"""Checks at the broker's start whether the files in the data folder agree with the store, and logs
each repair. Nothing is silently treated as empty, cut off or set back."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.message import Topic
from escrowmq.base.ports import Disk
from escrowmq.codec import fastjson
from escrowmq.delivery import delay_queues
from escrowmq.delivery.groups import SYSTEM_GROUPS, TRANSACTION_GROUP, GroupTable
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.delivery.topics import TopicTable
from escrowmq.errors import CorruptRecord, StorageError, UsageError
from escrowmq.store import check, queue_snapshot
from escrowmq.store.config_tables import TableParser, load_table
from escrowmq.store.results import RecoveryReport
from escrowmq.store.store import Store

TOPICS_FILE: Final = check.TOPICS
GROUPS_FILE: Final = check.GROUPS
OFFSETS_FILE: Final = check.OFFSETS

_TOLD_MAX: Final = 20
"""The most log lines of one kind; further ones are counted only."""

_NAMED_MAX: Final = 5

_log = logging.getLogger(__name__)


def table_parsers() -> dict[str, TableParser]:
    """Return by path the parser of each table's file, with which a check of a store finds
    unreadable files."""
    settings = BrokerSettings()
    return {
        TOPICS_FILE: TopicTable(settings).load,
        GROUPS_FILE: GroupTable(settings).load,
        OFFSETS_FILE: OffsetTable().load,
        delay_queues.PATH: _parse_delays,
    }


def _parse_delays(data: bytes | None) -> None:
    file = fastjson.decode_fastjson(data) if data else {}
    _ = {int(level): int(offset) for level, offset in (file.get("offsetTable") or {}).items()}


_BEHIND_MAX_MS: Final = 24 * 3_600_000
"""The most that the clock may be behind the store's newest record for time to continue from that
record. If it is behind by more, the record's time is probably wrong."""


class StartChecks:
    """The checks of one start. Call `read_tables` before the store is opened, `reconcile_tables`
    after that, and `restore_topics` when the broker's own topics exist."""

    def __init__(
        self,
        *,
        store: Store,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        disk: Disk,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self.disk = disk
        self.now_ms = 0
        """The time at which the broker started; set by `reconcile_tables`."""
        self.is_sound = False
        """Whether no part of the log was found damaged."""
        self.lost_from: int | None = None
        """The log offset from which on written records are missing or damaged; None if nothing
        is."""
        self._has_all_topics = False
        self._has_snapshot = disk.size(queue_snapshot.PATH) is not None

    def read_table(self, path: str, take: TableParser) -> bool:
        """Read a table. Return whether its newest version was read. Raises StorageError when no
        version is valid."""
        note = load_table(self.disk, path, take)
        if note:
            _log.warning("%s", note)
        return not note

    def read_optional_table(self, path: str, take: TableParser) -> None:
        """Read a table that the broker can start without; if it is invalid, log that and go on
        without it."""
        try:
            self.read_table(path, take)
        except CorruptRecord as error:
            _log.error("%s; it is ignored", error)
            take(None)

    def read_tables(self) -> None:
        """Read the tables of topics, groups and offsets."""
        is_newest = self.read_table(TOPICS_FILE, self._topics.load)
        self._has_all_topics = is_newest and bool(self._topics.names())
        self.read_table(GROUPS_FILE, self._groups.load)
        self.read_table(OFFSETS_FILE, self._offsets.load)
        read_from = {
            (topic, queue_id)
            for key, offsets in self._offsets.items()
            if self._topics.get(topic := key.partition("@")[0]) is not None
            for queue_id, offset in offsets.items()
            if offset > 0
        }
        self._store.queues.expect_queues(read_from)
        if self._offsets.is_of_rocketmq and self._has_all_topics:
            self._store.queues.note_rocketmq(frozenset(self._topics.names()))

    def reconcile_tables(self, report: RecoveryReport, now_ms: int) -> None:
        """Log what the store found at its recovery, and make the tables agree with it."""
        self.now_ms, self.is_sound = now_ms, not report.damaged
        self.lost_from = report.lost_from
        _log_repairs(report)
        self._refuse_offsets_without_log()
        self._warn_of_missing_offsets()
        self._reset_transaction_progress(now_ms)
        self._remove_deleted_offsets()
        self._set_back_offsets(now_ms, was_clean=report.was_clean)

    def _refuse_offsets_without_log(self) -> None:
        """Raise StorageError if consumers have offsets but the log is empty, because the log is
        then probably elsewhere. If the snapshot of queues exists, an empty log is accepted: a power
        failure has lost the first messages."""
        if self._store.end_offset or self._has_snapshot:
            return
        found = [key for key, queues in self._offsets.items() if any(queues.values())]
        if found:
            raise StorageError(
                f"{OFFSETS_FILE} has offsets of {len(found)} groups ({_join_names(found)}), but "
                "the log is empty. Mount the disk that holds the log, or name its folder as "
                "storePathCommitLog; to start with an empty store, remove "
                f"{OFFSETS_FILE} and its .bak"
            )

    def _warn_of_missing_offsets(self) -> None:
        """Log a warning if there are messages and groups, but no offsets."""
        groups = [name for name in self._groups.names() if name not in SYSTEM_GROUPS]
        if self._store.end_offset and groups and not self._offsets.items():
            _log.warning(
                "%s is missing or empty: %d groups have no offsets (%s), and their "
                "consumers begin like new ones",
                OFFSETS_FILE,
                len(groups),
                _join_names(groups),
            )

    def _reset_transaction_progress(self, now_ms: int) -> None:
        """Reset the progress of transactions if it is after the end of its queue, and so belongs to
        another log. All halves are then examined again."""
        for topic in (Topic.HALF, Topic.OP):
            offset = self._offsets.get(TRANSACTION_GROUP, topic, 0)
            end = self._store.bounds(topic, 0)[1]
            if offset > end:
                _log.error(
                    "progress of transactions in %s is at %d, the queue ends at %d: all its "
                    "halves are examined again",
                    topic,
                    offset,
                    end,
                )
                for each in (Topic.HALF, Topic.OP):
                    self._offsets.commit(TRANSACTION_GROUP, each, 0, 0, now_ms)
                self._save_offsets()
                return

    def _remove_deleted_offsets(self) -> None:
        """Remove offsets in topics that were deleted after the offsets were saved: a new topic of
        the same name counts from 0."""
        end = self._store.end_offset
        saved_end = self._offsets.saved_log_end
        if self._offsets.is_of_rocketmq:
            self._save_offsets()  # the next start must see at once that we have served since
        if saved_end < 0:
            return
        gone = {
            topic
            for topic, deletion in self._store.deleted.of_topic.items()
            if deletion.log_end >= min(saved_end, end)
        }
        self._offsets.forget_topics(gone)
        if self._offsets.is_changed or saved_end > end:  # else deletions look older
            self._save_offsets()

    def _set_back_offsets(self, now_ms: int, *, was_clean: bool) -> None:
        """Set back offsets that are after the ends of their queues. After a clean stop, offsets in
        unknown queues are kept: an operator may have set them ahead."""

        def queue_end(topic: str, queue_id: int) -> int | None:
            if was_clean and (topic, queue_id) not in self._store.queues.by_key:
                return None
            return self._store.bounds(topic, queue_id)[1]

        cut = self._offsets.set_back_to_ends(queue_end, now_ms)
        for text in cut[:_TOLD_MAX]:
            _log.warning("%s: the queue ends there; everything after it is lost", text)
        if len(cut) > _TOLD_MAX:
            _log.warning("%d more offsets were set back", len(cut) - _TOLD_MAX)
        if cut:
            self._save_offsets()

    def _save_offsets(self) -> None:
        """Save the changed offsets now. If the broker crashed before the next periodic save, the
        old offsets would be in force again, and groups would skip new messages."""
        try:
            self.disk.replace(
                OFFSETS_FILE, self._offsets.content_to_save(log_end=self._store.end_offset)
            )
        except (StorageError, OSError) as error:
            _log.error("offsets that were set back cannot be saved yet: %s", error)

    def restore_topics(self, now_ms: int) -> None:
        """Recreate topics that have queues but are missing in topics.json. If its newest version
        was read, only topics that the broker creates by itself are recreated: they may not have
        been saved."""
        found = [
            topic
            for topic in self._store.topics()
            if self._topics.get(topic) is None
            and (not self._has_all_topics or self._may_be_unsaved(topic))
        ]
        for topic in found:
            count = max(self._store.queues_of(topic)) + 1
            self._topics.get_or_create(topic, queues_count=count, now_ms=now_ms)
        if found:
            _log.error(
                "%s lacks %d topics, which are recreated from their queues (%s); their other "
                "attributes, such as permission, order and message type, must be set again",
                TOPICS_FILE,
                len(found),
                _join_names(found),
            )

    def _may_be_unsaved(self, topic: str) -> bool:
        """Whether a topic with messages may be missing in topics.json only because the broker had
        not saved it: it is a retry or dead-letter topic, which the broker creates by itself."""
        if not topic.startswith((Topic.RETRY_PREFIX, Topic.DLQ_PREFIX)):
            return False
        bounds = [self._store.bounds(topic, each) for each in self._store.queues_of(topic)]
        return any(low < end for low, end in bounds)

    def restore_groups(self, names: Iterable[str], now_ms: int) -> None:
        """Recreate missing groups that have messages in flight, if groups may be created by use:
        their unacknowledged messages must be redelivered."""
        for name in names:
            if self._groups.find(name) is not None:
                continue
            try:
                config = self._groups.get_or_create(name, now_ms)
            except UsageError as error:
                _log.error("%s lacks group %s: %s", GROUPS_FILE, name, error)
                continue
            if config is not None:
                _log.error("%s lacks group %s, which is recreated", GROUPS_FILE, name)


def _log_repairs(report: RecoveryReport) -> None:
    """Log the recovery in one line, and each damaged, truncated or rebuilt part in another."""
    if report.was_clean and not report.log_end:
        _log.info("the store is empty")
        return
    _log.info(
        "the store was %s: %d records read from %d on, the log ends at %d",
        "closed properly" if report.was_clean else "not closed, and is recovered",
        report.records_count,
        report.scanned_from,
        report.log_end,
    )
    for note in report.notes[:_TOLD_MAX]:
        _log.info("%s", note)
    if report.truncated_size:
        _log.warning("%d bytes after the end of the log are cut off", report.truncated_size)
    if report.queues_mended:
        found = report.queues_mended
        _log.warning("%d queues were rebuilt from the log: %s", len(found), _join_names(found))
    for text in report.index_rebuilt[:_TOLD_MAX]:
        _log.warning("the index is rebuilt: %s", text)
    for damage in report.damaged[:_TOLD_MAX]:
        _log.error(
            "damage: %d bytes at log offset %d cannot be read: %s",
            damage.size,
            damage.log_offset,
            damage.reason,
        )
    if report.is_short and not report.damaged:
        _log.error("the log ends at %d, and was longer before", report.log_end)
    if len(report.damaged) > _TOLD_MAX:
        _log.error("damage: %d more places of the log", len(report.damaged) - _TOLD_MAX)


def _join_names(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more


def resume_time_ms(now_ms: int, store: Store) -> int:
    """Return the time from which the clock must continue: its own, or that of the store's newest
    record if that is a little later."""
    stored_ms = store.last_stored_ms
    behind_ms = stored_ms - now_ms
    if behind_ms <= 0:
        return now_ms
    if behind_ms <= _BEHIND_MAX_MS:
        _log.warning(
            "the clock is %d ms behind the store's last record: time continues from there",
            behind_ms,
        )
        return stored_ms
    _log.error(
        "the clock is %d s behind the store's last record; the clock is trusted, and what was "
        "stored meanwhile counts from now on",
        behind_ms // 1000,
    )
    store.allow_earlier_times(now_ms)
    return now_ms
