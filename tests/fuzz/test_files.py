"""Whatever stands in its small files, a broker opens, or says which of them it cannot read."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator
from typing import Any

import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.nameserver_settings import NameServerSettings
from escrowmq.errors import EscrowMQError
from escrowmq.registry.core import RegistryCore
from escrowmq.testing.disk import SimDisk
from tests.harness.exchange import START_MS, Exchange

from .frames import SEED, TALLY, spoil, tries

SECRET = "a-long-secret"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What is wrong with a file is told once for each; here there are thousands."""
    log = logging.getLogger("escrowmq")
    log.disabled = True
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
    log.disabled = False


def settings() -> BrokerSettings:
    return BrokerSettings(
        acl_enabled=True,
        authenticates=True,
        authorizes=True,
        first_user=f'{{"username":"operator","password":"{SECRET}"}}',
    )


def lived() -> dict[str, bytes]:
    """The small files of a broker that has seen some of everything."""
    disk = SimDisk()
    disk.small["plain_acl.yml"] = (
        f"accounts: [{{accessKey: operator, secretKey: {SECRET}, admin: true}}]".encode()
    )
    exchange = Exchange(settings(), disk=disk)
    operator = exchange.connect(host="127.0.0.1")
    operator.credentials = ("operator", SECRET)
    operator.heartbeat(producer="PG", consumer="CG", topics={"T": "*"})
    operator.send("T", DELAY="3")
    operator.send("T", TIMER_DELAY_SEC="60")
    operator.prepare("T", wants_id=True)
    operator.ask(15, {"consumerGroup": "CG", "topic": "T", "queueId": "0", "commitOffset": "1"})
    operator.ask(25, body=b"transactionTimeOut=5000")
    mode = {"topic": "T", "consumerGroup": "CG", "mode": "POP", "popShareQueueNum": 1}
    operator.ask(401, body=str(mode).replace("'", '"').encode())
    exchange.advance(20_000)
    exchange.core.close(exchange.now_ms)
    return {path: data for path, data in disk.small.items() if data}


FILES = lived()
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 7, 1.5, 10**30, "", "x", "0" * 400, [], [[]], {}, {"": {}}, {"0": "x"},
)  # fmt: skip
WHOLE = (b"", b"{}", b"[]", b"null", b"7", b'"x"', b"{", b"\xff", b"[" * 5_000, bytes(4_096))


def opens(path: str, data: bytes) -> bool:
    """Whether a broker opens with this file among its others; else it says why not."""
    TALLY["files"] += 1
    disk = SimDisk()
    disk.small.update(FILES)
    disk.small[path] = data
    try:
        Exchange(settings(), disk=disk).advance(1)
    except EscrowMQError as error:
        if SECRET in str(error):
            raise AssertionError(f"{path}: the refusal has a secret in it") from error
        return False
    except Exception as error:
        raise AssertionError(f"{path}: {data[:500]!r}") from error
    return True


def bent(value: Any, chance: random.Random) -> Any:
    """The same tree of JSON with one thing in it put in another's place."""
    if chance.random() < 0.2 or not isinstance(value, dict | list) or not value:
        return chance.choice(ODD)
    if isinstance(value, list):
        at = chance.randrange(len(value))
        return [*value[:at], bent(value[at], chance), *value[at + 1 :]]
    name = chance.choice(list(value))
    if chance.random() < 0.1:
        return {**value, chance.choice(("", "x", "-1", "9" * 30)): value[name]}
    return {**value, name: bent(value[name], chance)}


def spoiled(data: bytes, chance: random.Random) -> bytes:
    if chance.random() < 0.6:
        try:
            return json.dumps(bent(json.loads(data), chance)).encode()
        except ValueError:
            pass
    for _ in range(chance.randrange(1, 4)):
        data = spoil(data, chance)
    return data


@pytest.mark.parametrize("path", FILES)
def test_a_broker_opens_or_says_that_a_file_is_something_else(path: str) -> None:
    for data in WHOLE:
        opens(path, data)


def test_a_broker_opens_or_says_what_it_cannot_read() -> None:
    chance = random.Random(SEED)
    assert {"config/topics.json", "config/consumerOffset.json", "config/auth.json"} <= set(FILES)
    outcomes = set()
    for _ in tries(150):
        path = chance.choice(sorted(FILES))
        outcomes.add(opens(path, spoiled(FILES[path], chance)))
    assert outcomes == {True, False}


def test_a_name_server_opens_or_says_what_it_cannot_read() -> None:
    chance = random.Random(SEED)
    good = b'{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"a:4;b:4"}}}'
    for _ in tries(40, share=0.1):
        TALLY["files"] += 1
        disk = SimDisk()
        disk.small["kvConfig.json"] = spoil(good, chance)
        try:
            RegistryCore(NameServerSettings(), disk, started_ms=START_MS)
        except EscrowMQError:
            continue
