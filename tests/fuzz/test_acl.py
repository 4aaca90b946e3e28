"""Whatever strangers write, a guarded broker does nothing; what accounts write does not fell it."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator

import pytest

from escrowmq.acl.acl2_users import PATH
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.codec.command import encode_command
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.signature import sign_fields
from escrowmq.testing.disk import SimDisk
from tests.harness.exchange import Exchange

from .frames import SEED, TALLY, codes, inputs, random_command, tries

SECRET = "secret-of-all"
FILE = f"""
accounts:
- {{accessKey: limited, secretKey: {SECRET}, topicPerms: [mine=PUB|SUB]}}
- {{accessKey: operator, secretKey: {SECRET}, admin: true}}
""".encode()


USERS = {
    "acls": [
        {
            "subject": "User:limited",
            "policies": [
                {
                    "policyType": "Custom",
                    "entries": [
                        {"resource": "Topic:mine", "actions": ["All"], "decision": "Allow"},
                        {"resource": "Group:mine", "actions": ["All"], "decision": "Allow"},
                    ],
                }
            ],
        }
    ],
    "users": [
        {"username": "limited", "password": SECRET},
        {"username": "operator", "password": SECRET, "userType": "Super"},
    ],
}
RULES = {"1.0": "plain_acl.yml", "2.0": PATH}
"""Where each kind of access control keeps its rules."""


@pytest.fixture(name="kind", params=RULES)
def each_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(name="exchange")
def make_exchange(kind: str) -> Exchange:
    disk = SimDisk()
    disk.small["plain_acl.yml"] = FILE
    disk.small[PATH] = json.dumps(USERS).encode()
    is_new = kind == "2.0"
    settings = BrokerSettings(acl_enabled=not is_new, authenticates=is_new, authorizes=is_new)
    exchange = Exchange(settings, disk=disk)
    owner = exchange.connect()
    owner.credentials = ("operator", SECRET)
    owner.send("T")
    owner.prepare("T")
    return exchange


@pytest.fixture(autouse=True)
def crashes(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.ERROR)
    yield
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


def state(exchange: Exchange) -> tuple[object, ...]:
    broker = exchange.core.broker
    return (
        broker.store.end_offset,
        sorted(broker.topics.names()),
        broker.offsets.content_to_save(log_end=0),
        *(exchange.disk.small[path] for path in RULES.values()),
    )


def test_strangers_change_nothing(exchange: Exchange) -> None:
    chance = random.Random(SEED)
    before = state(exchange)
    stranger = exchange.connect(host="10.9.9.9")
    for _, data in zip(tries(1_500, share=0.25), inputs(chance, codes()), strict=False):
        TALLY["guards"] += 1
        exchange.core.receive(stranger.id, data, exchange.now_ms)
        exchange.core.take_effects()
        if chance.random() < 0.1:
            exchange.leave(stranger)
            stranger = exchange.connect(host="10.9.9.9")
    assert state(exchange) == before


def test_an_account_with_one_topic_changes_no_other(exchange: Exchange) -> None:
    chance = random.Random(SEED)
    before = exchange.core.broker.store.bounds("T", 0)
    rules = [exchange.disk.small[path] for path in RULES.values()]
    peer = exchange.connect(host="10.9.9.9")
    for _ in tries(1_500, share=0.25):
        [command] = FrameReader().read_commands(random_command(chance, codes()))
        command.ext = {**(command.ext or {}), "AccessKey": "limited"}
        if chance.random() < 0.3:
            command.ext |= {"topic": "mine", "b": "mine"}
        command.ext["Signature"] = sign_fields(command.ext, command.body, secret=SECRET)
        TALLY["guards"] += 1
        exchange.core.receive(peer.id, encode_command(command), exchange.now_ms)
        exchange.core.take_effects()
    broker = exchange.core.broker
    assert broker.store.bounds("T", 0) == before
    assert len(exchange.core.transactions.engine.halves.pending) == 1
    assert rules == [exchange.disk.small[path] for path in RULES.values()]
