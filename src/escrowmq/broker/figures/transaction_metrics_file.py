"""Writes config/transactionMetrics: the numbers of pending halves by topic, as RocketMQ does.

It is written for other programs only. The broker never reads its counts, because it gets exact ones
from the log."""

from __future__ import annotations

from typing import Final

import msgspec

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.effects import Replace
from escrowmq.broker.output import Output
from escrowmq.broker.part import NOTHING, File, Part, StartContext
from escrowmq.delivery.data_version import DataVersion
from escrowmq.txn.transaction_counters import TransactionMeter

PATH: Final = "config/transactionMetrics"
_NEVER_MS: Final = (1 << 62) - 1


class _TopicCount(msgspec.Struct, rename={"time_stamp": "timeStamp"}):
    count: int
    time_stamp: int


class _MetricsFile(msgspec.Struct, rename="camel"):
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    transaction_count: dict[str, _TopicCount] = {}


class HalfCountsFile(Part):
    """Saves the numbers of pending halves periodically, if one has changed."""

    name = "counts of halves"

    def __init__(self, settings: BrokerSettings, output: Output, meter: TransactionMeter) -> None:
        self._settings = settings
        self._output = output
        self._meter = meter
        self._file = _MetricsFile()
        self._saved_changes = 0
        self._at_ms = 0

    def load(self, start: StartContext) -> None:
        """Continue the version number of the existing file."""
        data = start.disk.read(PATH)
        try:
            self._file.data_version = msgspec.json.decode(
                data or b"{}", type=_MetricsFile
            ).data_version
        except (msgspec.DecodeError, UnicodeDecodeError):
            return

    def wake(self, now_ms: int) -> None:
        """Save the counts if it is time."""
        if now_ms >= self.wake_at_ms():
            self._at_ms = now_ms + self._settings.transaction_metrics_flush_ms
            self._output.add_effect(Replace(PATH, self.encode_file(now_ms)))

    def wake_at_ms(self) -> int:
        """The time of the next save; never if nothing has changed."""
        return _NEVER_MS if self._meter.changes == self._saved_changes else self._at_ms

    def final_files(self, now_ms: int) -> tuple[File, ...]:
        """Return the file to write when the broker stops; nothing if it is unchanged."""
        is_changed = self._meter.changes != self._saved_changes
        return ((PATH, self.encode_file(now_ms)),) if is_changed else NOTHING

    def encode_file(self, now_ms: int) -> bytes:
        """Return the file's new content."""
        counts = self._file.transaction_count
        for topic in counts.keys() - self._meter.pending.keys():
            del counts[topic]
        for topic, count in self._meter.pending.items():
            known = counts.get(topic)
            if known is None or known.count != count:
                counts[topic] = _TopicCount(count, now_ms)
        self._file.data_version.advance(now_ms)
        self._saved_changes = self._meter.changes
        return msgspec.json.encode(self._file)
