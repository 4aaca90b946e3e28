"""Every request code at the name server, in the name of nobody, of a forger, of accounts with some
rights and none, and of an operator, in every shape that a request can have."""

from __future__ import annotations

import json
from typing import Final

import pytest

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.effects import Send
from escrowmq.codec.command import encode_command
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.signature import ACCESS_KEY, SIGNATURE, sign_fields
from escrowmq.registry.guard import OPEN_REQUESTS

from .exchange import Exchange
from .test_guard import NO_PERMISSION, SECRET, world

CODES: Final = sorted(
    {code for name, code in vars(Request).items() if name.isupper() and isinstance(code, int)}
    - {Request.ESCROW_SESSION}  # anybody's, and opens nothing (test_own_signatures)
    | {0, -1, 513, 9_999, 32_767}
)
ACCOUNTS: Final = {
    "nobody": ("", ""),
    "a forger": ("operator", "another-secret"),
    "some rights": ("sender-1", SECRET),
    "disabled": ("retired", SECRET),
    "unknown": ("nobody-1", SECRET),
}
_TABLE: Final = {"dataVersion": {"counter": 9}, "topicConfigTable": {}}
SHAPES: Final[dict[str, tuple[dict[str, str], bytes]]] = {
    "whole": (
        {
            "topic": "T", "namespace": "n", "key": "k", "value": "v", "brokerName": "broker-a",
            "brokerAddr": "10.0.0.9:1", "clusterName": "DefaultCluster", "brokerId": "0",
            "haServerAddr": "10.0.0.9:2", "dataVersion": "1", "cluster": "DefaultCluster",
        },
        json.dumps({"topicConfigSerializeWrapper": _TABLE, "filterServerList": []}).encode(),
    ),
    "without fields": ({}, b""),
    "odd values": (
        {"topic": "\x00../" * 50, "brokerId": "NaN", "brokerName": "\r\n", "value": "9" * 2_000},
        b"[" * 300,
    ),
    "settings": ({"topic": "T"}, b"deleteTopicWithBrokerRegistration=true\nkvConfigPath=/x\n"),
}  # fmt: skip


def fields_of(name: str, secret: str, fields: dict[str, str], body: bytes) -> dict[str, str]:
    if not name:
        return fields
    named = {**fields, ACCESS_KEY: name}
    return {**named, SIGNATURE: sign_fields(named, body, secret=secret)}


def as_operator(
    exchange: Exchange, code: int, fields: dict[str, str], body: bytes = b""
) -> Command:
    return exchange.ask(code, fields_of("operator", SECRET, fields, body), body)


def filled(kind: str) -> Exchange:
    """A name server that knows a broker with a topic, an item, and its own settings."""
    exchange = world(kind)
    topic = {"topicName": "T", "perm": 6, "readQueueNums": 4, "writeQueueNums": 4}
    version = {"counter": 1, "stateVersion": 0, "timestamp": 5}
    table = {"dataVersion": version, "topicConfigTable": {"T": topic, "U": topic}}
    body = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": table}).encode()
    broker = SHAPES["whole"][0] | {"brokerAddr": "10.0.0.1:10911", "enableActingMaster": "false"}
    assert as_operator(exchange, Request.REGISTER_BROKER, broker, body).code == 0
    item = {"namespace": "n", "key": "k", "value": "mine"}
    assert as_operator(exchange, Request.PUT_KV_CONFIG, item).code == 0
    return exchange


def known(exchange: Exchange) -> list[tuple[int, dict[str, str] | None, bytes]]:
    """All that a name server tells of what it knows."""
    replies = [
        as_operator(exchange, code, fields)
        for code, fields in (
            (Request.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}),
            (Request.GET_BROKER_CLUSTER_INFO, {}),
            (Request.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}),
            (Request.GET_KV_CONFIG, {"namespace": "n", "key": "k"}),
            (Request.GET_NAMESRV_CONFIG, {}),
        )
    ]
    assert {reply.code for reply in replies} == {0}
    return [(reply.code, reply.ext, reply.body) for reply in replies]


@pytest.mark.parametrize("is_binary", [False, True], ids=["json", "binary"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize("kind", ["1.0", "2.0"])
def test_nothing_is_changed_by_who_may_not(
    kind: str, account: str, shape: str, is_binary: bool
) -> None:
    exchange = filled(kind)
    before = known(exchange)
    fields, body = SHAPES[shape]
    ext = fields_of(*ACCOUNTS[account], fields, body)
    for code in CODES:
        for is_one_way in (False, True):
            request = Command(
                code=code, opaque=7, version=479, ext=ext, body=body, is_binary=is_binary,
                flag=2 if is_one_way else 0,
            )  # fmt: skip
            effects = exchange.feed(encode_command(request), peer=2)
            replies = [
                reply
                for effect in effects
                if isinstance(effect, Send)
                for reply in FrameReader().read_commands(b"".join(effect.chunks))
            ]
            assert bool(replies) != is_one_way, code
            if replies and code not in OPEN_REQUESTS:
                assert replies[0].code == NO_PERMISSION, (code, replies[0])
    assert known(exchange) == before
