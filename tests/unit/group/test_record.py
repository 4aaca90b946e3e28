from __future__ import annotations

import pytest
from msgspec.structs import replace

from escrowmq.errors import UsageError
from escrowmq.group.record import RECORD_SIZE_MAX, GroupRecord, decode_group_record, numbers_with

RECORD = GroupRecord(
    group="g", epoch=3, master="a", address="h:1", in_sync={"a": "x", "b": "y"}, mark="m"
)


def test_a_record_is_read_as_it_was_written() -> None:
    assert decode_group_record(RECORD.encode()) == RECORD


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"", "not a group's record"),
        (b"{}", "not a group's record"),
        (b"\xff", "not a group's record"),
        (RECORD.encode().replace(b'"epoch":3', b'"epoch":0'), "not a group's record"),
        (replace(RECORD, format=2).encode(), "format 2"),
        (replace(RECORD, master="c").encode(), "not among its members in sync"),
        (b" " * (RECORD_SIZE_MAX + 1), "bytes"),
    ],
)
def test_what_a_person_has_spoilt_is_said(value: bytes, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        decode_group_record(value)


def test_numbers_are_the_lowest_that_are_free() -> None:
    assert numbers_with(replace(RECORD, numbers={"a": 1, "c": 3}), "b") == {"a": 1, "c": 3, "b": 2}
    assert numbers_with(replace(RECORD, numbers={"b": 2}), "b") == {"b": 2}


def test_another_incarnation_is_not_in_sync() -> None:
    assert RECORD.is_in_sync("b", "y")
    assert not RECORD.is_in_sync("b", "z")
    assert not RECORD.is_in_sync("c", "y")
