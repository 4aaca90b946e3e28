"""Whether a data folder holds a store of the supported kind, with its log.

A start that took another kind of store, or one without its log, for an empty store would be ready
with nothing in it, and would overwrite what leads to the messages. `store check` uses the same
test."""

from __future__ import annotations

from typing import Final

from escrowmq.base.ports import TABLES, Disk
from escrowmq.codec.entries import CHECKPOINT_SIZE, decode_checkpoint
from escrowmq.errors import StorageError
from escrowmq.store import checkpoint, commit_log, consume_queue
from escrowmq.store.queue_snapshot import read_snapshot
from escrowmq.store.segment import NAME_SIZE

_ROCKSDB: Final = "CURRENT"
"""The one file that every RocksDB folder has."""

_OTHERS: Final = ("users", "acls")
"""RocksDB folders below `config/` that are not part of a store: accounts of ACL 2.0."""

_DLEDGER: Final = "dledger-"


def refuse_other(disk: Disk, *, boot: str = "") -> None:
    """StorageError when the folder holds a store of an unsupported kind, or the remains of one
    whose log is elsewhere. `boot` names the machine's present boot, if known."""
    fault = _other_kind(disk) or _without_log(disk, boot)
    if fault:
        raise StorageError(fault)


def _other_kind(disk: Disk) -> str:
    """Which files of RocketMQ's other kinds of stores exist; empty when there are none."""
    names = disk.names("")
    folders = [name for name in names if name.startswith(consume_queue.FOLDER)]
    tables = TABLES.rstrip("/")
    folders += [f"{tables}/{name}" for name in disk.names(tables) if name not in _OTHERS]
    for folder in folders:
        if disk.size(f"{folder}/{_ROCKSDB}") is not None:
            return (
                f"{folder} is RocksDB's: the store is one of storeType=defaultRocksDB, which is "
                "not read here. Name another data folder, and let consumers finish there"
            )
    for name in names:
        if name.startswith(_DLEDGER) and disk.names(f"{name}/data"):
            return (
                f"{name} is a log of DLedger (enableDLegerCommitLog), which is not read here. Name "
                "another data folder, and let consumers finish on the old brokers"
            )
    return ""


def _without_log(disk: Disk, boot: str) -> str:
    """Why there must have been a log when there is none; else empty."""
    if has_log(disk):
        return ""
    witness = _witness(disk, boot)
    if not witness:
        return ""
    return (
        f"{commit_log.FOLDER} has no file, but {witness}. Mount the disk that holds the log, or "
        "name its folder as storePathCommitLog; to start with an empty store, move the data "
        "folder away"
    )


def has_log(disk: Disk) -> bool:
    """Whether there is a file of the log. A file of length 0 was never written to."""
    folder = commit_log.FOLDER
    return any(
        len(name) == NAME_SIZE and name.isdigit() and disk.size(f"{folder}/{name}")
        for name in disk.names(folder)
    )


def _witness(disk: Disk, boot: str) -> str:
    """The evidence that a log once had messages. Queues are evidence after a clean stop, or within
    the same boot of the machine: their first units may survive a log that was lost in a power
    failure."""
    snapshot = read_snapshot(disk)
    if snapshot is not None and snapshot.queue_ends:
        return f"queues.json knows {len(snapshot.queue_ends)} topics with messages"
    # RocketMQ keeps no note of its queues, and a checkpoint all the same.
    data = disk.read(checkpoint.PATH)
    if data is not None and len(data) == CHECKPOINT_SIZE:
        known = decode_checkpoint(data)
        if known.log_ms > 0 or known.confirmed_offset > 0:
            return "the checkpoint knows of messages"
    is_same_boot = bool(boot) and snapshot is not None and snapshot.boot == boot
    if is_same_boot or disk.size("abort") is None:
        for topic in disk.names(consume_queue.FOLDER):
            for queue_id in disk.names(f"{consume_queue.FOLDER}/{topic}"):
                if disk.names(f"{consume_queue.FOLDER}/{topic}/{queue_id}"):
                    return f"{consume_queue.FOLDER} has queues, of {topic} for one"
    return ""
