"""Whatever bytes they get, decoders return a value or raise the one error that they document."""

from __future__ import annotations

import contextlib
import json
import random
from typing import Any

import msgspec
import pytest

from escrowmq.acl.access_explanation import question_access
from escrowmq.acl.acl1_accounts import read_accounts
from escrowmq.acl.acl2_policies import parse_policies, parse_resource
from escrowmq.acl.acl2_users import parse_users_file
from escrowmq.acl.trusted_addresses import parse_pattern
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.command import Command
from escrowmq.base.fixed_limits import EXT_FIELDS_MAX
from escrowmq.base.message import Message
from escrowmq.base.store_settings import StoreSettings
from escrowmq.broker.access.on_acl2 import read_auth_requirements
from escrowmq.codec import (
    acl2_bodies,
    batch_ack_body,
    batch_body,
    changed_settings,
    client_bodies,
    command,
    compression,
    fastjson,
    frame,
    headers,
    ids,
    java_properties,
    pop_receipt,
    properties,
    recall_handle,
    record,
    routes,
    signed_id,
    store_entries,
)
from escrowmq.codec.pending_bodies import HalfFilter, TransactionSelector
from escrowmq.delivery import timer_snapshot
from escrowmq.errors import CorruptRecord, RemoteProtocolError, UsageError
from escrowmq.filter.grammar import compile_sql
from escrowmq.filter.operands import FilterError
from escrowmq.filter.tags import parse_tags
from escrowmq.txn import epoch, op_records, pending_snapshot

from .frames import GOLDEN, NUMBERS, SEED, TALLY, TEXTS, golden_frames, spoil, tries


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


def some_policies(data: bytes) -> object:
    return parse_policies(client_bodies.decode_body(acl2_bodies.AclInfo, data))


def some_body(data: bytes) -> object:
    kinds = (
        acl2_bodies.UserInfo,
        acl2_bodies.AccessQuestion,
        HalfFilter,
        TransactionSelector,
        client_bodies.CheckClientBody,
    )
    return [client_bodies.decode_body(kind, data) for kind in kinds]


def saved_changes(data: bytes) -> None:
    changed_settings.ChangedSettings(BrokerSettings(), StoreSettings()).load(data, source="a file")


def registration(data: bytes) -> object:
    chance = random.Random(data)
    is_compressed, version = chance.random() < 0.5, chance.choice((0, 300, 479))
    return routes.decode_registration(data, is_compressed=is_compressed, sender_version=version)


