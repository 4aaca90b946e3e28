"""Records as Arrow columns: the same as record by record."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from escrowmq.base.message import Message
from escrowmq.codec.compression import compress
from escrowmq.codec.record_layout import HEAD_V4, MAGIC_AT
from escrowmq.errors import CorruptRecord
from escrowmq.lane import native
from escrowmq.pipeline.arrow import columns
from escrowmq.pipeline.arrow.columns import COLUMNS, RecordBlock, decode_columns
from tests.unit.pipeline.records import HOST, expected_row, log_of, messages
from tests.unit.pipeline.schemas import schema_of

ALL = list(COLUMNS)

LANE = ("find_records", "copy_cells", "copy_numbers", "find_entries", "copy_named")


@pytest.fixture(params=["lane", "plain"], scope="module", autouse=True)
def with_and_without_lane(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test once with the native lane, where there is one, and once without."""
    with pytest.MonkeyPatch.context() as patch:
        for name in LANE if request.param == "plain" else ():
            patch.setattr(native, name, None)
        yield


def rows_of(data: bytes, names: list[str] = ALL, broker_name: str = "b") -> list[dict[str, Any]]:
    found = []
    for batch in decode_columns(RecordBlock(data), schema_of(names), broker_name=broker_name):
        for row in batch.to_pylist():
            if "properties" in row and row["properties"] is not None:
                row["properties"] = dict(row["properties"])
            found.append(row)
    return found


@settings(max_examples=200, deadline=None)
@given(st.lists(messages, min_size=1, max_size=12))
@example([Message(topic="t", body=b"", properties={})])
def test_columns_are_what_the_plain_decoder_says(found: list[Message]) -> None:
    data = log_of(found)
    expected, at = [], 0
    while at < len(data):
        row, at = expected_row(data, at)
        expected.append(row)
    assert rows_of(data) == expected


def test_nothing_is_no_row() -> None:
    assert rows_of(b"") == []


def test_only_the_columns_that_are_wanted_are_made() -> None:
    data = log_of([Message(topic="t", body=b"x", properties={"TAGS": "a"})])
    assert rows_of(data, ["tags", "queueOffset"]) == [{"tags": "a", "queueOffset": 0}]


@pytest.mark.parametrize("form", ["zlib", "lz4", "zstd"])
def test_packed_bodies_are_unpacked(form: str) -> None:
    packed, bits = compress(b"abc" * 1_000, form=form, level=3)
    found = [
        Message(topic="t", body=b"plain", born_host=HOST, store_host=HOST),
        Message(topic="t", body=packed, sys_flag=bits, born_host=HOST, store_host=HOST),
    ]
    rows = rows_of(log_of(found), ["body", "sysFlag"])
    assert [row["body"] for row in rows] == [b"plain", b"abc" * 1_000]
    assert not any(row["sysFlag"] & 1 for row in rows)


