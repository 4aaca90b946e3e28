"""Halves read in one go are what each of them is by itself."""

from __future__ import annotations

import itertools
import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.message import Message, Topic
from escrowmq.codec.record import decode_record, encode_topic
from escrowmq.codec.record_layout import HEAD_V4, PROPERTIES_SIZE
from escrowmq.lane.native import alike_halves
from escrowmq.txn.half_shape import ShapeCache
from escrowmq.txn.stored_halves import Entry, StoredHalf, decode_halves, match_known_shapes
from tests.harness.logs import record_at

V6 = bytes(range(16)) + bytes([0, 0, 1, 2])
FIRST = 40
"""The queue offset of the first of them."""

BASE = 1 << 20
HALVES = st.lists(
    st.builds(
        Message,
        topic=st.sampled_from([Topic.HALF, Topic.HALF, Topic.HALF, "other"]),
        body=st.sampled_from([b"", b"x" * 20, b"y" * 20]),
        properties=st.fixed_dictionaries(
            {"UNIQ_KEY": st.sampled_from(["U1", "U2"]), "PGROUP": st.sampled_from(["a", "b"])},
            optional={"CHECK_IMMUNITY_TIME_IN_SECONDS": st.sampled_from(["1", "2"])},
        ),
        born_host=st.sampled_from([bytes(8), bytes(8), V6]),
    ),
    max_size=12,
)


def stored(messages: list[Message]) -> tuple[bytearray, list[Entry]]:
    data, entries = bytearray(), list[Entry]()
    for number, message in enumerate(messages):
        record = record_at(message, BASE + len(data), queue_offset=FIRST + number, later_ms=number)
        entries.append((BASE + len(data), len(record), 0))
        data += record
    return data, entries


@given(HALVES, st.sets(st.integers(FIRST, FIRST + 12)))
def test_what_is_told_of_each_is_what_its_record_says(
    messages: list[Message], done: set[int]
) -> None:
    data, entries = stored(messages)
    found = list(decode_halves(bytes(data), BASE, entries, FIRST, done=done, shapes=ShapeCache()))
    assert [half[0] for half in found] == [
        number for number in range(FIRST, FIRST + len(messages)) if number not in done
    ]
    for queue_offset, log_offset, size, shape, stored_ms, properties_at in found:
        record = decode_record(bytes(data), log_offset - BASE)
        assert (record.queue_offset, record.log_offset) == (queue_offset, log_offset)
        assert (record.record_size, record.stored_ms) == (size, stored_ms)
        assert shape is not None
        assert shape.group == record.properties["PGROUP"]
        text = data[properties_at : log_offset - BASE + size].decode()
        assert text == "".join(
            f"{name}\x01{value}\x02" for name, value in record.properties.items()
        )


@given(st.integers(0, 3), st.integers(0, 7))
def test_a_damaged_half_has_no_shape_and_its_neighbours_have(at: int, bit: int) -> None:
    messages = [
        Message(topic=Topic.HALF, body=b"x" * 9, properties={"UNIQ_KEY": f"U{n}", "PGROUP": "g"})
        for n in range(3)
    ]
    data, entries = stored(messages)
    place = (0, 4, HEAD_V4.body_size_at, HEAD_V4.size)[at]
    data[entries[1][0] - BASE + place] ^= 1 << bit
    found = decode_halves(bytes(data), BASE, entries, FIRST, done=(), shapes=ShapeCache())
    assert [half[3] is not None for half in found] == [True, False, True]


KNOWN, MIDDLE, LAST = (
    Message(topic=Topic.HALF, body=b"x", properties={"UNIQ_KEY": f"U{n}", "PGROUP": "g"})
    for n in range(3)
)
WHOLE = len(record_at(MIDDLE, BASE))


def each_of(data: bytes, entries: list[Entry]) -> list[StoredHalf]:
    return list(decode_halves(data, BASE, entries, FIRST, done=(), shapes=ShapeCache()))


def alone(data: bytes, entry: Entry) -> StoredHalf:
    """What is found of the second half where no shape is known yet."""
    return next(decode_halves(data, BASE, [entry], FIRST + 1, done=(), shapes=ShapeCache()))


def test_a_half_with_one_wrong_bit_is_read_alike_whether_its_shape_is_known_or_not() -> None:
    data, entries = stored([KNOWN, MIDDLE, LAST])
    at, size = entries[1][0] - BASE, entries[1][1]
    for place, bit in itertools.product(range(at, at + size), range(8)):
        data[place] ^= 1 << bit
        found = each_of(bytes(data), entries)
        assert found[1] == alone(bytes(data), entries[1]), (place - at, bit)
        data[place] ^= 1 << bit


@pytest.mark.parametrize("size", [0, 1, HEAD_V4.size, WHOLE - 1, WHOLE + 1, 2 * WHOLE])
def test_a_record_of_another_size_than_its_entry_says_is_no_half(size: int) -> None:
    data, entries = stored([KNOWN, MIDDLE, LAST])
    entries[1] = entries[1][0], size, 0
    assert [half[3] is not None for half in each_of(bytes(data), entries)] == [True, False, True]


def test_an_entry_that_leads_to_the_last_bytes_is_that_of_no_half() -> None:
    data, entries = stored([KNOWN, MIDDLE, LAST])
    entries[2] = BASE + len(data) - 10, 10, 0
    assert [half[3] is not None for half in each_of(bytes(data), entries)] == [True, True, False]


