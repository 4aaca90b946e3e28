from __future__ import annotations

import contextlib
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.codes import Flag, Version
from escrowmq.base.command import Command
from escrowmq.base.fixed_limits import EXT_FIELDS_MAX, FRAME_SIZE_MAX
from escrowmq.codec.command import (
    BINARY,
    JSON,
    decode_header,
    encode_command,
    encode_reply,
    encode_request,
)
from escrowmq.codec.frame import FrameReader
from escrowmq.errors import LocalProtocolError, RemoteProtocolError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
COMMANDS = st.builds(
    Command,
    code=st.integers(-32_768, 32_767),
    opaque=INT32,
    flag=INT32,
    version=st.integers(-32_768, 32_767),
    remark=st.none() | TEXT.filter(bool),
    ext=st.none() | st.dictionaries(TEXT, TEXT.filter(bool), min_size=1, max_size=10),
    body=st.binary(max_size=100),
    is_binary=st.booleans(),
)


def decode(frame: bytes) -> Command:
    (command,) = FrameReader().read_commands(frame)
    command.language = None
    return command


@given(COMMANDS)
def test_command_is_the_same_after_the_wire_in_both_header_forms(command: Command) -> None:
    assert decode(encode_command(command)) == command


@given(st.lists(COMMANDS, max_size=5), st.integers(1, 50))
def test_commands_are_the_same_in_whatever_pieces_they_come(
    commands: list[Command], step: int
) -> None:
    data = b"".join(map(encode_command, commands))
    reader = FrameReader()
    found = [
        c for at in range(0, len(data), step) for c in reader.read_commands(data[at : at + step])
    ]
    for command in found:
        command.language = None
    assert found == commands


def test_headers_are_those_of_the_peer() -> None:
    command = Command(code=105, opaque=7, remark="r", ext={"e": "x", "topic": "Té"})
    header = encode_command(command)[8:]
    assert header.decode() == (
        '{"code":105,"extFields":{"e":"x","topic":"Té"},"flag":0,"language":"PYTHON","opaque":7,'
        '"remark":"r","serializeTypeCurrentRPC":"JSON","version":0}'
    )
    command.is_binary = True
    assert encode_command(command).hex() == (
        "000000300100002c006903000000000007000000000000000172"
        "0000001600016500000001780005746f7069630000000354c3a9"
    )  # fmt: skip


def test_code_that_the_binary_form_cannot_hold_goes_as_json() -> None:
    frame = encode_command(Command(code=200_050, opaque=1, is_binary=True))
    assert frame[4] == JSON
    assert decode(frame).code == 200_050


@pytest.mark.parametrize(
    "ext", [{"k" * 32_768: "v"}, {"k" * 70_000: "v"}], ids=["beyond 15 bits", "beyond 16 bits"]
)
def test_name_that_the_binary_form_cannot_hold_goes_as_json(ext: dict[str, str]) -> None:
    assert decode(encode_command(Command(ext=ext, is_binary=True))).ext == ext


@pytest.mark.parametrize(
    ("header", "command"),
    [
        (b"{}", Command()),
        (b'{"code":105,"opaque":5,"extFields":{"topic":"T","queueId":null,"n":5,"b":true}}',
         Command(code=105, opaque=5, ext={"topic": "T", "n": "5", "b": "true"})),
        (b'{"code":"34","language":5,"version":null}', Command(code=34, language=5)),
        (b'{"code":34,"language":"KLINGON","unknown":{"a":[1]}}',
         Command(code=34, language="KLINGON")),
        (b'{"code":34,"language":null,"remark":5,"extFields":{"x":{"y":1},"z":[1]}}',
         Command(code=34, ext={"x": '{"y":1}', "z": "[1]"})),
        (b'{"code":34.0,"extFields":null}', Command(code=34)),
    ],
)  # fmt: skip
def test_odd_headers_are_read_as_the_peer_reads_them(header: bytes, command: Command) -> None:
    assert decode_header(header, JSON) == command


