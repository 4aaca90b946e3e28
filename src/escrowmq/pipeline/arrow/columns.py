"""Decodes log records into Arrow arrays, column by column.

`codec/record_layout` describes a record. Everything is numpy and Arrow over all records at once,
except what the native lane does where there is one: walk from record to record, parse properties,
copy cells."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from escrowmq.base.message import Property, SysFlag
from escrowmq.base.own_properties import TRANSACTION
from escrowmq.codec.compression import decompress
from escrowmq.codec.hashes import body_crc
from escrowmq.codec.ids import format_host
from escrowmq.codec.record_layout import (
    BORN_HOST_AT,
    BORN_MS_AT,
    CRC_AT,
    FLAG_AT,
    FRONT,
    HEAD_V4,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    LOG_OFFSET_AT,
    MAGIC_AT,
    MAGIC_V2,
    MAGICS,
    PROPERTIES_SIZE,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    RECORD_SIZE_MIN,
    SYS_FLAG_AT,
    V6_MORE,
)
from escrowmq.errors import CorruptRecord, RemoteProtocolError
from escrowmq.lane import native
from escrowmq.pipeline.arrow.cells import (
    Array,
    ByteBuffer,
    Numbers,
    repeated_text,
    split_words,
    to_hex,
    to_timestamps,
)
from escrowmq.pipeline.arrow.compiled import PropertyColumns, parse_properties

_log = logging.getLogger(__name__)

_TAIL_SIZE_MIN: Final = 1 + PROPERTIES_SIZE.size
"""Bytes for the lengths of topic and properties, which follow the body."""

BATCH_SIZE_MAX: Final = 64 << 20
"""Limit of the bytes of bodies in one batch of rows. Small compressed bodies may be large, and are
then split over several batches."""


class RecordBlock:
    """Consecutive records, and the positions of their parts."""

    def __init__(self, data: bytes, starts: Numbers | None = None) -> None:
        self.bytes = ByteBuffer(data)
        self.starts = record_starts(data) if starts is None else starts
        self._find_parts()

    def _find_parts(self) -> None:
        self.sys_flag = self.int4_field(SYS_FLAG_AT)
        self._is_born_v6 = (self.sys_flag & SysFlag.BORN_HOST_V6) != 0
        self._is_store_v6 = (self.sys_flag & SysFlag.STORE_HOST_V6) != 0
        self.has_v6 = bool(self._is_born_v6.any() or self._is_store_v6.any())
        at = self.starts
        # Positions are computed as for IPv4 hosts; these offsets add what IPv6 hosts take more.
        self._behind_born = at + self._is_born_v6 * V6_MORE
        self._behind_hosts = self._behind_born + self._is_store_v6 * V6_MORE
        self.body_start = self._behind_hosts + HEAD_V4.size
        size = self.bytes.read_numbers(at, ">u4").astype(np.int64)
        self._record_end = at + size
        if self.has_v6:
            self._require_all(self.body_start <= self._record_end, "its hosts")
        body_size = self.bytes.read_numbers(self._behind_hosts + HEAD_V4.body_size_at, ">i4")
        body_size = body_size.astype(np.int64)
        self.body_end = self.body_start + body_size
        fits = (body_size >= 0) & (self.body_end + _TAIL_SIZE_MIN <= self._record_end)
        self._require_all(fits, "its body")
        is_long = self.bytes.read_numbers(at + MAGIC_AT, ">u4") == MAGIC_V2
        topic_size = self.bytes.read_numbers(self.body_end, ">u2").astype(np.int64)
        topic_size = np.where(is_long, topic_size, topic_size >> 8)
        self.topic_start = self.body_end + 1 + is_long
        self.topic_end = self.topic_start + topic_size
        self.properties_start = self.topic_end + PROPERTIES_SIZE.size
        self._require_all(self.properties_start <= self._record_end, "its topic")
        properties_size = self.bytes.read_numbers(self.topic_end, ">u2").astype(np.int64)
        self.properties_end = self.properties_start + properties_size
        self._require_all(self.properties_end == self._record_end, "its properties")

    def _require_all(self, fits: Numbers, what: str) -> None:
        if not fits.all():
            index = int(np.argmin(fits))
            log_offset = int(self.int8_field(LOG_OFFSET_AT)[index])
            raise CorruptRecord(
                f"record {index} of a block, at log offset {log_offset}, cannot be parsed: "
                f"{what} does not fit into its "
                f"{int(self._record_end[index] - self.starts[index])} bytes"
            )

    def __len__(self) -> int:
        return len(self.starts)

    def int4_field(self, at: int) -> Numbers:
        """Return a 4-byte field of each record, given its offset in the record. It must be one of
        the fields before the hosts."""
        return self.bytes.read_numbers(self.starts + at, ">i4")

    def int8_field(self, at: int) -> Numbers:
        """Return an 8-byte field of each record, given its offset in the record. It must be one of
        the fields before the hosts."""
        return self.bytes.read_numbers(self.starts + at, ">i8")

    @property
    def queue_offset(self) -> Numbers:
        """Each record's offset in its queue."""
        return self.int8_field(QUEUE_OFFSET_AT)

    @property
    def stored_ms(self) -> Numbers:
        """Each record's store time."""
        return self.bytes.read_numbers(self._behind_born + HEAD_V4.stored_at, ">i8")

    @property
    def reconsume_times(self) -> Numbers:
        """How often each record was returned for a retry (RocketMQ's reconsumeTimes)."""
        return self.bytes.read_numbers(self._behind_hosts + HEAD_V4.reconsume_times_at, ">i4")

    @property
    def prepared_log_offset(self) -> Numbers:
        """The log offset of the half that each record commits."""
        return self.bytes.read_numbers(self._behind_hosts + HEAD_V4.prepared_at, ">i8")

    def select(self, keep: Numbers) -> RecordBlock:
        """Select some of the records."""
        return self if keep.all() else RecordBlock(self.bytes.data, self.starts[keep])

    def topics(self) -> Array:
        """The topic of each record."""
        return self.bytes.read_cells(self.topic_start, self.topic_end, pa.string())

    def properties(self) -> PropertyColumns:
        """The properties of each record."""
        return parse_properties(self.bytes, self.properties_start, self.properties_end)

    def bodies(self) -> Array:
        """The body of each record, as stored."""
        return self.bytes.read_cells(self.body_start, self.body_end, pa.binary())

    def born_hosts(self) -> list[bytes] | Numbers:
        """Packed hosts: rows of 8 bytes, or a list if some are longer."""
        return self._hosts(self.starts + BORN_HOST_AT, self._is_born_v6)

    def store_hosts(self) -> list[bytes] | Numbers:
        """The brokers' packed hosts."""
        return self._hosts(self._behind_born + HEAD_V4.store_host_at, self._is_store_v6)

    def _hosts(self, at: Numbers, is_v6: Numbers) -> list[bytes] | Numbers:
        if not is_v6.any():
            return self.bytes.read_numbers(at, "<u8").view(np.uint8).reshape(-1, HOST_V4_SIZE)
        data = self.bytes.data
        return [
            data[start : start + (HOST_V6_SIZE if long else HOST_V4_SIZE)]
            for start, long in zip(at.tolist(), is_v6.tolist(), strict=True)
        ]


