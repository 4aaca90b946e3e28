"""Serves requests about the broker's settings and runtime metrics, and manual clean-up."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from escrowmq.base.answer import DONE, Answer, Refusal, Reply
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Response
from escrowmq.base.ports import Disk
from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.base.setting_facts import settings_of
from escrowmq.base.store_settings import StoreSettings
from escrowmq.broker.access import audit_log
from escrowmq.broker.identity import Identity
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.broker.peers import Peers
from escrowmq.codec import fastjson
from escrowmq.codec.changed_settings import ChangedSettings
from escrowmq.codec.java_properties import ConfError, parse_java_properties
from escrowmq.delivery.data_version import DataVersion
from escrowmq.delivery.stats import BROKER_GET, BROKER_PUT, GET_SIZE, StatMeter, Stats
from escrowmq.delivery.topics import TopicTable
from escrowmq.errors import UsageError
from escrowmq.store.commit_log import FOLDER
from escrowmq.store.retention import check_hours
from escrowmq.store.store import Store

_log = logging.getLogger(__name__)

_UNIT_SIZE: Final = 1024
_UNITS: Final = "KMGTPE"
_VERSION_NAME: Final = "V5_3_3"
_VERSION: Final = 479

_SETTINGS: Final = [
    *settings_of(BrokerSettings),
    *settings_of(StoreSettings),
    *settings_of(ReplicaSettings),
]
_OURS: Final = ("is_sync_flush", "memory_size")
"""Names of our own fields that the settings file does not have: they are derived from other
settings, or measured."""

FIXED_NAMES: Final = frozenset(s.name for s in _SETTINGS if s.holds == "fixed") | {*_OURS}
"""Settings that no request may change. No other setting is a path, address or command. RocketMQ
accepts nearly any key, which led to remote code execution (CVE-2023-33246)."""

_FROM_NEXT_START: Final = frozenset(s.name for s in _SETTINGS if s.holds == "restart")
_HIDDEN: Final = "(secret)"
_SECRET: Final = tuple(s.name for s in _SETTINGS if s.is_secret)

_OF_THE_PROCESS: Final = frozenset(
    {"bindAddress", "listenPort", "storePathRootDir", "storePathCommitLog", "flushDiskType",
     "metricsExporterType", "metricsPromExporterHost", "metricsPromExporterPort",
     "serverChannelMaxIdleTimeSeconds", "escrowAclFolder"}
)  # fmt: skip
"""Names of settings that the broker's process reads, once at its start."""

_FORBIDDEN: Final = frozenset({"brokerConfigPath", "rocketmqHome", "configBlackList"})
"""Keys that RocketMQ refuses by name, with code 16."""

CHANGES_FILE: Final = "config/brokerChanges.json"


def restore_changed_settings(
    disk: Disk, settings: BrokerSettings, store_settings: StoreSettings, replica: ReplicaSettings
) -> ChangedSettings:
    """Restore the settings that were changed before this start. Call it before anything reads
    them."""
    changes = ChangedSettings(settings, store_settings, replica, fixed=FIXED_NAMES)
    changes.load(disk.read(CHANGES_FILE), source=CHANGES_FILE)
    return changes


