"""Settings of the store. As in base/broker_settings.py the keys are RocketMQ's."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, field

from escrowmq.base.delay_levels import DELAY_LEVELS_DEFAULT
from escrowmq.base.fixed_limits import INT_MAX
from escrowmq.base.setting_facts import FIXED, LIVE, RESTART


class StoreSettings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The settings of the store (RocketMQ's MessageStoreConfig)."""

    is_sync_flush: Annotated[bool, Meta(extra=FIXED)] = False
    """flushDiskType=SYNC_FLUSH: an answer is sent only when the record is durable; read by
    node/config."""

    log_segment_size: Annotated[
        int,
        Meta(
            ge=4096,
            description="bytes of a commit-log file; never change it on a store",
            extra=FIXED,
        ),
    ] = field(default=1_073_741_824, name="mappedFileSizeCommitLog")
    queue_segment_size: Annotated[
        int, Meta(ge=20, description="bytes of a consume-queue file, rounded up to 20", extra=FIXED)
    ] = field(default=6_000_000, name="mappedFileSizeConsumeQueue")
    index_slots_count: Annotated[
        int, Meta(ge=1, description="hash slots of an index file", extra=FIXED)
    ] = field(default=5_000_000, name="maxHashSlotNum")
    index_entries_max: Annotated[
        int, Meta(ge=2, description="entries of an index file", extra=FIXED)
    ] = field(default=20_000_000, name="maxIndexNum")
    has_index: Annotated[bool, Meta(description="keep an index of message keys", extra=FIXED)] = (
        field(default=True, name="messageIndexEnable")
    )
    query_messages_max: Annotated[
        int, Meta(ge=1, description="maximum messages of one query", extra=LIVE)
    ] = field(default=64, name="maxMsgsNumBatch")
    body_size_max: Annotated[
        int, Meta(ge=1, le=INT_MAX, description="bytes of a message body", extra=RESTART)
    ] = field(default=4_194_304, name="maxMessageSize")
    flush_interval_ms: Annotated[
        int, Meta(ge=1, description="between background flushes", extra=RESTART)
    ] = field(default=500, name="flushIntervalCommitLog")
    flush_thorough_ms: Annotated[
        int, Meta(ge=1, description="longest time between full flushes", extra=RESTART)
    ] = field(default=10_000, name="flushCommitLogThoroughInterval")
    flush_pages_min: Annotated[
        int, Meta(ge=0, description="minimum of unflushed 4 KiB pages for a flush", extra=RESTART)
    ] = field(default=4, name="flushCommitLogLeastPages")
    queue_flush_interval_ms: Annotated[
        int,
        Meta(ge=1, description="between flushes of consume queues and checkpoint", extra=RESTART),
    ] = field(default=1_000, name="flushIntervalConsumeQueue")
    sync_timeout_ms: Annotated[
        int,
        Meta(
            ge=1,
            description="SYNC_FLUSH: how long a sender waits for the disk; after that, "
            "FLUSH_DISK_TIMEOUT",
            extra=LIVE,
        ),
    ] = field(default=5_000, name="syncFlushTimeout")
    checks_crc_on_recovery: Annotated[
        bool, Meta(description="check body CRCs when a store is opened", extra=RESTART)
    ] = field(default=True, name="checkCRCOnRecover")
    appends_crc: Annotated[
        bool,
        Meta(description="append the record CRC property (__CRC32#) to each message", extra=FIXED),
    ] = field(default=False, name="enabledAppendPropCRC")
    delete_when: Annotated[
        str, Meta(description="hours of clean-up, two digits each, separated by `;`", extra=LIVE)
    ] = field(default="04", name="deleteWhen")
    reserved_hours: Annotated[
        int, Meta(ge=1, description="hours that a file is kept", extra=LIVE)
    ] = field(default=72, name="fileReservedTime")
    disk_used_max_percent: Annotated[
        int, Meta(ge=10, le=95, description="files are deleted above this disk usage", extra=LIVE)
    ] = field(default=75, name="diskMaxUsedSpaceRatio")
    disk_warning_percent: Annotated[
        int, Meta(ge=35, le=99, description="writes are refused above this disk usage", extra=LIVE)
    ] = field(default=90, name="diskSpaceWarningLevelRatio")
    disk_forcible_percent: Annotated[
        int,
        Meta(
            ge=30, le=99, description="files are deleted regardless of age above this", extra=LIVE
        ),
    ] = field(default=85, name="diskSpaceCleanForciblyRatio")
    deletes_forcibly: Annotated[
        bool, Meta(description="delete young files when the disk is nearly full", extra=LIVE)
    ] = field(default=True, name="cleanFileForciblyEnable")
    delete_files_max: Annotated[
        int, Meta(ge=1, description="maximum number of files deleted in one round", extra=LIVE)
    ] = field(default=10, name="deleteFileBatchMax")
    clean_interval_ms: Annotated[
        int, Meta(ge=10, description="between rounds of clean-up", extra=LIVE)
    ] = field(default=10_000, name="cleanResourceInterval")
    read_count_max: Annotated[
        int, Meta(ge=1, description="maximum messages of one pull from recent data", extra=LIVE)
    ] = field(default=32, name="maxTransferCountOnMessageInMemory")
    read_size_max: Annotated[
        int, Meta(ge=1, description="maximum bytes of one pull from recent data", extra=LIVE)
    ] = field(default=262_144, name="maxTransferBytesOnMessageInMemory")
    read_old_count_max: Annotated[
        int, Meta(ge=1, description="maximum messages of one pull from old data", extra=LIVE)
    ] = field(default=8, name="maxTransferCountOnMessageInDisk")
    read_old_size_max: Annotated[
        int, Meta(ge=1, description="maximum bytes of one pull from old data", extra=LIVE)
    ] = field(default=65_536, name="maxTransferBytesOnMessageInDisk")
    memory_percent: Annotated[
        int,
        Meta(
            ge=0,
            le=100,
            description="percentage of RAM; as much of the newest log counts as recent",
            extra=RESTART,
        ),
    ] = field(default=40, name="accessMessageInMemoryMaxRatio")
    filter_scan_size: Annotated[
        int,
        Meta(ge=20, description="bytes of consume queue scanned by one filtering pull", extra=LIVE),
    ] = field(default=16_000, name="maxFilterMessageSize")
    delay_levels: Annotated[
        str, Meta(description="delays of the levels, with units s, m, h, d", extra=FIXED)
    ] = field(default=DELAY_LEVELS_DEFAULT, name="messageDelayLevel")
    reserve_size: Annotated[
        int,
        Meta(
            ge=0,
            description="bytes of disk reserved for settling transactions on a full disk",
            extra=RESTART,
        ),
    ] = field(default=16_777_216, name="escrowReserveBytes")
    memory_size: Annotated[int, Meta(extra=FIXED)] = 8 * 1024**3
    """RAM of the machine in bytes; read by node/config."""