def test_a_half_of_less_than_no_body_is_none_whatever_the_bytes_before_it_are() -> None:
    record = bytearray(record_at(msgspec.structs.replace(MIDDLE, body=b""), BASE))
    before = encode_topic(Topic.HALF)[1] + PROPERTIES_SIZE.pack(len(record))
    struct.pack_into(">i", record, HEAD_V4.body_size_at, -HEAD_V4.size - len(before))
    shapes = ShapeCache()
    shapes.shape_of(bytes(record))
    entries = [(BASE, len(record), 0)]
    data = before + record
    found = decode_halves(data, BASE - len(before), entries, FIRST, done=(), shapes=shapes)
    assert [half[3] for half in found] == [None]


@pytest.mark.parametrize("missing", [1, 40, 120])
def test_a_half_whose_last_bytes_are_missing_is_none(missing: int) -> None:
    data, entries = stored([KNOWN, MIDDLE, LAST])
    found = each_of(bytes(data[:-missing]), entries)
    assert [half[3] is not None for half in found] == [True, True, False]


@given(
    HALVES,
    st.integers(0, 12),
    st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 7)), max_size=2),
)
def test_what_is_read_together_is_what_each_is_by_itself(
    messages: list[Message], nth: int, flips: list[tuple[int, int]]
) -> None:
    data, entries = stored(messages)
    for at, bit in flips:
        if at < len(data):
            data[at] ^= 1 << bit
    shapes = ShapeCache()
    each = list(decode_halves(bytes(data), BASE, entries, FIRST, done=(), shapes=shapes))
    stored_ms, alike = match_known_shapes(bytes(data), BASE, entries, FIRST, nth, shapes)
    assert len(stored_ms) == len(alike) <= max(len(entries) - nth, 0)
    for half, moment, known in zip(each[nth:], stored_ms, alike, strict=False):
        assert half[3] is not None
        assert (half[3], half[4]) == (known.shape, moment)


@pytest.mark.skipif(alike_halves is None, reason="the lane is not built, or left aside")
def test_all_are_read_together_that_are_like_one_that_was_seen() -> None:
    halves = [
        Message(
            topic=Topic.HALF, body=b"x" * size,
            properties={"UNIQ_KEY": f"U{n:03}", "PGROUP": group},
        )
        for n, (size, group) in enumerate([(9, "g"), (0, "group"), (70, "g")] * 20)
    ]  # fmt: skip
    data, entries = stored(halves)
    shapes = ShapeCache()
    assert match_known_shapes(bytes(data), BASE, entries, FIRST, 0, shapes) == ([], []), (
        "none was seen"
    )
    list(decode_halves(bytes(data), BASE, entries[:2], FIRST, done=(), shapes=shapes))
    stored_ms, alike = match_known_shapes(bytes(data), BASE, entries, FIRST, 0, shapes)
    assert [known.shape.group for known in alike] == ["g", "group", "g"] * 20
    assert stored_ms == [stored_ms[0] + n for n in range(60)]
    moved = [entries[0], (entries[1][0], entries[1][1] - 1, 0), *entries[2:]]
    assert len(match_known_shapes(bytes(data), BASE, moved, FIRST, 0, shapes)[0]) == 1
    assert len(match_known_shapes(bytes(data), BASE, entries, FIRST + 1, 0, shapes)[0]) == 0
    assert len(match_known_shapes(bytes(data[:-1]), BASE, entries, FIRST, 0, shapes)[0]) == 59


@pytest.mark.skipif(alike_halves is None, reason="the lane is not built, or left aside")
def test_lane_that_is_told_nonsense_about_halves_refuses_it() -> None:
    assert alike_halves is not None
    data, entries = stored(
        [Message(topic=Topic.HALF, body=b"x", properties={"UNIQ_KEY": "U1"})] * 2
    )
    shapes = ShapeCache()
    list(decode_halves(bytes(data), BASE, entries, FIRST, done=(), shapes=shapes))
    right = [bytes(data), BASE, entries, FIRST, 0, b"\x14" + b"x" * 20, shapes.by_size]
    (known,) = shapes.by_size.values()
    wrong: list[tuple[int, object]] = [
        (0, "text"), (1, -1), (1, 1 << 70), (2, ()), (2, [()]), (2, [(BASE, "x", 0)]), (3, -1),
        (3, (1 << 63) - 1), (4, -1), (5, 5), (6, []),
    ]  # fmt: skip
    for at, value in wrong:
        with pytest.raises((TypeError, ValueError, OverflowError, IndexError)):
            alike_halves(*[value if nth == at else each for nth, each in enumerate(right)])  # type: ignore[arg-type]
    right[5] = bytes(data)[entries[0][1] - len(known.sample) - 2 - len(Topic.HALF) - 1 :][
        : len(Topic.HALF) + 1
    ]
    assert len(alike_halves(*right)[0]) == 2  # type: ignore[arg-type]
    right[6] = {len(known.sample): (None, None, known.sample, b"")}
    with pytest.raises(ValueError, match="a shape is not of its size"):
        alike_halves(*right)  # type: ignore[arg-type]


def test_a_key_that_hides_another_property_is_not_alike() -> None:
    """A client writes the encoded properties himself; the last value of a name counts."""
    honest = Message(
        topic=Topic.HALF, body=b"x", properties={"PGROUP": "g", "UNIQ_KEY": "U" + "x" * 20}
    )
    hiding = Message(
        topic=Topic.HALF, body=b"x",
        properties={"PGROUP": "g", "UNIQ_KEY": "U\x02PGROUP\x01another".ljust(21, "y")},
    )  # fmt: skip
    data, entries = stored([honest, hiding])
    assert entries[0][1] == entries[1][1]
    found = decode_halves(bytes(data), BASE, entries, FIRST, done=(), shapes=ShapeCache())
    groups = [half[3].group for half in found if half[3] is not None]
    assert groups == ["g", decode_record(bytes(data), entries[1][0] - BASE).properties["PGROUP"]]
    assert groups[1] != "g"