class ConfigHandlers:
    """Serves requests about settings, runtime metrics and clean-up (codes 25, 26, 28, 306, 316,
    329, 354, 355, 2001 to 2004)."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store_settings: StoreSettings,
        store: Store,
        topics: TopicTable,
        stats: Stats,
        identity: Identity,
        disk: Disk,
        changes: ChangedSettings,
        peers: Peers,
    ) -> None:
        self._peers = peers
        self._settings = settings
        self._store_settings = store_settings
        self._store = store
        self._topics = topics
        self._stats = stats
        self._identity = identity
        self._disk = disk
        self._changes = changes
        self._version = DataVersion()

    # -- settings ----------------------------------------------------------------------------

    def _shown_settings(self) -> dict[str, str]:
        found = self._changes.current_texts()
        for name in _OURS + _SECRET:
            del found[name]
        found["flushDiskType"] = (
            "SYNC_FLUSH" if self._store_settings.is_sync_flush else "ASYNC_FLUSH"
        )
        found["listenPort"] = self._identity.address.rpartition(":")[2]
        return found

    def show_settings(self, request: IncomingRequest[None]) -> Reply:
        """Answer with all settings, one line each."""
        body = "".join(
            f"{name}={value}\n" for name, value in sorted(self._shown_settings().items())
        )
        version = fastjson.encode(self._version).decode()
        changed = {
            name: change
            for name, change in self._changes.changes_by_name().items()
            if name not in _SECRET
        }
        return Answer(
            body=body.encode(),
            # Our own addition: the settings changed by requests, with old value, sender and time.
            ext={"version": version, "escrowChanges": fastjson.encode(changed).decode()},
        )

    def update_settings(self, request: IncomingRequest[None]) -> Reply:
        """Change settings permanently, all of them or none. They are saved before they take
        effect."""
        try:
            texts = parse_java_properties(request.body.decode("utf-8", "replace"))
        except ConfError as error:
            return Refusal(Response.SYSTEM_ERROR, str(error))
        if not texts:
            return Refusal(Response.SYSTEM_ERROR, "string2Properties error")
        if _FORBIDDEN & texts.keys():
            return Refusal(Response.NO_PERMISSION, "Can not update config in black list.")
        unknown = sorted(
            name
            for name in texts
            if not self._changes.has_setting(name) and name not in _OF_THE_PROCESS
        )
        if unknown:
            return Refusal(
                Response.INVALID_PARAMETER,
                f"{', '.join(unknown)}: unknown setting; GET_BROKER_CONFIG lists the known ones",
            )
        refused = sorted(name for name in texts if not self._changes.may_change(name))
        if refused:
            return Refusal(
                Response.NO_PERMISSION,
                f"{', '.join(refused)}: not among the settings that may be changed "
                "while the broker runs; change them in its file and restart it",
            )
        try:
            parsed = self._changes.parse_values(texts)
            check_hours(parsed.get("deleteWhen", ""))
        except UsageError as error:
            return Refusal(Response.INVALID_PARAMETER, str(error))
        before, who = self._changes.current_texts(), audit_log.sender_text(request)
        data = self._changes.encode_with(parsed, who=who, at_ms=request.now_ms)
        self._disk.replace(CHANGES_FILE, data)
        self._changes.apply_values(parsed, who=who, at_ms=request.now_ms)
        self._version.advance(request.now_ms)
        self._log_changes(request, before, texts)
        if "brokerPermission" in texts:
            self._topics.mark_all_unregistered(request.now_ms)
        later = sorted(_FROM_NEXT_START & texts.keys())
        remark = f"{', '.join(later)}: saved; it takes effect at the next start" if later else None
        return Answer(remark=remark)

    def _log_changes(
        self, request: IncomingRequest[None], before: dict[str, str], names: Iterable[str]
    ) -> None:
        """Write each changed setting, with its old and new value, to the broker's log and the audit
        log."""
        after = self._changes.current_texts()
        for name in sorted(names):
            old, new = (_HIDDEN if name in _SECRET else texts[name] for texts in (before, after))
            audit_log.write_line("setting", request, name=name, before=old, after=new)
            _log.warning("%s changed %s from %s to %s", request.peer.address, name, old, new)

    # -- figures -----------------------------------------------------------------------------

    def runtime_info(self, request: IncomingRequest[None]) -> Reply:
        """Answer with the metrics that mqadmin's clusterList and brokerStatus show."""
        body = fastjson.encode(
            {"table": dict(sorted(self._runtime_figures(request.now_ms).items()))}
        )
        return Answer(body=body)

    def _runtime_figures(self, now_ms: int) -> dict[str, str]:
        store = self._store
        stats = self._stats
        puts = stats.meter(BROKER_PUT, "") or StatMeter()
        gets = stats.meter(BROKER_GET, "") or StatMeter()
        ratio = f"{store.disk_percent / 100:.2f}"
        up_s = (now_ms - self._identity.started_ms) // 1000
        usage = store.disk.usage(FOLDER)
        oldest_ms = store.oldest_stored_ms
        figures = _NOT_HERE | {
            "brokerVersion": str(_VERSION),
            "brokerVersionDesc": _VERSION_NAME,
            "escrowVersion": self._identity.release,
            "escrowConnections": str(len(self._peers.by_id)),
            "escrowReadOnly": store.refusal or "",
            "brokerActive": "true",
            "bootTimestamp": str(self._identity.started_ms),
            "runtime": f"[ {up_s // 86400} days, {up_s // 3600 % 24} hours, "
            f"{up_s // 60 % 60} minutes, {up_s % 60} seconds ]",
            "startAcceptSendRequestTimeStamp": str(self._settings.accepts_sends_from_ms),
            "msgPutTotalTodayNow": str(puts.total),
            "msgGetTotalTodayNow": str(gets.total),
            "msgPutTotalTodayMorning": "0",
            "msgGetTotalTodayMorning": "0",
            "msgPutTotalYesterdayMorning": "0",
            "msgGetTotalYesterdayMorning": "0",
            "putTps": _three_rates(puts),
            "getTotalTps": _three_rates(gets),
            "getFoundTps": _three_rates(stats.pulls_found),
            "getMissTps": _three_rates(stats.pulls_missed),
            "getTransferredTps": _three_rates(stats.meter(GET_SIZE, "") or gets),
            "putMessageTimesTotal": str(puts.total),
            "putMessageFailedTimes": str(stats.put_failed_count),
            "putMessageSizeTotal": str(store.end_offset - store.min_log_offset),
            "putMessageAverageSize": f"{store.end_offset / max(1, puts.total):.1f}",
            "earliestMessageTimeStamp": str(oldest_ms),
            "commitLogMinOffset": str(store.min_log_offset),
            "commitLogMaxOffset": str(store.end_offset),
            "commitLogDirCapacity": f"Total : {_readable_size(usage.total_size)}, "
            f"Free : {_readable_size(usage.free_size)}.",
            "commitLogDiskRatio": ratio,
            "consumeQueueDiskRatio": ratio,
            "dispatchBehindBytes": str(store.unseen_size),
            "dispatchMaxBuffer": "0",
            "remainHowManyDataToFlush": f"{store.end_offset - store.durable_offset} B",
            "remainTransientStoreBufferNumbs": "0",
        }
        for pool, capacity in _POOLS.items():
            figures[f"{pool}ThreadPoolQueueSize"] = "0"
            figures[f"{pool}ThreadPoolQueueCapacity"] = str(capacity)
            figures[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        return figures

    def cold_data_info(self, request: IncomingRequest[None]) -> Reply:
        """Answer that reads of old data are not throttled."""
        body = {
            "runtimeTable": {},
            "configTable": {},
            "cgColdReadThreshold": 3_145_728,
            "globalColdReadThreshold": 104_857_600,
            "globalAcc": 0,
        }
        return Answer(body=fastjson.encode(body))

    def ignore_cold_data_hint(self, request: IncomingRequest[None]) -> Reply:
        """Ignore a hint about reading old data, and answer that it was accepted: the operating
        system's page cache decides."""
        return DONE

    def answer_no_rocksdb(self, request: IncomingRequest[None]) -> Reply:
        """Answer that the store does not use RocksDB."""
        return Answer(body=b'{"checkStatus":2}')

    def export_tables(self, request: IncomingRequest[None]) -> Reply:
        """Answer that the export is done: the tables are in JSON already."""
        return Answer(remark="export done.")

    # -- clean-up ----------------------------------------------------------------------------

    def remove_unused_queues(self, request: IncomingRequest[None]) -> Reply:
        """Remove the queues of deleted topics."""
        cleaned = self._store.remove_other_queues(self._topics.names())
        _log.info(
            "queues of %d deleted topics were removed, as requested by %s",
            len(cleaned),
            request.peer.address,
        )
        return DONE

    def delete_expired_files(self, request: IncomingRequest[None]) -> Reply:
        """Start deleting expired log files now, at any hour."""
        self._store.retention.request_cleanup()
        return DONE


_NOT_HERE: Final = {
    "putMessageEntireTimeMax": "0",
    "getMessageEntireTimeMax": "0",
    "putMessageDistributeTime": "null",
    "putLatency99": "0",
    "putLatency999": "0",
    "pageCacheLockTimeMills": "0",
    "timerReadBehind": "0",
    "timerOffsetBehind": "0",
    "timerCongestNum": "0",
    "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0",
    "EndTransactionQueueSize": "0",
    "EndTransactionThreadPoolQueueCapacity": "100000",
}
"""Metrics of locks, pools and timer wheels that this broker does not have. Clients expect the
names."""

_POOLS: Final = {
    "send": 10_000,
    "pull": 100_000,
    "litePull": 100_000,
    "ack": 100_000,
    "query": 20_000,
}


def _readable_size(size: int) -> str:
    """Format a size as RocketMQ does (MixAll.humanReadableByteCount)."""
    if size < _UNIT_SIZE:
        return f"{size:.0f} B"
    power = 1
    while power < len(_UNITS) and size >= _UNIT_SIZE ** (power + 1):
        power += 1
    return f"{size / _UNIT_SIZE**power:.1f} {_UNITS[power - 1]}iB"


def _three_rates(meter: StatMeter) -> str:
    """Format three rates, separated by spaces, as clusterList parses them: over ten seconds, a
    minute, and an hour."""
    return f"{meter.tps(1)} {meter.tps(6)} {meter.hour().tps}"