def test_a_body_that_was_never_compressed_is_given_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Any sender may say that its body is compressed. One such message ended every job that read
    its topic."""
    packed, bits = compress(bytes(1_000), form="zlib", level=5)
    found = [
        Message(topic="t", body=packed, sys_flag=bits),
        Message(topic="t", body=b"no zlib", sys_flag=1),
        Message(topic="t", body=b"plain"),
        Message(topic="t", body=b"", sys_flag=1),
    ]
    rows = rows_of(log_of(found), ["body", "sysFlag"])
    assert [row["body"] for row in rows] == [bytes(1_000), b"no zlib", b"plain", b""]
    assert [row["sysFlag"] & 1 for row in rows] == [0, 1, 0, 1]
    assert "at log offset" in caplog.text
    monkeypatch.setattr(columns, "BATCH_SIZE_MAX", 2)
    assert rows_of(log_of(found), ["body", "sysFlag"]) == rows
    flags = rows_of(log_of(found), ["sysFlag"])
    assert [row["sysFlag"] & 1 for row in flags] == [0, 0, 0, 0], "of bodies that are not read"


def test_a_compressed_body_that_was_damaged_is_an_error() -> None:
    packed, bits = compress(b"abc" * 1_000, form="zlib", level=3)
    data = log_of([Message(topic="t", body=packed, sys_flag=bits)]).replace(packed[2:6], b"####")
    with pytest.raises(
        CorruptRecord, match=r"at log offset 0 .* is not what was stored .*includeBody=false"
    ):
        rows_of(data, ["body"])


def test_what_unpacks_to_much_comes_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "BATCH_SIZE_MAX", 2_500)
    packed, bits = compress(bytes(1_000), form="zlib", level=5)
    data = log_of([Message(topic="t", body=packed, sys_flag=bits) for _ in range(5)])
    schema = schema_of(["queueOffset", "body"])
    batches = list(decode_columns(RecordBlock(data), schema, broker_name="b"))
    assert [batch.num_rows for batch in batches] == [2, 2, 1]
    assert [row["queueOffset"] for batch in batches for row in batch.to_pylist()] == [*range(5)]


def test_texts_that_are_no_utf8_have_the_replacement_character() -> None:
    data = log_of([Message(topic="t", body=b"x", properties={"TAGS": "TAGS-here"})])
    data = data.replace(b"TAGS-here", b"TAGS-\xff\xfere")
    assert rows_of(data, ["tags"]) == [{"tags": "TAGS-��re"}]


def test_files_have_no_broker_name() -> None:
    data = log_of([Message(topic="t", body=b"x")])
    assert rows_of(data, ["brokerName"], broker_name="") == [{"brokerName": None}]


def test_properties_as_stored() -> None:
    import pyarrow as pa

    data = log_of([Message(topic="t", body=b"x", properties={"a": "1", "b": "2"})])
    schema = pa.schema([("properties", pa.string())])
    (batch,) = decode_columns(RecordBlock(data), schema, broker_name="b")
    assert batch.to_pylist() == [{"properties": "a\x011\x02b\x012\x02"}]


@pytest.mark.parametrize(
    ("position", "value", "text"),
    [
        (0, b"\x00\x00\x00\x10", "record size 16"),
        (0, b"\x7f\x00\x00\x10", "record size"),
        (MAGIC_AT, b"\xde\xad\xbe\xef", "magic 0xdeadbeef"),
        (HEAD_V4.body_size_at, b"\x7f\x00\x00\x00", "its body does not fit"),
        (HEAD_V4.body_size_at, b"\xff\xff\xff\xff", "its body does not fit"),
        (HEAD_V4.size + 1, b"\xff", "its topic does not fit"),
    ],
)
def test_what_does_not_parse_is_an_error(position: int, value: bytes, text: str) -> None:
    data = bytearray(log_of([Message(topic="t", body=b"x", born_host=HOST, store_host=HOST)]))
    data[position : position + len(value)] = value
    with pytest.raises(CorruptRecord, match=text):
        rows_of(bytes(data))


def test_a_record_that_is_cut_off_is_an_error() -> None:
    data = log_of([Message(topic="t", body=b"x" * 100)])
    for size in (50, len(data) - 1):
        with pytest.raises(CorruptRecord):
            rows_of(data[:size])


@pytest.mark.parametrize("born_ms", [(1 << 63) - 1, 253_402_300_800_000, -(1 << 63)])
def test_a_time_that_python_cannot_hold_is_the_nearest_that_it_can(born_ms: int) -> None:
    """Any sender chooses the time when its message was born, and a job that collected it failed."""
    found = Message(topic="t", body=b"", properties={}, born_ms=born_ms)
    (row,) = rows_of(log_of([found]), ["bornTimestamp"])
    assert row["bornTimestamp"].year in (1, 9999)
    assert row["bornTimestamp"].astimezone(dt.timezone(dt.timedelta(hours=14))).year in (1, 9999)