def record_starts(data: bytes) -> Numbers:
    """Return the start of each record. Raises CorruptRecord at bytes that are not a record."""
    places = native.find_records(data) if native.find_records is not None else None
    if places is not None:
        return np.frombuffer(places, dtype=np.int64)
    at, end = 0, len(data)
    found, front = [], FRONT.unpack_from
    while at < end:
        if end - at < RECORD_SIZE_MIN:
            raise CorruptRecord(f"{end - at} bytes at {at} where a record was expected")
        size, magic = front(data, at)
        if magic not in MAGICS:
            raise CorruptRecord(f"magic {magic:#010x} at byte {at} is not that of a record")
        found.append(at)
        at += size
        if size < RECORD_SIZE_MIN or at > end:
            raise CorruptRecord(f"record size {size} at byte {at - size} of {end}")
    return np.array(found, dtype=np.int64)


class BlockValues(msgspec.Struct):
    """Values of one block that several columns need; each is computed once."""

    block: RecordBlock
    broker_name: str
    bodies: Array
    kept: list[int] = []
    """Indexes of the bodies that are flagged as compressed and could not be decompressed."""
    parsed: PropertyColumns | None = None
    offset_ids: Array = None
    unique_keys: Array = None

    @property
    def properties(self) -> PropertyColumns:
        """The properties, parsed when a column first needs them."""
        if self.parsed is None:
            self.parsed = self.block.properties()
        return self.parsed

    def broker_ids(self) -> Array:
        """The ids that the brokers gave to the messages."""
        if self.offset_ids is None:
            self.offset_ids = _offset_ids(self.block)
        return self.offset_ids

    def producer_ids(self) -> Array:
        """The ids that the producers gave to the messages."""
        if self.unique_keys is None:
            self.unique_keys = self.properties.values(Property.UNIQ_KEY)
        return self.unique_keys


