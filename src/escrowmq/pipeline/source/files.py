"""Reads a store's log files as a batch, without a broker."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from escrowmq.codec.record_layout import CRC_AT
from escrowmq.errors import CorruptRecord
from escrowmq.pipeline.arrow.columns import RecordBlock, decode_columns
from escrowmq.pipeline.arrow.unwrapping import BATCH, split_inner_batches
from escrowmq.pipeline.source.offset_options import QueuePositions
from escrowmq.pipeline.source.options import SourceOptions, is_system_topic
from escrowmq.pipeline.source.reading import only_tagged
from escrowmq.pipeline.source.schema import arrow_schema
from escrowmq.pipeline.source.segments import FilePart, RecordWalk, plan_parts
from escrowmq.pipeline.workers import speed_up_process


class SegmentPart(InputPartition):
    """The range of the log that one task reads."""

    def __init__(self, part: FilePart) -> None:
        super().__init__(None)
        self.part = part


class FilesReader(DataSourceReader):
    """Reads log files: plans on the driver; the executors must see the files too."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema)

    def partitions(self) -> list[SegmentPart]:
        """Return the log, divided among tasks."""
        speed_up_process()
        options = self._options
        return [SegmentPart(each) for each in plan_parts(options.store_path, options.split_size)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read the rows of a part."""
        assert isinstance(partition, SegmentPart), partition
        speed_up_process()
        schema = pa.ipc.read_schema(pa.py_buffer(self._schema))
        options = self._options
        walk = RecordWalk(partition.part, fails_on_loss=options.pulling.fails_on_loss)
        for data, starts, place in walk.chunks():
            block = self._select_wanted(RecordBlock(data, np.array(starts, dtype=np.int64)))
            if options.checks_crc:
                check_bodies(block, f"{partition.part.path} from byte {place} on")
            if ((block.sys_flag & BATCH) == BATCH).any():
                block = RecordBlock(split_selected(block))
            yield from decode_columns(block, schema, broker_name="")

    def _select_wanted(self, block: RecordBlock) -> RecordBlock:
        options = self._options
        topics = block.topics()
        if options.topics or options.pattern:
            keep = _is_of_wanted_topics(topics, options)
        else:
            keep = np.ones(len(block), dtype=bool)
        if not options.includes_system:
            seen = topics.unique()
            system = [each for each in seen.to_pylist() if is_system_topic(each)]
            keep &= ~np.asarray(pc.is_in(topics, value_set=pa.array(system, type=pa.string())))
        keep &= _is_within_span(block, options.start, options.end)
        block = block.select(keep)
        return only_tagged(block, options.subscription("any"))


def _is_of_wanted_topics(topics: Any, options: SourceOptions) -> Any:  # noqa: ANN401 - numpy's and Arrow's
    if options.topics:
        wanted = pa.array(options.topics, type=pa.string())
        return np.asarray(pc.is_in(topics, value_set=wanted))
    # Use Python's patterns, as for topics of a broker: Arrow has others.
    fits = [name for name in topics.unique().to_pylist() if re.fullmatch(options.pattern, name)]
    return np.asarray(pc.is_in(topics, value_set=pa.array(fits, type=pa.string())))


def _is_within_span(block: RecordBlock, start: QueuePositions, end: QueuePositions) -> Any:  # noqa: ANN401 - numpy's
    stored_ms = block.stored_ms
    keep = np.ones(len(block), dtype=bool)
    if start.time_ms is not None:
        keep &= stored_ms >= start.time_ms
    if end.time_ms is not None:
        keep &= stored_ms < end.time_ms
    return keep


def split_selected(block: RecordBlock) -> bytes:
    """Return the selected records of a block, with batches split."""
    ends = (block.starts + block.bytes.read_numbers(block.starts, ">u4")).tolist()
    places = zip(block.starts.tolist(), ends, strict=True)
    data = b"".join([block.bytes.data[start:end] for start, end in places])
    whole = RecordBlock(data)
    return split_inner_batches(data, whole.starts, whole.sys_flag)


def check_bodies(block: RecordBlock, where: str) -> None:
    """Raise CorruptRecord for the first record whose body does not match its checksum."""
    data = memoryview(block.bytes.data)
    expected = block.int4_field(CRC_AT).tolist()
    places = zip(block.body_start.tolist(), block.body_end.tolist(), expected, strict=True)
    for index, (start, end, crc) in enumerate(places):
        if end > start and zlib.crc32(data[start:end]) & 0x7FFFFFFF != crc:
            raise CorruptRecord(
                f"the body of the record at byte {int(block.starts[index])} of {where} is not what "
                "was stored (CRC). Repair the store, or set checkCrc=false to read it as it is"
            )
