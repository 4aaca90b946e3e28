"""Checks whether the files of a store agree: log, queues, index, checkpoint, consumers' offsets.

It reads everything and changes nothing. What a start repairs by itself after an abnormal end is a
note; everything else that is wrong is damage.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import msgspec

from escrowmq.base.delay_levels import parse_delay_levels
from escrowmq.base.message import SysFlag, Topic
from escrowmq.base.ports import Disk
from escrowmq.base.store_settings import StoreSettings
from escrowmq.codec import fastjson
from escrowmq.codec.log_records import ScannedRecord
from escrowmq.codec.log_walker import LogWalker, next_data
from escrowmq.codec.properties import property_value
from escrowmq.codec.store_entries import CODE_AT, ENTRY, ENTRY_SIZE, decode_checkpoint
from escrowmq.errors import CorruptRecord, StorageError
from escrowmq.store import commit_log, consume_queue, index
from escrowmq.store.checkpoint import PATH as CHECKPOINT
from escrowmq.store.checkpoint import CheckpointFile
from escrowmq.store.config_tables import TableParser, load_table
from escrowmq.store.deletions import DeletedTopics
from escrowmq.store.folder_check import refuse_unsupported
from escrowmq.store.queue_snapshot import read_snapshot
from escrowmq.store.queues import Queues
from escrowmq.store.scanned import UnitTagsCodes
from escrowmq.store.segment import Segments

ABORT: Final = "abort"
_FINDINGS_MAX: Final = 1_000
_SHOWN_MAX: Final = 5
TOPICS: Final = "config/topics.json"
GROUPS: Final = "config/subscriptionGroup.json"
OFFSETS: Final = "config/consumerOffset.json"


class CheckFinding(msgspec.Struct, frozen=True):
    """One finding. `is_damage`: it is wrong, and a start does not repair it."""

    where: str
    text: str
    is_damage: bool


class CheckResult(msgspec.Struct):
    """The result of a check."""

    records_count: int = 0
    log_begin: int = 0
    log_end: int = 0
    queues_count: int = 0
    units_count: int = 0
    index_entries_count: int = 0
    was_closed: bool = True
    findings: list[CheckFinding] = []

    @property
    def is_sound(self) -> bool:
        """Whether no damage was found."""
        return not any(finding.is_damage for finding in self.findings)


class StoreCheck:
    """Checks the files of one store. `readers` maps a table's path to the parser that a broker's
    start uses. `tell(read, total)` reports progress in bytes of the log."""

    def __init__(
        self,
        disk: Disk,
        settings: StoreSettings,
        *,
        readers: dict[str, TableParser] | None = None,
        tell: Callable[[int, int], None] | None = None,
    ) -> None:
        refuse_unsupported(disk)
        self._disk = disk
        self._readers = readers or {}
        self._tell = tell
        self._tables: dict[str, dict[str, Any]] = {}
        self._keyed_count = 0
        self._settings = with_actual_file_sizes(disk, settings)
        self._codes = UnitTagsCodes(parse_delay_levels(settings.delay_levels))
        self._queues = Queues(disk, segment_size=self._settings.queue_segment_size)
        self._queue_notes: list[str] = []
        self._starts = array("q")
        self._units: dict[tuple[str, int], tuple[int, bytearray]] = {}
        self._earlier: Counter[tuple[str, int]] = Counter()
        """For each queue: the number of messages that later records with lower queue offsets
        replaced, without a recorded deletion of the topic."""
        snapshot = read_snapshot(disk)
        self._deleted = DeletedTopics()
        if snapshot is not None:
            self._deleted.load(snapshot.deleted, snapshot.latest_ms)
        self.checked = CheckResult(findings=[])

    def run(self, now_ms: int) -> CheckResult:
        """Check everything. Raises StorageError when the log cannot even be listed."""
        checked = self.checked
        known = decode_checkpoint(self._disk.read(CHECKPOINT) or b"")
        checked.was_closed = self._disk.size(ABORT) is None and not known.is_open
        if not checked.was_closed:
            self._add_note(
                ABORT, "the store is in use, or was not closed; a start repairs what it can"
            )
        self._queue_notes = self._queues.load()
        self._check_log()
        self._check_tables()
        self._check_queues()
        self._check_index()
        self._check_checkpoint(now_ms)
        self._check_offsets()
        return checked

    def _add_damage(self, where: str, text: str) -> None:
        if len(self.checked.findings) < _FINDINGS_MAX:
            self.checked.findings.append(CheckFinding(where, text, is_damage=True))

    def _add_note(self, where: str, text: str) -> None:
        if len(self.checked.findings) < _FINDINGS_MAX:
            self.checked.findings.append(CheckFinding(where, text, is_damage=False))

    def _add_repairable(self, where: str, text: str) -> None:
        """Record a finding: as damage if the store was closed cleanly, otherwise as a note."""
        if self.checked.was_closed:
            self._add_damage(where, text)
        else:
            self._add_note(where, text)

    # -- the log --------------------------------------------------------------------------------

    def _check_log(self) -> None:
        segments = Segments(
            self._disk, commit_log.FOLDER, segment_size=self._settings.log_segment_size
        )
        for note in segments.load():
            self._add_note(commit_log.FOLDER, note)
        scan = LogWalker(segments, leads_to=self._queues.unit_check())
        for records in scan.record_batches(segments.first_position):
            for record in records:
                self._check_record(record)
            if self._tell is not None:
                done = records[-1].log_offset - segments.first_position
                self._tell(done, segments.end - segments.first_position)
        for damage in scan.damaged:
            where = f"{commit_log.FOLDER}/{segments.start_of(damage.log_offset):020d}"
            text = f"{damage.size} bytes at log offset {damage.log_offset} cannot be read"
            self._add_damage(where, f"{text}: {damage.reason}")
        self.checked.records_count = scan.records_count
        self.checked.log_begin, self.checked.log_end = segments.first_position, scan.end_offset
        _, rest = next_data(segments, scan.end_offset, segments.end_of(scan.end_offset))
        if rest:
            where = f"{commit_log.FOLDER}/{segments.start_of(scan.end_offset):020d}"
            text = f"something that is not a record follows the end, {scan.end_offset}"
            self._add_repairable(where, f"{text}: {scan.cut_reason}")

    def _check_record(self, record: ScannedRecord) -> None:
        self._starts.append(record.log_offset)
        if property_value(record.properties, b"UNIQ_KEY\x01"):
            self._keyed_count += 1
        if record.sys_flag & SysFlag.PREPARED:
            return
        topic = record.topic.decode("utf-8", "replace")
        if self._deleted.covers(topic, record.log_offset, record.stored_ms):
            return
        code = self._codes.code_of(record, is_schedule=topic == Topic.SCHEDULE)
        key = (topic, record.queue_id)
        start, units = self._units.get(key, (record.queue_offset, bytearray()))
        expected = start + len(units) // ENTRY_SIZE
        if record.queue_offset < expected:
            # The topic was deleted and created again, as far as can be known: the later one counts.
            self._earlier[key] += expected - start
            start, units, expected = record.queue_offset, bytearray(), record.queue_offset
        missing = record.queue_offset - expected
        if missing > record.log_offset // ENTRY_SIZE:
            where = f"log offset {record.log_offset}"
            self._add_damage(where, f"queue offset {record.queue_offset} of {topic} cannot be")
            return
        units += bytes(ENTRY_SIZE * missing)
        units += ENTRY.pack(record.log_offset, record.size, code)
        self._units[key] = (start, units)

    # -- derived files ------------------------------------------------------------------------

    def _check_queues(self) -> None:
        queues = self._queues
        for note in self._queue_notes:
            self._add_repairable(consume_queue.FOLDER, note)
        for (topic, queue_id), count in sorted(self._earlier.items()):
            where = f"{consume_queue.FOLDER}/{topic}/{queue_id}"
            text = f"{count} messages of the log cannot be read: the queue began again after them"
            self._add_note(where, f"{text}, as when a topic is deleted and created again")
        live = set(self._live_topics())
        for key, (start, units) in sorted(self._units.items()):
            where = f"{consume_queue.FOLDER}/{key[0]}/{key[1]}"
            queue = queues.by_key.get(key)
            if queue is None:
                if key[0] in live:
                    self._add_repairable(where, f"{len(units) // ENTRY_SIZE} units are missing")
                continue
            self.checked.queues_count += 1
            self.checked.units_count += queue.end - queue.min
            self._compare_queue(where, queue, start, units)
        for queue in queues:
            if (queue.topic, queue.queue_id) not in self._units and queue.end > queue.min:
                unit = queue.unit(queue.end - 1)
                if unit is not None and unit[0] >= self.checked.log_begin:
                    where = f"{consume_queue.FOLDER}/{queue.topic}/{queue.queue_id}"
                    self._add_damage(where, "its units lead to no record of it")

    def _compare_queue(
        self, where: str, queue: consume_queue.ConsumeQueue, start: int, units: bytearray
    ) -> None:
        """Compare a queue's units with the log's records. The arguments are positional, for speed:
        this is called for each record."""
        end = start + len(units) // ENTRY_SIZE
        if queue.end < end:
            self._add_repairable(where, f"it ends at {queue.end}, the log has records up to {end}")
        if queue.end > end:
            unit = queue.unit(end)
            is_damaged = unit is not None and unit[0] < self.checked.log_end
            text = f"it ends at {queue.end}, the log has records up to {end} only"
            (self._add_damage if is_damaged else self._add_repairable)(where, text)
        found = queue.units(start, min(queue.end, end) - start)
        if found == units[: len(found)]:
            return
        # When a message is due was decided by the delay levels of its time.
        size = CODE_AT if queue.is_schedule else ENTRY_SIZE
        wrong = [
            start + at // ENTRY_SIZE
            for at in range(0, len(found), ENTRY_SIZE)
            if found[at : at + size] != units[at : at + size]
            and any(units[at : at + ENTRY_SIZE])  # zeros: the record is damaged, reported above
        ]
        if wrong:
            shown = ", ".join(map(str, wrong[:_SHOWN_MAX]))
            self._add_damage(where, f"{len(wrong)} units lead to other places, from {shown} on")

    def _live_topics(self) -> list[str]:
        topics = self._tables.get(TOPICS, {}).get("topicConfigTable")
        return list(topics) if topics else [topic for topic, _ in self._units]

    def _check_index(self) -> None:
        settings = self._settings
        found = index.Index(
            self._disk,
            slots_count=settings.index_slots_count,
            entries_max=settings.index_entries_max,
        )
        for note in found.load():
            self._add_note(index.FOLDER, note)
        if not found.files and self._keyed_count:
            text = f"it is missing ({self._keyed_count} messages have keys); a start recreates it"
            self._add_repairable(index.FOLDER, text)
        starts, begin = self._starts, self.checked.log_begin
        for file in found.files:
            self.checked.index_entries_count += file.count - 1
            problem = file.find_problem(is_last=file is found.files[-1], is_thorough=True)
            if problem is not None:
                self._add_repairable(file.path, problem)
            lost = 0
            for first in range(1, file.count, 16_384):
                for _, log_offset, _, _ in file.entries(first, min(first + 16_384, file.count)):
                    at = bisect_left(starts, log_offset)
                    if log_offset >= begin and (at == len(starts) or starts[at] != log_offset):
                        lost += 1
            if lost:
                self._add_damage(file.path, f"{lost} entries lead to no record")

    def _check_checkpoint(self, now_ms: int) -> None:
        size = self._disk.size(CHECKPOINT)
        if size is None:
            self._add_repairable(CHECKPOINT, "it is missing; a start reads the whole log")
            return
        try:
            file = CheckpointFile(self._disk)
            for note in file.load(now_ms):
                self._add_damage(CHECKPOINT, note)
        except StorageError as error:
            self._add_damage(CHECKPOINT, str(error))

    # -- tables ---------------------------------------------------------------------------------

    def _check_tables(self) -> None:
        """Read each table as a start does. If a start would use the previous version, or refuse,
        that is damage."""
        for path in (TOPICS, GROUPS, OFFSETS, *self._readers):
            if path not in self._tables:
                self._tables[path] = self._read_table(path)
        is_told = any(finding.where == TOPICS for finding in self.checked.findings)
        if not self._tables[TOPICS] and self._units and not is_told:
            self._add_damage(
                TOPICS, "it is not there; a start recreates the topics from the queues"
            )

    def _read_table(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def take(data: bytes | None) -> None:
            self._readers.get(path, _accept_any)(data)
            if data is not None and path.endswith(".json"):
                found.update(fastjson.decode_fastjson(data))

        try:
            note = load_table(self._disk, path, take)
        except CorruptRecord as error:
            self._add_damage(path, str(error))
            return {}
        if note:
            self._add_damage(path, note)
        return found

    def _check_offsets(self) -> None:
        for key, offsets in (self._tables[OFFSETS].get("offsetTable") or {}).items():
            topic = key.partition("@")[0]
            for queue_id, queue_offset in offsets.items():
                queue = self._queues.by_key.get((topic, int(queue_id)))
                end = queue.end if queue is not None else 0
                if int(queue_offset) > end:
                    text = f"{key} queue {queue_id} is at {queue_offset}, the queue ends at {end}"
                    self._add_repairable(OFFSETS, text)


def _accept_any(data: bytes | None) -> None:
    """Accept any table that is valid JSON."""


def with_actual_file_sizes(disk: Disk, settings: StoreSettings) -> StoreSettings:
    """Return the settings with the file sizes that the store was created with, as far as its files
    show them."""
    changes: dict[str, int] = {}
    folder = commit_log.FOLDER
    for name in disk.names(folder):
        if size := disk.size(f"{folder}/{name}"):
            changes["log_segment_size"] = size
            break
    else:
        raise StorageError(f"{folder} has no files: it is not a store, or an empty one")
    for topic in disk.names(consume_queue.FOLDER):
        for queue_id in disk.names(f"{consume_queue.FOLDER}/{topic}"):
            folder = f"{consume_queue.FOLDER}/{topic}/{queue_id}"
            for name in disk.names(folder)[:1]:
                changes["queue_segment_size"] = disk.size(f"{folder}/{name}") or 20
    return msgspec.structs.replace(settings, **changes)
