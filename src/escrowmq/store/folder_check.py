"""Refuses a data folder of an unsupported kind, or one whose log is missing.

A start that took such a folder for an empty store would serve nothing, and would overwrite the
files that lead to the messages. `store check` uses the same test.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from escrowmq.base.ports import TABLES, Disk
from escrowmq.codec.store_entries import CHECKPOINT_SIZE, decode_checkpoint
from escrowmq.errors import StorageError
from escrowmq.store import checkpoint, commit_log, consume_queue, queue_snapshot
from escrowmq.store.queue_snapshot import read_snapshot
from escrowmq.store.segment import NAME_SIZE

_ROCKSDB: Final = "CURRENT"
"""A file that every RocksDB folder has."""

_IGNORED_DATABASES: Final = ("users", "acls")
"""RocksDB folders below `config/` that are not part of the store: the accounts of ACL 2.0."""

_CONFIG_V2: Final = "rdb"
"""The RocksDB folder below `config/` of configManagerVersion=v2."""

_DATABASES: Final = {
    "rocksdbstore": (
        "RocketMQ has timers (timerRocksDBEnable), pending transactions (transRocksDBEnable) or "
        "its index (indexRocksDBEnable) there, and they are not read here. Switch the first two "
        "off at the old broker (`mqadmin switchTimerEngine -e F`, transRocksDBEnable=false) and "
        "let it run until those that it has are delivered or settled; then stop it and move "
        "rocksdbstore away. With the index alone, move it away at once: it is built anew"
    ),
    "kvStore": (
        "RocketMQ has messages there that consumers popped and did not acknowledge "
        "(popConsumerKVServiceEnable), and they are not read here. Start the old broker with "
        "popConsumerKVServiceEnable=false, let `mqadmin exportPopRecord` write them to the log, "
        "stop it and move kvStore away"
    ),
}
"""RocksDB folders beside the log, and what to do about their data. RocketMQ 5.4 and newer may
create them without using them."""

_ROCKSDB_HALVES: Final = f"{consume_queue.FOLDER}/RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
"""The queue of halves whose outcomes RocketMQ keeps in `rocksdbstore`, or only in memory until it
is closed."""

_NAMED_MAX: Final = 5
_BATCH_QUEUES: Final = "batchconsumequeue"
_DLEDGER: Final = "dledger-"


def refuse_unsupported(disk: Disk, *, boot: str = "") -> None:
    """Raise StorageError if the folder has an unsupported kind of store, or remains of a store
    whose log is missing. `boot` identifies the machine's present boot, if known."""
    fault = _unsupported_files(disk) or _missing_log_evidence(disk, boot)
    if fault:
        raise StorageError(fault)


def _unsupported_files(disk: Disk) -> str:
    """Return which files of an unsupported kind of store exist; empty when there are none."""
    fault = _tables_in_database(disk)
    if fault:
        return fault
    names = disk.names("")
    for folder, what in _DATABASES.items():
        if _has_data(disk, folder):
            return f"{folder} is RocksDB's, and has data: {what}"
    if disk.names(_ROCKSDB_HALVES) and disk.size(queue_snapshot.PATH) is None:
        return (
            f"{_ROCKSDB_HALVES} has halves of transRocksDBEnable, whose outcomes are not read "
            "here. Start the old broker with transWriteOriginTransHalfEnable=true, let it run "
            "until they are settled, stop it and move this folder away, and rocksdbstore"
        )
    for folder in names:
        if folder.startswith(consume_queue.FOLDER) and _is_rocksdb(disk, folder):
            return (
                f"{folder} is RocksDB's: RocketMQ has the queues of its topics there, which are "
                f"not read here. Move {folder} away, and {consume_queue.FOLDER} with it: the "
                "queues are built anew from the log"
            )
    if topics := list(islice(_topics_with_queues(disk, _BATCH_QUEUES), _NAMED_MAX)):
        return (
            f"{_BATCH_QUEUES} has queues of {', '.join(topics)}, topics with "
            "queue.type=BatchCQ, which are not read here. Start the old broker, let consumers "
            "finish these topics, and delete them there"
        )
    for name in names:
        if name.startswith(_DLEDGER) and disk.names(f"{name}/data"):
            return (
                f"{name} is a log of DLedger (enableDLegerCommitLog), which is not read here. Name "
                "another data folder, and let consumers finish on the old brokers"
            )
    return ""


