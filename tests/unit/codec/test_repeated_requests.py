"""Requests that a connection repeats are read as if each were parsed."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from escrowmq.base.codes import Request
from escrowmq.base.command import Command, RepeatedRequest
from escrowmq.broker.requests.request_table import request_rows
from escrowmq.codec.command import BINARY, JSON, decode_header, encode_command
from escrowmq.codec.headers import HeaderError, read_header
from escrowmq.codec.repeated_requests import (
    _KEPT_MAX,
    REPEATED,
    RepeatedRequests,
    repeated_command,
    with_text_fields,
)
from escrowmq.errors import RemoteProtocolError
from escrowmq.lane import native

pytestmark = pytest.mark.skipif(
    native.find_repeated is None, reason="the lane is not built, or left aside"
)

FRONT_SIZE = 8
PULL = {
    "consumerGroup": "load", "topic": "Bench", "queueId": "1", "queueOffset": "64",
    "maxMsgNums": "32", "sysFlag": "3", "commitOffset": "32", "suspendTimeoutMillis": "15000",
    "subVersion": "1", "expressionType": "TAG", "maxMsgBytes": "262144", "bname": "broker-a",
}  # fmt: skip
COMMIT = {"consumerGroup": "load", "topic": "Bench", "queueId": "1", "commitOffset": "64"}


def header_of(
    fields: dict[str, str] | None = None, *, code: int = Request.PULL_MESSAGE, opaque: int = 1,
    flag: int = 0, remark: str | None = None, is_binary: bool = True,
) -> bytes:  # fmt: skip
    ext = PULL if code == Request.PULL_MESSAGE else COMMIT
    command = Command(
        code=code, opaque=opaque, flag=flag, version=479, ext=ext | (fields or {}),
        remark=remark, is_binary=is_binary,
    )  # fmt: skip
    return encode_command(command)[FRONT_SIZE:]


def typed(command: Command) -> msgspec.Struct | str:
    """What a handler gets, or is told."""
    if type(command) is RepeatedRequest:
        return command.header
    try:
        return read_header(REPEATED[command.code][0], command.ext)
    except HeaderError as error:
        return str(error)


def encode_frame(header: bytes, kind: int, body: bytes = b"") -> bytes:
    front = (4 + len(header) + len(body)).to_bytes(4, "big")
    return front + (kind << 24 | len(header)).to_bytes(4, "big") + header + body


def read(requests: RepeatedRequests, header: bytes, kind: int = BINARY) -> Command:
    """As a connection reads it (broker/remoting)."""
    frame = b"before" + encode_frame(header, kind) + b"behind"
    match = requests.find(frame, 6)
    if match is None:
        return requests.decode(header, kind)
    assert match[-1] == len(frame) - 6
    return repeated_command(match, frame, 6)


def test_what_is_repeated_has_its_own_numbers() -> None:
    requests = RepeatedRequests()
    first = read(requests, header_of(), BINARY)
    assert (type(first), first.ext) == (Command, PULL)
    again = read(
        requests,
        header_of({"queueId": "3", "queueOffset": "96", "commitOffset": "64"}, opaque=-7),
        BINARY,
    )
    assert isinstance(again, RepeatedRequest)
    assert (again.code, again.opaque, again.version) == (Request.PULL_MESSAGE, -7, 479)
    expected = PULL | {"queueId": "3", "queueOffset": "96", "commitOffset": "64"}
    assert with_text_fields(again).ext == expected
    assert again.header == typed(with_text_fields(again))
    # The one before is not changed by it.
    other = read(requests, header_of(), BINARY)
    assert isinstance(other, RepeatedRequest)
    assert other.header == typed(with_text_fields(other))


NUMBERS = st.sampled_from(["0", "7", "64", "128", "007", "+1", " 1", "1_0", "", "x", "9" * 19])
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "queueId": NUMBERS,
        "queueOffset": NUMBERS,
        "commitOffset": NUMBERS,
        "maxMsgNums": st.sampled_from(["32", "33", "x"]),
        "topic": st.sampled_from(["Bench", "Other", "é"]),
        "queueOffset\0\0": st.just("1"),
    },
)
REQUESTS = st.tuples(
    FIELDS,
    st.sampled_from([Request.PULL_MESSAGE, Request.UPDATE_CONSUMER_OFFSET]),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.sampled_from([0, 2]),
    st.sampled_from([None, "remark"]),
    st.booleans(),
)


@example([({"queueOffset": text}, 11, 1, 0, None, True) for text in ("64", "07", "96", "٣٣")])
@given(st.lists(REQUESTS, max_size=8))
def test_it_is_read_as_if_it_were_parsed(
    given_requests: list[tuple[dict[str, str], int, int, int, str | None, bool]],
) -> None:
    requests = RepeatedRequests()
    for fields, code, opaque, flag, remark, is_binary in given_requests * 2:
        data = header_of(
            fields, code=code, opaque=opaque, flag=flag, remark=remark, is_binary=is_binary
        )
        kind = BINARY if is_binary else JSON
        one, other = read(requests, data, kind), decode_header(data, kind)
        assert with_text_fields(one) == other
        assert typed(one) == typed(other)
        assert (one.code, one.opaque, one.flag) == (code, opaque, flag)
        assert (one.version, one.language, one.is_binary) == (
            other.version, other.language, other.is_binary,
        )  # fmt: skip


def test_what_is_not_whole_or_has_a_body_is_not_found() -> None:
    requests = RepeatedRequests()
    data = header_of()
    for _ in range(2):
        read(requests, data, BINARY)
    frame = encode_frame(data, BINARY)
    assert requests.find(frame, 0) is not None
    assert all(requests.find(frame[:size], 0) is None for size in range(len(frame)))
    assert requests.find(encode_frame(data, JSON), 0) is None
    assert requests.find(encode_frame(data, 2), 0) is None
    assert requests.find(encode_frame(data, BINARY, b"body") + bytes(9), 0) is None
    for size in (0, 3, 4, len(frame) - 5, len(frame) - 3, 0x7FFFFFFF, 0xFFFFFFFF):
        assert requests.find(size.to_bytes(4, "big") + frame[4:] + bytes(9), 0) is None


@given(st.data())
def test_frames_with_some_other_bytes_are_found_alike(data: st.DataObject) -> None:
    requests = RepeatedRequests()
    for fields in ({}, {"queueOffset": "7"}, {"topic": "Other"}, {"queueId": "0", "topic": "A"}):
        read(requests, header_of(fields), BINARY)
    frame = bytearray(encode_frame(header_of(), BINARY))
    places = st.one_of(st.integers(0, 30), st.integers(0, len(frame) - 1))
    for at in data.draw(st.lists(places, max_size=3)):
        frame[at] = data.draw(st.one_of(st.integers(0, 255), st.sampled_from(b"0129")))
    behind = data.draw(st.binary(max_size=4))
    given_bytes = bytes(frame) + behind
    match = requests.find(
        given_bytes, data.draw(st.sampled_from([0, 0, 0, 1, len(given_bytes) + 5]))
    )
    if match is not None:
        command = repeated_command(match, given_bytes, 0)
        assert with_text_fields(command) == decode_header(given_bytes[8 : match[-1]], BINARY)
        assert command.header == typed(with_text_fields(command))


HEADER = bytes(range(60))


@pytest.mark.parametrize(
    ("known", "error"),
    [
        ({60: [(HEADER, struct.pack("=ii", *place), None)]}, ValueError)
        for place in ((8, 9), (9, 9), (20, 19), (59, 61), (-1, 10), (10, 29), (70, 80))
    ]
    + [
        ({60: [(HEADER, struct.pack("=iiii", 20, 22, 21, 23), None)]}, ValueError),
        ({60: [(HEADER, struct.pack("=ii", 20, 22) * 5, None)]}, ValueError),
        ({60: [(HEADER, bytes(7), None)]}, ValueError),
        ({60: [(HEADER, bytes(8))]}, TypeError),
        ({60: [(HEADER, "text", None)]}, TypeError),
        ({60: [None]}, TypeError),
        ({60: None}, TypeError),
        (None, TypeError),
    ],
)
def test_lane_that_is_given_nonsense_says_so(known: Any, error: type[Exception]) -> None:
    assert native.find_repeated is not None
    frame = encode_frame(HEADER, BINARY)
    with pytest.raises(error):
        native.find_repeated(frame, 0, known)
    assert native.find_repeated(frame, 0, {}) is None
    assert native.find_repeated(frame, 0, {60: [(HEADER[:9], b"", None)]}) is None


def test_a_number_that_is_there_twice_is_read_as_ever() -> None:
    data = header_of()
    field = b"\0\7queueId\0\0\0\1"
    at = data.index(field)
    size = int.from_bytes(data[17:21], "big") + len(field) + 1
    twice = data[:17] + size.to_bytes(4, "big") + data[21:at] + field + b"2" + data[at:]
    requests = RepeatedRequests()
    for _ in range(3):
        found = read(requests, twice, BINARY)
        assert type(found) is Command
        assert found.ext == PULL


def test_what_stands_behind_the_fields_is_none_of_them() -> None:
    """RocketMQ reads as many bytes of fields as are said, and so does whoever reads them as
    texts."""
    field = b"\0\x0ccommitOffset\0\0\0\2"
    whole_header = header_of()
    at = whole_header.index(field)
    bare = whole_header[:at] + whole_header[at + len(field) + 2 :]
    bare = bare[:17] + (len(bare) - 21).to_bytes(4, "big") + bare[21:]
    requests = RepeatedRequests()
    for number in (b"32", b"32", b"96"):
        data = bare + field + number
        found = read(requests, data, BINARY)
        assert with_text_fields(found) == decode_header(data, BINARY)
        assert typed(found) == typed(decode_header(data, BINARY))


def test_what_cannot_be_read_is_told_as_ever() -> None:
    requests = RepeatedRequests()
    data = header_of()
    for _ in range(2):
        read(requests, data, BINARY)
    for odd in (data[:-1], data[:30], b"", data.replace(b"Bench", b"\xff\xff\xff\xff\xff")):
        with pytest.raises(RemoteProtocolError):
            read(requests, odd, BINARY)
    with pytest.raises(RemoteProtocolError, match="header kind 2"):
        read(requests, data, 2)


def known_count(requests: RepeatedRequests) -> int:
    assert len(requests._constants) == sum(map(len, requests._given.values()))
    return len(requests._constants)


def test_what_is_known_of_one_layout_says_nothing_of_another() -> None:
    """Headers of one size whose numbers stand at other places."""
    requests = RepeatedRequests()
    layouts = [{"queueOffset": "6" * size, "commitOffset": "3" * (9 - size)} for size in (4, 5)]
    for fields in layouts:
        read(requests, header_of(fields))
    assert known_count(requests) == 2
    for fields in layouts:
        header = header_of(fields)
        for at in range(9, len(header)):
            odd = header[:at] + b"7" + header[at + 1 :]
            try:
                expected: Command | str = decode_header(odd, BINARY)
            except RemoteProtocolError as error:
                expected = str(error)
            try:
                found: Command | str = with_text_fields(read(requests, odd))
            except RemoteProtocolError as error:
                found = str(error)
            assert found == expected


def test_one_with_an_unusual_number_is_not_learnt_again() -> None:
    requests = RepeatedRequests()
    for number in ("64", "07", "07", "96"):
        read(requests, header_of({"queueOffset": number}))
    assert known_count(requests) == 1


def test_only_so_many_are_kept_and_who_never_repeats_is_not_learnt_from() -> None:
    requests = RepeatedRequests()
    for number in range(10_000):
        read(requests, header_of({"topic": f"T{number}"}), BINARY)
    assert 0 < known_count(requests) <= _KEPT_MAX
    others = RepeatedRequests()
    for number in range(10_000):
        for _ in range(10):
            read(others, header_of({"topic": f"T{number}"}), BINARY)
    assert 0 < known_count(others) <= _KEPT_MAX
    long = {"topic": "T" * 600}
    for _ in range(3):
        assert type(read(others, header_of(long), BINARY)) is Command


def test_they_are_read_into_what_their_handlers_expect() -> None:
    headers = {row.code: row.header for row in request_rows()}
    for code, (header, varying) in REPEATED.items():
        assert headers[code] is header
        by_name = {
            field.encode_name.encode(): field.name for field in msgspec.structs.fields(header)
        }
        assert {name: number.attribute for name, number in varying.items()}.items() <= (
            by_name.items()
        )
