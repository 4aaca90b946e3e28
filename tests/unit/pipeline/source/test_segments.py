"""Parts of a log on a disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escrowmq.base.message import Message
from escrowmq.codec.log_records import outline_records
from escrowmq.codec.record import decode_record, encode_filler
from escrowmq.codec.record_layout import HEAD_V4
from escrowmq.codec.store_entries import ENTRY
from escrowmq.errors import CorruptRecord, SegmentMissing, UsageError
from escrowmq.pipeline.source.segments import FilePart, RecordWalk, plan_parts
from tests.unit.pipeline.records import log_of, messages

SEGMENT_SIZE = 8_192


def store(folder: Path, found: list[Message]) -> int:
    """A log of segments with these messages; how many there are."""
    at, segment = 0, b""
    folder.mkdir(parents=True, exist_ok=True)
    for index, message in enumerate(found):
        record = log_of([message], first=index, log_offset=at + len(segment))
        if len(segment) + len(record) + 8 > SEGMENT_SIZE:
            write(folder, at, segment + encode_filler(SEGMENT_SIZE - len(segment)))
            at, segment = at + SEGMENT_SIZE, b""
            record = log_of([message], first=index, log_offset=at)
        segment += record
    write(folder, at, segment)
    return len(found)


def write(folder: Path, at: int, data: bytes) -> None:
    (folder / f"{at:020}").write_bytes(data.ljust(SEGMENT_SIZE, b"\0"))


def offsets_of(parts: list[FilePart], *, fails_on_loss: bool = True) -> list[int]:
    return [
        decode_record(data, start).queue_offset
        for part in parts
        for data, starts, _ in RecordWalk(part, fails_on_loss=fails_on_loss).chunks()
        for start in starts
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(messages, max_size=60), st.integers(60, 9_000))
def test_every_record_is_in_one_part(
    tmp_path_factory: pytest.TempPathFactory, found: list[Message], split_size: int
) -> None:
    folder = tmp_path_factory.mktemp("store")
    count = store(folder / "commitlog", found)
    assert offsets_of(plan_parts(str(folder), split_size)) == [*range(count)]


def test_bytes_that_look_like_a_record_are_none(tmp_path: Path) -> None:
    inner = log_of([Message(topic="t", body=b"inner")], log_offset=77)
    store(tmp_path, [Message(topic="t", body=inner) for _ in range(30)])
    assert offsets_of(plan_parts(str(tmp_path), 100)) == [*range(30)]


def test_a_record_that_somebody_put_into_a_body_begins_no_part(tmp_path: Path) -> None:
    """He foresees where his message will stand; the queues of the store know better."""
    first = log_of([Message(topic="t", body=b"first")])
    place = len(first) + HEAD_V4.size + 100
    forged = log_of([Message(topic="t", body=b"forged")], first=7, log_offset=place)
    found = [Message(topic="t", body=body) for body in (b"first", bytes(100) + forged, b"last")]
    store(tmp_path / "commitlog", found)
    write_units(tmp_path / "consumequeue" / "t" / "0", log_of(found))
    for split_size in range(40, 600, 7):
        assert offsets_of(plan_parts(str(tmp_path), split_size)) == [0, 1, 2]


def write_units(folder: Path, log: bytes) -> None:
    folder.mkdir(parents=True)
    starts = outline_records(log, 0).records
    ends = [*starts[1:], len(log)]
    units = [ENTRY.pack(start, end - start, 0) for start, end in zip(starts, ends, strict=True)]
    (folder / f"{0:020}").write_bytes(b"".join(units).ljust(20 * 100, b"\0"))


def test_a_torn_end_is_an_end(tmp_path: Path) -> None:
    data = log_of([Message(topic="t", body=b"x" * 50) for _ in range(3)])
    write(tmp_path, 0, data[:-20])
    assert offsets_of(plan_parts(str(tmp_path), 1 << 20)) == [0, 1]


@pytest.mark.parametrize("split_size", [1 << 20, 300, 97])
def test_damage_inside_is_told_wherever_parts_are_cut(tmp_path: Path, split_size: int) -> None:
    found = [Message(topic="t", body=b"x" * 50) for _ in range(20)]
    data = bytearray(log_of(found))
    size = len(data) // 20
    for record in range(1, 20):
        broken = bytearray(data)
        broken[size * record + 4] ^= 0xFF
        write(tmp_path, 0, bytes(broken))
        parts = plan_parts(str(tmp_path), split_size)
        if record == 19:  # as if its writing had not been finished
            assert offsets_of(parts) == [*range(19)]
            continue
        with pytest.raises(CorruptRecord, match=f"no record at byte {size * record} "):
            offsets_of(parts)
        left = [number for number in range(20) if number != record]
        assert offsets_of(parts, fails_on_loss=False) == left


def test_a_log_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no log"):
        plan_parts(str(tmp_path), 100)
    with pytest.raises(UsageError, match="cannot be read"):
        plan_parts(str(tmp_path / "none"), 100)
    write(tmp_path, 0, b"")
    write(tmp_path, 2 * SEGMENT_SIZE, b"")
    with pytest.raises(SegmentMissing, match=f"a segment that begins at {SEGMENT_SIZE} was"):
        plan_parts(str(tmp_path), 100)


def test_a_segment_that_ends_before_its_filler_is_told(tmp_path: Path) -> None:
    record = log_of([Message(topic="t", body=b"x")])
    write(tmp_path, 0, record)
    write(tmp_path, SEGMENT_SIZE, log_of([Message(topic="t", body=b"x")], log_offset=SEGMENT_SIZE))
    with pytest.raises(CorruptRecord, match="and none follows"):
        offsets_of(plan_parts(str(tmp_path), 1 << 20))


def test_a_file_that_is_gone_is_told(tmp_path: Path) -> None:
    store(tmp_path, [Message(topic="t", body=b"x")])
    parts = plan_parts(str(tmp_path), 1 << 20)
    Path(parts[0].path).unlink()
    with pytest.raises(SegmentMissing, match="every executor must see"):
        offsets_of(parts)


def test_a_segment_that_was_made_ahead_of_need_holds_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "commitlog"
    count = store(folder, [Message(topic="t", body=b"x")] * 3)
    write(folder, SEGMENT_SIZE, b"")
    assert offsets_of(plan_parts(str(tmp_path), SEGMENT_SIZE)) == [*range(count)]