def _offset_ids(block: RecordBlock) -> Array:
    hosts = block.store_hosts()
    log_offsets = block.int8_field(LOG_OFFSET_AT)
    if isinstance(hosts, list):
        texts = [
            f"{host.hex().upper()}{log_offset:016X}"
            for host, log_offset in zip(hosts, log_offsets.tolist(), strict=True)
        ]
        return pa.array(texts, type=pa.string())
    tail = log_offsets.astype(">i8").view(np.uint8).reshape(-1, 8)
    return to_hex(np.hstack([hosts, tail]))


def _host_texts(hosts: list[bytes] | Numbers) -> Array:
    """Format hosts as text. Each distinct host is formatted once, because few hosts send most
    messages."""
    if isinstance(hosts, list):
        return pa.array([format_host(host) for host in hosts], type=pa.string())
    numbers = np.ascontiguousarray(hosts).view("<u8").ravel()
    if len(numbers) and (numbers == numbers[0]).all():
        return repeated_text(format_host(bytes(hosts[0])), len(numbers))
    seen, index = np.unique(numbers, return_inverse=True)
    texts = [format_host(int(number).to_bytes(8, "little")) for number in seen]
    return pa.array(texts, type=pa.string()).take(pa.array(index.ravel()))


def _message_ids(row: BlockValues) -> Array:
    keys = row.producer_ids()
    return pc.coalesce(keys, row.broker_ids()) if keys.null_count else keys


def _transaction_ids(row: BlockValues) -> Array:
    is_transaction = (row.block.sys_flag & SysFlag.TRANSACTION_MASK) != 0
    named = [row.properties.values(name) for name in (TRANSACTION, Property.TRANSACTION_ID)]
    if not is_transaction.any() and all(each.null_count == len(each) for each in named):
        return named[0]
    own = pc.if_else(
        pa.array(is_transaction), row.producer_ids(), pa.scalar(None, type=pa.string())
    )
    return pc.coalesce(*named, own)


def _shown_flags(row: BlockValues) -> Numbers:
    found = row.block.sys_flag & ~SysFlag.COMPRESSED
    found[row.kept] |= SysFlag.COMPRESSED
    return found


def _int_array(numbers: Numbers) -> Array:
    return pa.array(numbers)