def _tables_in_database(disk: Disk) -> str:
    """Return which tables are in a database; empty when there are none."""
    tables = TABLES.rstrip("/")
    found = sorted(
        name
        for name in disk.names(tables)
        if name not in _IGNORED_DATABASES and _is_rocksdb(disk, f"{tables}/{name}")
    )
    if not found:
        return ""
    folders = " and ".join(f"{tables}/{name}" for name in found)
    what = f"{folders}: RocksDB's. RocketMQ has topics, groups and offsets there "
    if _CONFIG_V2 in found:
        return (
            f"{what}(configManagerVersion=v2), which are not read here and which none of its tools "
            "writes as JSON. Name another data folder, and let consumers finish on the old broker"
        )
    return (
        f"{what}(storeType=defaultRocksDB), which are not read here. Let the old broker write them "
        "as JSON while it runs (`mqadmin rocksDBConfigToJson -b HOST:PORT`), stop it, and move "
        f"away {folders} and {consume_queue.FOLDER}: the queues are built anew from the log"
    )


def _is_rocksdb(disk: Disk, folder: str) -> bool:
    return disk.size(f"{folder}/{_ROCKSDB}") is not None


def _has_data(disk: Disk, folder: str) -> bool:
    """Whether anything was ever written to a RocksDB folder: table files, or a log with content."""
    return _is_rocksdb(disk, folder) and any(
        name.endswith(".sst") or (name.endswith(".log") and disk.size(f"{folder}/{name}"))
        for name in disk.names(folder)
    )


def _missing_log_evidence(disk: Disk, boot: str) -> str:
    """Return the evidence that a log is missing, and what to do; empty if none is missing."""
    if has_log(disk):
        return ""
    witness = _message_evidence(disk, boot)
    if not witness:
        return ""
    return (
        f"{commit_log.FOLDER} has no file, but {witness}. Mount the disk that holds the log, or "
        "name its folder as storePathCommitLog; to start with an empty store, move the data "
        "folder away"
    )


def has_log(disk: Disk) -> bool:
    """Whether the log has a file. Files of length 0 do not count: nothing was written to them."""
    folder = commit_log.FOLDER
    return any(
        len(name) == NAME_SIZE and name.isdigit() and disk.size(f"{folder}/{name}")
        for name in disk.names(folder)
    )


def _message_evidence(disk: Disk, boot: str) -> str:
    """Return the evidence that there were messages once; empty without any. Queues are evidence
    after a clean stop, or within the same boot of the machine: otherwise they may have survived a
    log that a power failure took."""
    snapshot = read_snapshot(disk)
    if snapshot is not None and snapshot.queue_ends:
        return f"queues.json knows {len(snapshot.queue_ends)} topics with messages"
    # RocketMQ keeps no snapshot of its queues, but it does keep a checkpoint.
    data = disk.read(checkpoint.PATH)
    if data is not None and len(data) == CHECKPOINT_SIZE:
        known = decode_checkpoint(data)
        if known.log_ms > 0 or known.confirmed_offset > 0:
            return "the checkpoint knows of messages"
    is_same_boot = bool(boot) and snapshot is not None and snapshot.boot == boot
    was_clean = disk.size("abort") is None
    if is_same_boot or was_clean:
        for topic in _topics_with_queues(disk, consume_queue.FOLDER):
            return f"{consume_queue.FOLDER} has queues, of {topic} for one"
    return ""


def _topics_with_queues(disk: Disk, folder: str) -> Iterator[str]:
    for topic in disk.names(folder):
        if any(disk.names(f"{folder}/{topic}/{each}") for each in disk.names(f"{folder}/{topic}")):
            yield topic
