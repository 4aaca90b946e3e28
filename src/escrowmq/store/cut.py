"""Cuts off the end of a log that another broker's log does not have, while no process has the store
open.

The next start makes queues and index agree, as after a crash. It finds no record after the cut, and
does not mistake remnants for records.
"""

from __future__ import annotations

from datetime import UTC
from typing import Final

import msgspec

from escrowmq.base.ports import Disk, former_path
from escrowmq.base.store_settings import StoreSettings
from escrowmq.store.consume_queue import FOLDER
from escrowmq.store.deletions import DeletedTopics
from escrowmq.store.queue_snapshot import PATH, Snapshot, read_snapshot
from escrowmq.store.recovery import ABORT
from escrowmq.store.store import Store
from escrowmq.store.store_parts import StoreState

_ALL: Final = 1 << 62

DERIVED_FILES: Final = (
    "escrow/pending", "escrow/decisions", "escrow/delayed", "config/delayOffset.json",
    "config/timercheck",
)  # fmt: skip
"""Files that a start rebuilds from the log if they are missing. Each says up to which log offset it
is complete. A cut removes them: once the log has grown again with other records, their content
would be wrong. (Decisions whose records left the log come from the master again.)"""

FOLDERS_FROM_THE_LOG: Final = ("escrow/checks",)


def record_before(store: Store, log_offset: int) -> int:
    """Return the start of a record shortly before an offset, from which the next start reads the
    log; 0 if none is known."""
    found = 0
    for queue in store.queues:
        unit = queue.unit(queue.first_at_log_offset(log_offset) - 1)
        if unit is not None and unit[0] < log_offset:
            found = max(found, unit[0])
    return found


def cut_log(disk: Disk, settings: StoreSettings, *, at: int, read_from: int) -> None:
    """Cut the log at an offset, durably. A crash in the middle may leave some of the bytes after
    the offset, without gaps."""
    _remove_derived_files(disk)
    snapshot, undeleted = _without_own_deletions(disk, at)
    if undeleted:
        read_from = 0  # their queues must be rebuilt from the log
    held = StoreState(disk, settings, boot="", zone=UTC)
    held.checkpoint.load(_ALL)
    saved = held.checkpoint.value
    saved.confirmed_offset = min(saved.confirmed_offset, read_from)
    saved.unseen_from = read_from
    saved.is_open = True
    held.checkpoint.write()
    for file in held.checkpoint.files():
        file.sync()
    disk.replace(ABORT, b"cut")
    segments = held.log.segments
    segments.load()
    segments.clear_after(at)
    for start in segments.starts[-1:]:
        segments.get_or_create(start).sync()
    segments.close()
    held.checkpoint.close()
    for topic in undeleted:
        _remove_queues(disk, topic)
    if undeleted:  # last of all: while it is not written, the log is cut again
        disk.replace(PATH, msgspec.json.encode(snapshot))


def _without_own_deletions(disk: Disk, at: int) -> tuple[Snapshot, list[str]]:
    """Return the snapshot without the deletions that this member made as a master and that its
    present master does not have. Return also their topics."""
    found = read_snapshot(disk) or Snapshot()
    deleted = DeletedTopics()
    deleted.load(found.deleted, found.latest_ms)
    topics = deleted.undo_own_after(at)
    found.deleted = deleted.of_topic
    found.queue_ends = {name: of for name, of in found.queue_ends.items() if name not in topics}
    return found, topics


def _remove_queues(disk: Disk, topic: str) -> None:
    folder = f"{FOLDER}/{topic}"
    for queue in disk.names(folder):
        for name in disk.names(f"{folder}/{queue}"):
            disk.remove(f"{folder}/{queue}/{name}")
        disk.remove(f"{folder}/{queue}")
    disk.remove(folder)


def _remove_derived_files(disk: Disk) -> None:
    for path in DERIVED_FILES:
        disk.remove(path)
        if former := former_path(path):
            disk.remove(former)
    for folder in FOLDERS_FROM_THE_LOG:
        for name in disk.names(folder):
            disk.remove(f"{folder}/{name}")
