"""How far queues and index reached when the store was last closed or opened, which topics were
deleted, and in which boot of the machine: within one boot, the kernel still has what a killed
process wrote.

RocketMQ has no such file, and it is never required: a file that says less than the queues is merely
old. It is a lower bound that distinguishes a queue that was lost from one that never existed. If it
is absent or unreadable, nothing is assumed."""

from __future__ import annotations

import contextlib
import logging
from typing import Final

import msgspec

from escrowmq.base.ports import Disk
from escrowmq.errors import StorageError
from escrowmq.store.consume_queue import ConsumeQueue
from escrowmq.store.deletions import Deletion
from escrowmq.store.queues import Queues
from escrowmq.store.store_parts import StoreState

_log = logging.getLogger(__name__)

PATH: Final = "queues.json"


class Snapshot(msgspec.Struct, rename="camel"):
    """Ends of queues by topic and queue id; where their files began, except those that began at 0,
    if the log begins where it did then; the newest record that the index leads to; where the log
    began after its oldest segments were last deleted; topics that were deleted."""

    queue_ends: dict[str, dict[int, int]] = {}
    queue_begins: dict[str, dict[int, int]] | None = None
    index_end: int = -1
    boot: str = ""
    log_begin: int = 0
    deleted: dict[str, Deletion] = {}
    latest_ms: int = 0


def read_snapshot(disk: Disk) -> Snapshot | None:
    """The content of the file, or None."""
    data = disk.read(PATH)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=Snapshot)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _present(held: StoreState) -> Snapshot:
    """The snapshot of this moment."""
    held.deleted.forget_before(held.log.min_offset)
    ends: dict[str, dict[int, int]] = {}
    begins: dict[str, dict[int, int]] = {}
    for queue in held.queues:
        if queue.end:
            ends.setdefault(queue.topic, {})[queue.queue_id] = queue.end
        if queue.files.first:
            begins.setdefault(queue.topic, {})[queue.queue_id] = queue.files.first
    return Snapshot(
        queue_ends=ends,
        queue_begins=begins,
        index_end=held.index.end_log_offset if held.index is not None else -1,
        boot=held.boot,
        log_begin=held.log.min_offset,
        deleted=held.deleted.of_topic,
        latest_ms=held.deleted.latest_ms,
    )


def write_snapshot(held: StoreState) -> None:
    """Write the file."""
    held.disk.replace(PATH, msgspec.json.encode(_present(held)))
    # Only now: until the file is there, the journal alone tells which files were begun.
    held.queues.journal.begin_anew()


def note_deletions(held: StoreState) -> None:
    """Write the file, which names the deleted topics. If the disk cannot take it, the topic is
    deleted all the same; the write is retried."""
    try:
        write_snapshot(held)
    except (StorageError, OSError) as error:
        if held.deleted.is_kept:
            _log.warning(
                "that topics are deleted cannot be noted yet (%s): until then, a start that reads "
                "the log may bring their messages back",
                error,
            )
        held.deleted.kept(is_kept=False)
    else:
        held.deleted.kept(is_kept=True)


def relieve_journal(held: StoreState) -> None:
    """Write the file because the journal has no space for the queue files that are begun next. A
    failed write is retried when the next file begins."""
    held.queues.journal.relieved()
    with contextlib.suppress(StorageError, OSError):
        write_snapshot(held)


def note_log_begin(held: StoreState, log_offset: int) -> None:
    """Note that everything before an offset is about to be deleted: a power failure meanwhile may
    bring one file back and not another."""
    # The file may have been removed; one that names no queue would say that none can be lost.
    snapshot = read_snapshot(held.disk) or _present(held)
    snapshot.log_begin = log_offset
    snapshot.queue_begins = None  # queues will be trimmed
    held.disk.replace(PATH, msgspec.json.encode(snapshot))


def lost_queues(snapshot: Snapshot, queues: Queues, log_begin: int) -> list[str]:
    """The queues that lack units which they once had, at either end."""
    begins = snapshot.queue_begins if snapshot.log_begin == log_begin else None
    found = []
    for topic, ends in snapshot.queue_ends.items():
        for queue_id, end in ends.items():
            queue = queues.by_key.get((topic, queue_id))
            if queue is None or queue.end < end or _lacks_begin(queue, begins):
                found.append(f"{topic}/{queue_id}")
    return found


def _lacks_begin(queue: ConsumeQueue, begins: dict[str, dict[int, int]] | None) -> bool:
    if begins is None:
        return False
    return queue.files.first > begins.get(queue.topic, {}).get(queue.queue_id, 0)
