"""The snapshot file: how far queues and index reached when the store was last closed or opened,
which topics were deleted, and in which boot of the machine. Within one boot, the kernel still has
all that a killed process wrote.

The file gives lower bounds, by which a lost queue is distinguished from one that never existed. It
is never required, and RocketMQ has no such file: an old file only says less, and without one
nothing is assumed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection
from typing import Final

import msgspec

from escrowmq.base.message import Topic
from escrowmq.base.ports import Disk
from escrowmq.errors import StorageError
from escrowmq.store.consume_queue import ConsumeQueue
from escrowmq.store.deletions import Deletion
from escrowmq.store.queues import Queues
from escrowmq.store.store_parts import StoreState

_log = logging.getLogger(__name__)

PATH: Final = "queues.json"
_MADE_BY_BROKERS: Final = (Topic.RETRY_PREFIX, Topic.DLQ_PREFIX)


class Snapshot(msgspec.Struct, rename="camel"):
    """The content of the snapshot file: ends of queues by topic and queue id; where their files
    begin, if not at 0; the newest indexed record; the boot; where the log began after the last
    deletion; deleted topics; the latest time of a record."""

    queue_ends: dict[str, dict[int, int]] = {}
    queue_begins: dict[str, dict[int, int]] | None = None
    index_end: int = -1
    boot: str = ""
    log_begin: int = 0
    deleted: dict[str, Deletion] = {}
    latest_ms: int = 0


def read_snapshot(disk: Disk) -> Snapshot | None:
    """Return the content of the file; None if it is absent or unreadable."""
    data = disk.read(PATH)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=Snapshot)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _current_snapshot(state: StoreState) -> Snapshot:
    """Return the snapshot of the present state."""
    state.deleted.forget_before(state.log.min_offset)
    ends: dict[str, dict[int, int]] = {}
    begins: dict[str, dict[int, int]] = {}
    for queue in state.queues:
        if queue.end:
            ends.setdefault(queue.topic, {})[queue.queue_id] = queue.end
        if queue.files.first_position:
            begins.setdefault(queue.topic, {})[queue.queue_id] = queue.files.first_position
    return Snapshot(
        queue_ends=ends,
        queue_begins=begins,
        index_end=state.index.end_log_offset if state.index is not None else -1,
        boot=state.boot,
        log_begin=state.log.min_offset,
        deleted=state.deleted.of_topic,
        latest_ms=state.deleted.latest_ms,
    )


def without_queues(state: StoreState, snapshot: Snapshot, now_ms: int) -> Snapshot:
    """Return a snapshot without its queues, because RocketMQ has served the folder since. Those
    that are gone may be of topics that RocketMQ has deleted. If it knows the topic no more, that is
    recorded: otherwise the scan of the log would bring them back."""
    had = {*snapshot.queue_ends, *(begun.topic for begun in state.queues.journal.load())}
    has = {queue.topic for queue in state.queues if queue.files.starts}
    newest_ms = max(now_ms, state.durability.checkpoint.log_ms)
    for topic in had - has - (state.queues.topics_of_rocketmq or had):
        if not topic.startswith(_MADE_BY_BROKERS):  # we may have made it since, and not saved it
            state.deleted.record_deletion(
                topic, log_end=state.log.segments.end, stored_ms=newest_ms
            )
    return msgspec.structs.replace(snapshot, queue_ends={}, queue_begins=None)


def write_snapshot(state: StoreState) -> None:
    """Write the snapshot file, and clear the journal."""
    state.disk.replace(PATH, msgspec.json.encode(_current_snapshot(state)))
    state.set_boot_saved(is_noted=True)
    # Only now: until the file is there, the journal alone tells which files were begun.
    state.queues.journal.clear()


def save_deletions(state: StoreState) -> None:
    """Write the file, which names the deleted topics. If that fails, the deletions are in force
    nevertheless, and the write is retried later."""
    try:
        write_snapshot(state)
    except (StorageError, OSError) as error:
        if state.deleted.is_saved:
            _log.warning(
                "the deletion of topics could not be recorded yet (%s): until it is, a "
                "start that reads the log may bring their messages back",
                error,
            )
        state.deleted.set_saved(is_kept=False)
    else:
        state.deleted.set_saved(is_kept=True)


def remove_queues(state: StoreState, doomed: Collection[ConsumeQueue]) -> None:
    """Remove the queues of deleted topics. The snapshot without them is written first: otherwise a
    start would take them for lost, or rebuild them."""
    for queue in doomed:
        del state.queues.by_key[queue.topic, queue.queue_id]
    state.dispatcher.detach_queues(set(doomed))
    save_deletions(state)
    for queue in doomed:
        queue.remove()


def empty_full_journal(state: StoreState) -> None:
    """Write the snapshot because the journal is full. If that fails, it is retried when the next
    queue file begins."""
    state.queues.journal.note_snapshot_begun()
    with contextlib.suppress(StorageError, OSError):
        write_snapshot(state)


def save_log_begin(state: StoreState, log_offset: int) -> None:
    """Record that the log before an offset is about to be deleted. A power failure during that may
    bring back some of its files."""
    _save_fields(state, log_begin=log_offset)


def save_boot(state: StoreState) -> None:
    """Record the machine's present boot in the file, if the disk was too full for that at the
    start. Without it, the next start takes a damaged end of the log for the effect of a power
    failure."""
    with contextlib.suppress(StorageError, OSError):
        _save_fields(state, boot=state.boot)
        state.set_boot_saved(is_noted=True)


def _save_fields(state: StoreState, **fields: object) -> None:
    """Change some fields of the file. The begins of queues are left out, because queues were or
    will be trimmed."""
    # If the file was removed, write the present queues: a file without any would hide losses.
    snapshot = read_snapshot(state.disk) or _current_snapshot(state)
    changed = msgspec.structs.replace(snapshot, queue_begins=None, **fields)
    state.disk.replace(PATH, msgspec.json.encode(changed))


def lost_queues(snapshot: Snapshot, queues: Queues, log_begin: int) -> list[str]:
    """Return the queues that lack units which they once had, at either end."""
    begins = snapshot.queue_begins if snapshot.log_begin == log_begin else None
    found = []
    for topic, ends in snapshot.queue_ends.items():
        for queue_id, end in ends.items():
            queue = queues.by_key.get((topic, queue_id))
            if queue is None or queue.end < end or _lacks_first_units(queue, begins):
                found.append(f"{topic}/{queue_id}")
    return found


def _lacks_first_units(queue: ConsumeQueue, begins: dict[str, dict[int, int]] | None) -> bool:
    if begins is None:
        return False
    return queue.files.first_position > begins.get(queue.topic, {}).get(queue.queue_id, 0)
