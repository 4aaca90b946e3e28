"""Computes a unit's tags code and the index keys of records that are known as bytes
(`codec.log_records.ScannedRecord`), without decoding the message."""

from __future__ import annotations

from typing import Final

from escrowmq.base.message import SysFlag
from escrowmq.codec.hashes import java_hash, tags_code
from escrowmq.codec.log_records import ScannedRecord
from escrowmq.codec.properties import decode_properties, property_value
from escrowmq.store.dispatch import schedule_unit_code
from escrowmq.store.index_chains import index_key

_KNOWN_MAX: Final = 10_000


class UnitTagsCodes:
    """Computes the tags codes of units."""

    def __init__(self, delays_ms: dict[int, int]) -> None:
        """`delays_ms`: the delay of each delay level."""
        self._delays_ms = delays_ms
        self._known: dict[bytes, int] = {b"": 0}

    def code_of(self, record: ScannedRecord, *, is_schedule: bool) -> int:
        """Return the tags code of a record; for a record of the schedule topic, its delivery
        time."""
        tags = property_value(record.properties, b"TAGS\x01")
        code = self._known.get(tags)
        if code is None:
            if len(self._known) > _KNOWN_MAX:
                self._known = {b"": 0}
            code = self._known[tags] = tags_code(tags.decode("utf-8", "replace"))
        if is_schedule:
            properties = decode_properties(record.properties)
            return schedule_unit_code(properties, record.stored_ms, code, self._delays_ms)
        return code


class RecordKeys:
    """Computes the index keys of records."""

    def __init__(self) -> None:
        self._prefixes: dict[bytes, int] = {}

    def add(self, keys: bytearray, record: ScannedRecord) -> None:
        """Append the index keys of a record to `keys`."""
        if record.sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.ROLLBACK:
            return  # as in RocketMQ: dropped records must not be found
        properties, topic = record.properties, record.topic
        unique, several = (
            property_value(properties, b"UNIQ_KEY\x01"),
            property_value(properties, b"KEYS\x01"),
        )
        if not unique and not several:
            return
        prefix = self._prefixes.get(topic)
        if prefix is None:
            if len(self._prefixes) > _KNOWN_MAX:
                self._prefixes.clear()
            prefix = self._prefixes[topic] = java_hash(topic.decode("utf-8", "replace") + "#")
        if unique:
            self._add_key(keys, prefix, unique, record)
        for key in several.split(b" "):
            if key:
                self._add_key(keys, prefix, key, record)

    def _add_key(self, keys: bytearray, prefix: int, key: bytes, record: ScannedRecord) -> None:
        text = key.decode("utf-8", "replace")
        keys += index_key(prefix, text, record.log_offset, record.stored_ms)