COLUMNS: Final[dict[str, Callable[[BlockValues, Any], Array]]] = {
    "topic": lambda row, _: row.block.topics(),
    "brokerName": lambda row, _: repeated_text(row.broker_name, len(row.block)),
    "queueId": lambda row, _: _int_array(row.block.int4_field(QUEUE_ID_AT)),
    "queueOffset": lambda row, _: _int_array(row.block.queue_offset),
    "msgId": lambda row, _: _message_ids(row),
    "offsetMsgId": lambda row, _: row.broker_ids(),
    "tags": lambda row, _: row.properties.values(Property.TAGS),
    "keys": lambda row, kind: split_words(row.properties.values(Property.KEYS), kind),
    "body": lambda row, _: row.bodies,
    "properties": lambda row, kind: (
        row.properties.maps(kind)
        if pa.types.is_map(kind)
        else row.block.bytes.read_cells(row.block.properties_start, row.block.properties_end, kind)
    ),
    "bornTimestamp": lambda row, _: to_timestamps(row.block.int8_field(BORN_MS_AT)),
    "storeTimestamp": lambda row, _: to_timestamps(row.block.stored_ms),
    "bornHost": lambda row, _: _host_texts(row.block.born_hosts()),
    "storeHost": lambda row, _: _host_texts(row.block.store_hosts()),
    "sysFlag": lambda row, _: _int_array(_shown_flags(row)),
    "flag": lambda row, _: _int_array(row.block.int4_field(FLAG_AT)),
    "reconsumeTimes": lambda row, _: _int_array(row.block.reconsume_times),
    "physicalOffset": lambda row, _: _int_array(row.block.int8_field(LOG_OFFSET_AT)),
    "preparedTransactionOffset": lambda row, _: _int_array(row.block.prepared_log_offset),
    "transactionId": lambda row, _: _transaction_ids(row),
}
"""The function for each column, under the user's name for it."""


def decode_columns(block: RecordBlock, schema: Any, *, broker_name: str) -> Iterator[Any]:  # noqa: ANN401
    """Yield batches of rows with the columns of an Arrow schema. Bodies are decompressed. A body
    that its sender did not compress as its sysFlag says stays as it is, and so does the flag."""
    for piece in _blocks_with_bodies(block, broker_name, is_wanted="body" in schema.names):
        columns = [COLUMNS[field.name](piece, field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _blocks_with_bodies(
    block: RecordBlock, broker_name: str, *, is_wanted: bool
) -> Iterator[BlockValues]:
    is_packed = (block.sys_flag & SysFlag.COMPRESSED) != 0
    if not (is_wanted and is_packed.any()):
        yield BlockValues(block, broker_name, block.bodies() if is_wanted else None)
        return
    data, flags = block.bytes.data, block.sys_flag.tolist()
    places = zip(block.body_start.tolist(), block.body_end.tolist(), flags, strict=True)
    first, size = 0, 0
    bodies: list[bytes] = []
    kept: list[int] = []
    """The records of this batch whose bodies stay as they are."""

    def piece(until: int | None) -> BlockValues:
        rows = RecordBlock(data, block.starts[first:until])
        if kept:
            _log.warning(
                "%d bodies cannot be decompressed and are read as they are stored, with bit 0 of "
                "sysFlag; the first is that of the message at log offset %d",
                len(kept), rows.int8_field(LOG_OFFSET_AT)[kept[0]],
            )  # fmt: skip
        return BlockValues(rows, broker_name, pa.array(bodies, type=pa.binary()), kept)

    for index, (start, end, flag) in enumerate(places):
        stored = data[start:end]
        body = _unpacked_body(block, index, stored, flag)
        if bodies and size + len(stored if body is None else body) > BATCH_SIZE_MAX:
            yield piece(index)
            first, size, bodies, kept = index, 0, [], []
        if body is None:
            kept.append(len(bodies))
            body = stored
        bodies.append(body)
        size += len(body)
    yield piece(None)


def _unpacked_body(block: RecordBlock, index: int, stored: bytes, flag: int) -> bytes | None:
    """Decompress a body; None if its sender stored it like this. Raises CorruptRecord if it is not
    what was stored."""
    try:
        return decompress(stored, flag)
    except RemoteProtocolError as error:
        if stored and body_crc(stored) != int(block.int4_field(CRC_AT)[index]):
            log_offset = int(block.int8_field(LOG_OFFSET_AT)[index])
            raise CorruptRecord(
                f"the message at log offset {log_offset} has a compressed body that is not what "
                f"was stored (CRC): {error}. Read without bodies (includeBody=false), or skip "
                "this offset"
            ) from error
        return None