DECODERS: dict[str, tuple[Any, ...]] = {
    "users and policies": (parse_users_file, UsageError),
    "policies": (some_policies, RemoteProtocolError, UsageError),
    "resource": (lambda data: parse_resource(as_text(data)),),
    "question": (
        lambda data: question_access(
            acl2_bodies.AccessQuestion("u", as_text(data[:8]), as_text(data[8:]))
        ),
        UsageError,
    ),
    "codes": (
        lambda data: read_auth_requirements(BrokerSettings(unauthenticated=as_text(data))),
        UsageError,
    ),
    "bodies of operators": (some_body, RemoteProtocolError),
    "settings file": (
        lambda data: java_properties.parse_java_properties(data.decode("latin-1")),
        java_properties.ConfError,
    ),
    "changed settings": (saved_changes,),
    "signed id": (lambda data: signed_id.decode_signed_id(as_text(data)), UsageError),
    "receipt": (lambda data: pop_receipt.decode_receipt(as_text(data)), UsageError),
    "starts": (lambda data: pop_receipt.decode_offset_list(as_text(data)), UsageError),
    "epoch": (lambda data: epoch.parse_epoch("g", as_text(data)), UsageError),
    "op record": (
        lambda data: op_records.decode_op(Message(topic="T", body=data, properties={"TAGS": "d"})),
    ),
    "pending snapshot": (pending_snapshot.decode,),
    "timer snapshot": (timer_snapshot.decode,),
    "registration": (registration, RemoteProtocolError),
    "route": (routes.decode_route, RemoteProtocolError),
    "cluster": (routes.decode_cluster_info, RemoteProtocolError),
    "compressed": (
        lambda data: [compression.decompress(data, flag) for flag in (1, 0x101, 0x201, 0x301)],
        RemoteProtocolError,
    ),
    "json header": (lambda data: command.decode_header(data, command.JSON), RemoteProtocolError),
    "binary header": (
        lambda data: command.decode_header(data, command.BINARY),
        RemoteProtocolError,
    ),
    "batch": (batch_body.decode_batch, RemoteProtocolError),
    "heartbeat": (
        lambda data: client_bodies.decode_body(client_bodies.HeartbeatBody, data),
        RemoteProtocolError,
    ),
    "locks": (
        lambda data: client_bodies.decode_body(client_bodies.LockBody, data),
        RemoteProtocolError,
    ),
    "RocketMQ's json": (fastjson.decode_fastjson, RemoteProtocolError),
    "record": (lambda data: record.decode_record(data, check_crc=True), CorruptRecord),
    "records": (record.decode_records, CorruptRecord),
    "properties": (properties.decode_properties,),
    "checkpoint": (store_entries.decode_checkpoint,),
    "offset id": (lambda data: ids.parse_offset_id(as_text(data)), UsageError),
    "recall handle": (lambda data: recall_handle.decode_recall_handle(as_text(data)), UsageError),
    "header fields": (some_header, headers.HeaderError),
    "acks": (batch_ack_body.decode_acks, RemoteProtocolError),
    "accounts": (read_accounts, UsageError),
    "address": (lambda data: parse_pattern(as_text(data)), UsageError),
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


USERS = b"""
{"acls": [{"subject": "User:orders", "policies": [{"policyType": "Custom", "entries": [
 {"resource": "Topic:T*", "actions": ["Pub", "Sub"], "sourceIps": ["10.0.0.0/8", "::1"],
  "decision": "Allow"}]}]}],
 "users": [{"username": "orders", "password": "p", "userType": "Super", "userStatus": "enable"}]}
"""

CONF = b"brokerName=a\n# a comment\nlistenPort : 10911\nkey\\ with = \\u0041 \\\n  more\n"


def seeds() -> list[bytes]:
    found = [data[8:] for data in golden_frames()]
    found += golden_frames()
    for item in json.loads((GOLDEN / "records-5.3.3.json").read_text())["records"].values():
        found.append(bytes.fromhex(item["hex"]))
    for text in json.loads((GOLDEN / "tables-5.3.3.json").read_text())["files"].values():
        found.append(text.encode())
    found += [USERS, CONF, b'{"transactionTimeOut":{"insteadOf":"6000","value":"5"}}']
    found += [b"q/1", b"Topic:orders*", b"pub     Topic:T", b"310, 34", b"1 2 3 0 0 b 1 2"]
    found += [b'{"user":"u","action":"pub","resource":"T"}', b'{"limit":9,"minAgeMs":1}']
    for sys_flag, form in ((0x301, "zlib"), (0x101, "lz4"), (0x201, "zstd")):
        assert sys_flag
        found.append(compression.compress(b"body" * 99, form=form, level=1)[0])
    found += [ACCOUNTS, b"10.0.1-5.*", b"fe80::1:0-ff:*", b"10.0.0.{1,2}"]
    found += [b"a > 1 AND b IN ('x') OR c BETWEEN 1 AND 2", b"a || b", b"0" * 32, b"F" * 56]
    return found


@pytest.mark.parametrize("name", DECODERS)
def test_decoder_raises_nothing_but_what_it_documents(name: str) -> None:
    decode, *errors = DECODERS[name]
    chance = random.Random(f"{name} {SEED}")
    known = seeds()
    for _ in tries(2_000, share=0.1):
        data = chance.choice(known)
        for _ in range(chance.randrange(4)):
            data = spoil(data, chance)
        if chance.random() < 0.05:
            data = chance.randbytes(chance.randrange(300))
        TALLY["decoders"] += 1
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
        request = Command(code=34, opaque=1, ext=ext, is_binary=kind == command.BINARY)
        reader = frame.FrameReader()
        assert reader.read_commands(command.encode_command(request)) == []
        assert reader.broken is not None