@pytest.mark.parametrize(
    "header",
    [b"", b"[]", b"5", b"{", b'{"code":"x"}', b'{"code":[]}', b'{"code":1e400}',
     b'{"opaque":99999999999999999999}', b'{"extFields":[]}', b'{"code":1}x', b"\xff",
     b'{"flag":4294967296.5}', b"[" * 100_000, b'{"a":' * 100_000, b'{"remark":"\xff","code":"1"}',
     b'{"extFields":{"a":"\xff","b":1}}', b'{"extFields":{"\xff":1}}',
     b'{"language":"\xff","flag":"1"}', b'{"extFields":{"a":["\xff"]}}', b'{"code":"\xff"}'],
)  # fmt: skip
def test_header_that_cannot_be_read_is_refused(header: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_header(header, JSON)


@pytest.mark.parametrize("kind", [2, 5, 255])
def test_unknown_header_kind_is_refused(kind: int) -> None:
    with pytest.raises(RemoteProtocolError, match="0 \\(JSON\\) or 1 \\(binary\\)"):
        decode_header(b"{}", kind)


@pytest.mark.parametrize("cut", range(1, 40))
def test_cut_binary_header_is_refused(cut: int) -> None:
    frame = encode_command(Command(code=1, remark="r", ext={"a": "b"}, is_binary=True))
    header = frame[8:]
    with pytest.raises(RemoteProtocolError):
        decode_header(header[: max(0, len(header) - cut)], BINARY)


def test_what_is_said_of_a_broken_header_does_not_depend_on_those_before_it() -> None:
    whole = encode_command(Command(code=1, ext={"one": "aaaa", "two": "bbXb"}, is_binary=True))
    broken = whole.replace(b"X", b"\xff")
    said = []
    for frame in (broken, whole, broken):
        try:
            decode_header(frame[8:], BINARY)
        except RemoteProtocolError as error:
            said.append(str(error))
    assert len(said) == 2
    assert said[0] == said[1]
    assert "in position 2:" in said[0]


def test_reply_has_the_form_and_the_number_of_its_request() -> None:
    for is_binary in (False, True):
        request = Command(code=34, opaque=77, is_binary=is_binary)
        reply = decode(encode_reply(request, 1, remark="no", ext={"a": "b"}, body=b"x"))
        assert reply == Command(
            code=1, opaque=77, flag=Flag.REPLY, version=Version.OURS, remark="no",
            ext={"a": "b"}, body=b"x", is_binary=is_binary,
        )  # fmt: skip


def test_body_that_follows_later_is_counted_in() -> None:
    front = encode_reply(Command(opaque=1), 0, later_size=5)
    assert decode(front + b"12345").body == b"12345"


def test_request_of_ours_is_json_and_one_way_when_asked() -> None:
    frame = encode_request(40, 5, ext={"consumerGroup": "g"}, is_one_way=True)
    header = json.loads(frame[8:])
    assert (header["flag"], header["code"], header["version"]) == (2, 40, 479)


def test_frame_beyond_the_limit_is_not_written() -> None:
    with pytest.raises(LocalProtocolError):
        encode_request(1, 1, body=bytes(FRAME_SIZE_MAX))
    with pytest.raises(LocalProtocolError):
        encode_reply(Command(is_binary=True), 0, later_size=FRAME_SIZE_MAX)


def json_fields(value: str) -> bytes:
    fields = ",".join(f'"{number}":{value}' for number in range(EXT_FIELDS_MAX + 1))
    return f'{{"code":10,"extFields":{{{fields}}}}}'.encode()


@pytest.mark.parametrize("value", ['"a"', "1", "1e300", "null", "[]", "true", '{"a":1}'])
def test_json_fields_are_counted_before_texts_are_made_of_them(value: str) -> None:
    with pytest.raises(RemoteProtocolError, match="513 header fields; 512 are allowed"):
        decode_header(json_fields(value), JSON)


@pytest.mark.parametrize(
    "fields",
    [
        ",".join(f'"{number}":{number}' for number in range(20_000)),
        ",".join(f'"{number}\\\\":"a"' for number in range(15_000)),
        ",".join(f'"{number}" : ""' for number in range(15_000)),
        '"a":[' + "[]," * 79_000 + "[]]",
        '"a":{' + '"":{},' * 30_000 + '"":1}',
    ],
)  # fmt: skip
def test_what_a_header_is_full_of_is_not_made(fields: str) -> None:
    header = f'{{"code":10,"extFields":{{{fields}}}}}'.encode()
    tracemalloc.start()
    try:
        with contextlib.suppress(RemoteProtocolError):
            decode_header(header, JSON)
        highest = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert highest < 4 * len(header)


def test_a_header_may_be_full_of_quotes_that_are_escaped() -> None:
    text = '"' * 30_000
    command = Command(code=10, ext={str(number): "x" for number in range(511)} | {"i": text})
    frame = encode_command(command)
    assert decode_header(frame[8:], JSON).ext == command.ext


@pytest.mark.parametrize("value", [b"", b"x"])
def test_binary_fields_count_whether_they_say_something_or_not(value: bytes) -> None:
    field = b"\0\1a" + len(value).to_bytes(4, "big") + value
    fields = field * (EXT_FIELDS_MAX + 1)
    header = bytes(17) + len(fields).to_bytes(4, "big") + fields
    with pytest.raises(RemoteProtocolError, match="more than 512 header fields"):
        decode_header(header, BINARY)


def test_fractions_are_the_text_that_they_are() -> None:
    command = decode_header(b'{"code":10,"extFields":{"a":1.50,"b":1e300}}', JSON)
    assert command.ext == {"a": "1.50", "b": "1e300"}
