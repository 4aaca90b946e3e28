"""Beginnings and ends, as options say them."""

from __future__ import annotations

import pytest

from escrowmq.client.core.routes import MessageQueue
from escrowmq.errors import UsageError
from escrowmq.pipeline.brokers.options import UserOptions
from escrowmq.pipeline.source.offset_options import (
    EARLIEST,
    LATEST,
    QueuePositions,
    parse_assignment,
    parse_positions,
)

Q0, Q1 = MessageQueue("t", "b", 0), MessageQueue("t", "b", 1)


def start(**options: str) -> QueuePositions:
    return parse_positions(UserOptions(options), "starting", default=EARLIEST)


def end(**options: str) -> QueuePositions:
    return parse_positions(UserOptions(options), "ending", default=LATEST)


def test_words() -> None:
    assert start().offset_of(Q0) == EARLIEST
    assert start(startingOffsets="Latest").offset_of(Q0) == LATEST
    assert end().offset_of(Q0) == LATEST
    assert start().time_of(Q0) is None


def test_a_group_is_named() -> None:
    place = start(startingOffsets="group:mailer")
    assert (place.group, place.offsets, place.time_of(Q0)) == ("mailer", None, None)
    with pytest.raises(UsageError, match="name the consumer group"):
        start(startingOffsets="group: ")
    with pytest.raises(UsageError, match="one of latest, JSON is expected"):
        end(endingOffsets="group:mailer")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1795000000000", 1_795_000_000_000),
        ("2026-11-21T12:00Z", 1_795_262_400_000),
        ("2026-11-21T14:00:00.5+02:00", 1_795_262_400_500),
        ("2026-11-21", 1_795_219_200_000),
    ],
)
def test_times_in_ms_and_as_iso_says(text: str, expected: int) -> None:
    assert start(startingTimestamp=text).time_of(Q0) == expected
    assert end(endingTimestamp=text).time_of(Q0) == expected


@pytest.mark.parametrize("text", ["2026-13-01", "1812-09-07", "yesterday", "-5", "1.5", "12:00"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UsageError, match="startingTimestamp"):
        start(startingTimestamp=text)


def test_offsets_by_queue() -> None:
    place = start(startingOffsets='{"t": {"b": {"0": 17, "1": -2}}}')
    assert (place.offset_of(Q0), place.offset_of(Q1)) == (17, -2)
    with pytest.raises(UsageError, match="has no offset for queue 2 of t on b; name every queue"):
        place.offset_of(MessageQueue("t", "b", 2))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffsets": '{"t": {"b": {"0": 1, "9": 1}}}'}, "names queue 9 of t on b, which"),
        ({"startingOffsets": '{"t": {"x": {"0": 1}}}'}, "names queue 0 of t on x"),
        ({"startingOffsetsByTimestamp": '{"t": 7, "z": 7}'}, "names the topic 'z', .* there are t"),
        ({"startingOffsetsByTimestamp": '{"t": {"b": {"7": 7}}}'}, "names queue 7 of t"),
    ],
)
def test_what_is_named_must_be_read(options: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        start(**options).require_known([Q0, Q1])
    start(startingOffsets='{"t": {"b": {"0": 1, "1": 1}}}').require_known([Q0, Q1])
    start(startingOffsets="latest").require_known([Q0, Q1])


def test_times_go_before_offsets_and_one_for_all_before_those() -> None:
    options = {
        "startingTimestamp": "5",
        "startingOffsetsByTimestamp": '{"t": 7}',
        "startingOffsets": "latest",
    }
    assert start(**options).time_of(Q0) == 5
    del options["startingTimestamp"]
    assert start(**options).time_of(Q0) == 7
    del options["startingOffsetsByTimestamp"]
    assert start(**options).time_of(Q0) is None


def test_times_by_queue() -> None:
    place = start(startingOffsetsByTimestamp='{"t": {"b": {"0": 17}}, "u": 3}')
    assert place.time_of(Q0) == 17
    assert place.time_of(MessageQueue("u", "any", 9)) == 3
    with pytest.raises(UsageError, match="has no time for queue 1"):
        place.time_of(Q1)


def test_where_no_message_is_that_young() -> None:
    assert not start(startingTimestamp="5").takes_latest
    assert end(endingTimestamp="5").takes_latest
    options = {"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "latest"}
    assert start(**options).takes_latest


@pytest.mark.parametrize(
    "text",
    ["soon", "[]", '{"t": 3}', '{"t": {"b": {"x": 1}}}', '{"t": {"b": {"0": -3}}}',
     '{"t": {"b": {"0": "1"}}}', "{"],
)  # fmt: skip
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(UsageError, match="startingOffsets"):
        start(startingOffsets=text)


def test_an_end_is_not_the_earliest() -> None:
    with pytest.raises(UsageError, match="one of latest, JSON is expected"):
        end(endingOffsets="earliest")
    with pytest.raises(UsageError, match="from -1 on"):
        end(endingOffsets='{"t": {"b": {"0": -2}}}')


def test_assignments() -> None:
    assert parse_assignment("assign", {"t": {"b": [2, 0, 2]}}) == {"t": {"b": [0, 2]}}
    values: list[object] = [
        {},
        {"t": []},
        {"t": {"b": []}},
        {"t": {"b": [-1]}},
        {"t": {"b": [True]}},
        3,
    ]
    for value in values:
        with pytest.raises(UsageError, match="assign"):
            parse_assignment("assign", value)
