"""Whatever bytes they get, decoders return a value or raise the one error that they document."""

from __future__ import annotations

import contextlib
import json
import random
import time
from typing import Any

import msgspec
import pytest

from escrowmq.acl.accounts import read_accounts
from escrowmq.acl.addresses import read_pattern
from escrowmq.base.limits import EXT_FIELDS_MAX
from escrowmq.codec import (
    acks,
    batch,
    bodies,
    command,
    entries,
    fastjson,
    frame,
    headers,
    ids,
    properties,
    recall,
    record,
)
from escrowmq.errors import CorruptRecord, RemoteProtocolError, UsageError
from escrowmq.filter.grammar import compile_sql
from escrowmq.filter.operands import FilterError
from escrowmq.filter.tags import parse_tags

from .frames import GOLDEN, NUMBERS, SECONDS, SEED, TEXTS, golden_frames, spoil


def as_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def some_header(data: bytes) -> object:
    chance = random.Random(data)
    kinds = [
        kind
        for kind in vars(headers).values()
        if isinstance(kind, type)
        and issubclass(kind, msgspec.Struct)
        and kind is not headers.Header
    ]
    kind = chance.choice(kinds)
    ext = {
        field.encode_name: chance.choice((as_text(data[:20]), *NUMBERS, *TEXTS))
        for field in msgspec.structs.fields(kind)
        if chance.random() < 0.8
    }
    return headers.read_header(kind, ext)


DECODERS: dict[str, tuple[Any, ...]] = {
    "json header": (lambda data: command.decode_header(data, command.JSON), RemoteProtocolError),
    "binary header": (
        lambda data: command.decode_header(data, command.BINARY),
        RemoteProtocolError,
    ),
    "batch": (batch.decode_batch, RemoteProtocolError),
    "heartbeat": (
        lambda data: bodies.decode_body(bodies.HeartbeatBody, data),
        RemoteProtocolError,
    ),
    "locks": (lambda data: bodies.decode_body(bodies.LockBody, data), RemoteProtocolError),
    "the peer's json": (fastjson.decode, RemoteProtocolError),
    "record": (lambda data: record.decode_record(data, check_crc=True), CorruptRecord),
    "records": (record.decode_records, CorruptRecord),
    "properties": (properties.decode_properties,),
    "checkpoint": (entries.decode_checkpoint,),
    "offset id": (lambda data: ids.parse_offset_id(as_text(data)), UsageError),
    "recall handle": (lambda data: recall.decode_handle(as_text(data)), UsageError),
    "header fields": (some_header, headers.HeaderError),
    "acks": (acks.decode_acks, RemoteProtocolError),
    "accounts": (read_accounts, UsageError),
    "address": (lambda data: read_pattern(as_text(data)), UsageError),
    "sql": (lambda data: compile_sql(as_text(data)), FilterError),
    "tags": (lambda data: parse_tags(as_text(data), code_of=len), FilterError),
}


ACCOUNTS = b"""
globalWhiteRemoteAddresses: [10.10.103.*, 192.168.0.1]
accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress: fe80::{1,2}
  admin: false
  topicPerms: [topicA=DENY, "topicB=PUB|SUB"]
dataVersion:
- {counter: 1, timestamp: 2}
"""


def seeds() -> list[bytes]:
    found = [data[8:] for data in golden_frames()]
    found += golden_frames()
    for item in json.loads((GOLDEN / "records-5.3.3.json").read_text())["records"].values():
        found.append(bytes.fromhex(item["hex"]))
    for text in json.loads((GOLDEN / "tables-5.3.3.json").read_text())["files"].values():
        found.append(text.encode())
    found += [ACCOUNTS, b"10.0.1-5.*", b"fe80::1:0-ff:*", b"10.0.0.{1,2}"]
    found += [b"a > 1 AND b IN ('x') OR c BETWEEN 1 AND 2", b"a || b", b"0" * 32, b"F" * 56]
    return found


@pytest.mark.parametrize("name", DECODERS)
def test_decoder_raises_nothing_but_what_it_documents(name: str) -> None:
    decode, *errors = DECODERS[name]
    chance = random.Random(f"{name} {SEED}")
    known = seeds()
    deadline = time.monotonic() + SECONDS / 10
    while time.monotonic() < deadline:
        data = chance.choice(known)
        for _ in range(chance.randrange(4)):
            data = spoil(data, chance)
        if chance.random() < 0.05:
            data = chance.randbytes(chance.randrange(300))
        with contextlib.suppress(*errors):
            decode(data)


@pytest.mark.parametrize("depth", [100, 5_000, 200_000])
@pytest.mark.parametrize("opening", [b"[", b'{"a":', b"{{", b"("])
@pytest.mark.parametrize("name", DECODERS)
def test_depth_is_no_way_to_fell_a_decoder(name: str, opening: bytes, depth: int) -> None:
    decode, *errors = DECODERS[name]
    with contextlib.suppress(*errors):
        decode(opening * depth)


def test_number_of_fields_is_bounded_in_both_header_forms() -> None:
    ext = {f"f{n}": "x" for n in range(EXT_FIELDS_MAX + 1)}
    for kind in (command.JSON, command.BINARY):
        request = command.Command(code=34, opaque=1, ext=ext, is_binary=kind == command.BINARY)
        reader = frame.FrameReader()
        assert reader.feed(command.encode_command(request)) == []
        assert reader.broken is not None
