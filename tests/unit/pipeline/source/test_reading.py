"""What an executor reads: rows, and nothing missing between them."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyarrow")

from escrowmq.base.message import Message
from escrowmq.codec.batch_body import encode_batch
from escrowmq.errors import CorruptRecord, DataLost
from escrowmq.pipeline.arrow.unwrapping import BATCH
from escrowmq.pipeline.brokers.ranges import QueueRange
from escrowmq.pipeline.source.options import parse_source_options
from escrowmq.pipeline.source.reading import ReadSettings, read_ranges, records_in_range
from tests.unit.pipeline.records import log_of
from tests.unit.pipeline.schemas import schema_of
from tests.unit.pipeline.scripted import QUEUE, Broker


def rows_of(broker: Broker, low: int = 0, high: int = 100, **more: str) -> list[dict[str, Any]]:
    options = {"nameServer": broker.server.address, "subscribe": "t", "pullTimeoutMs": "60000"}
    parsed = parse_source_options(options | more, is_stream=False)
    reading = ReadSettings(
        access=parsed.access,
        pulling=parsed.pulling,
        subscriptions={"t": parsed.subscription("t")},
        is_filtered=parsed.is_filtered,
        schema=schema_of(["queueOffset", "body"]).serialize().to_pybytes(),
    )
    batches = read_ranges([QueueRange(QUEUE, low, high)], reading)
    return [row for batch in batches for row in batch.to_pylist()]


def test_a_range_as_rows() -> None:
    broker = Broker()
    rows = rows_of(broker, 5, 60)
    assert rows == [{"queueOffset": n, "body": str(n).encode()} for n in range(5, 60)]
    broker.server.close()


def test_messages_that_a_broker_passes_over_are_missed() -> None:
    broker = Broker()
    broker.holes = {40, 41}
    with pytest.raises(DataLost, match="only 98 of the 100 messages from 0 on came"):
        rows_of(broker)
    assert len(rows_of(broker, failOnDataLoss="false")) == 98
    broker.server.close()


def test_filters_may_leave_out_what_they_want() -> None:
    broker = Broker()
    broker.holes = {*range(10, 90)}
    assert len(rows_of(broker, sqlFilter="n > 3")) == 20
    broker.server.close()


def test_batches_in_a_record_are_taken_apart() -> None:
    entries = [(index, f"b{index}".encode(), b"TAGS\x01a\x02") for index in range(3)]
    batch = Message(
        topic="t",
        body=encode_batch(entries),
        sys_flag=BATCH,
        properties={"INNER_BASE": "7", "INNER_NUM": "3", "TAGS": "whole"},
    )
    data = log_of(
        [Message(topic="t", body=b"first"), batch, Message(topic="t", body=b"last")], first=6
    )
    block = records_in_range(data, QueueRange(QUEUE, 0, 100))
    assert block.queue_offset.tolist() == [6, 7, 8, 9, 8]
    assert block.bodies().to_pylist() == [b"first", b"b0", b"b1", b"b2", b"last"]
    assert not (block.sys_flag & BATCH).any()
    inside = records_in_range(data, QueueRange(QUEUE, 8, 9))
    assert inside.bodies().to_pylist() == [b"b1", b"last"]


@pytest.mark.parametrize("base", ["x", "-1", "7.0"])
def test_a_batch_whose_place_is_no_number_is_a_corrupt_record(base: str) -> None:
    batch = Message(
        topic="t", body=encode_batch([(0, b"b", b"")]), sys_flag=BATCH,
        properties={"INNER_BASE": base},
    )  # fmt: skip
    with pytest.raises(CorruptRecord, match="the batch at log offset 0 says"):
        records_in_range(log_of([batch]), QueueRange(QUEUE, 0, 100))
