"""Accounts that sign as our own clients do."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.command import Command
from escrowmq.codec.own_signature import NUMBER, SESSION, sign_request
from escrowmq.codec.signature import ACCESS_KEY, SIGNATURE
from escrowmq.delivery.topics import TopicConfig
from escrowmq.testing.disk import SimDisk
from tests.harness.exchange import Caller, Exchange

SECRET = "secret-of-all"
FILE = f"""
accounts:
- {{accessKey: operator, secretKey: {SECRET}, formerSecretKey: former-secret, admin: true}}
- {{accessKey: owner-1, secretKey: {SECRET}, topicPerms: [T=PUB|SUB], groupPerms: [CG=SUB]}}
""".encode()
USERS = b"""{"users": [
  {"username": "operator", "password": "secret-of-all", "formerPassword": "former-secret",
   "userType": "Super"},
  {"username": "owner-1", "password": "secret-of-all"}],
 "acls": [{"subject": "User:owner-1", "policies": [{"policyType": "CUSTOM", "entries": [
  {"resource": "Topic:T", "actions": ["Pub", "Sub"], "decision": "Allow"},
  {"resource": "Group:CG", "actions": ["Sub"], "decision": "Allow"}]}]}]}"""
LOOK, DELETE, WANTED = 351, 215, 7750


def world(kind: str = "1.0", wanted: str = "administrators") -> Exchange:
    disk = SimDisk()
    disk.small["plain_acl.yml"] = FILE
    disk.small["config/auth.json"] = USERS
    is_new = kind == "2.0"
    settings = BrokerSettings(
        acl_enabled=not is_new, authenticates=is_new, authorizes=is_new, own_signatures=wanted
    )
    exchange = Exchange(settings, disk=disk)
    config = TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1)
    exchange.core.broker.topics.put(config, exchange.now_ms)
    return exchange


class Signer:
    """An account that signs as our own clients do."""

    def __init__(self, caller: Caller, key: str = "operator", secret: str = SECRET) -> None:
        self.caller, self.key, self.secret = caller, key, secret
        self.session = (caller.ask(7721).ext or {})[SESSION]
        self.number = 0

    def signed(self, code: int, ext: dict[str, str], body: bytes = b"") -> dict[str, str]:
        self.number += 1
        fields = {**ext, ACCESS_KEY: self.key, NUMBER: str(self.number)}
        fields[SIGNATURE] = sign_request(
            code, fields, body, secret=self.secret, session=self.session
        )
        return fields

    def ask(self, code: int, **ext: str) -> Command:
        return self.caller.ask(code, self.signed(code, ext))


def come(exchange: Exchange) -> Caller:
    return exchange.connect(host="10.0.0.1")


@pytest.mark.parametrize("kind", ["1.0", "2.0"])
def test_an_administrator_signs_so_and_not_otherwise(kind: str) -> None:
    exchange = world(kind)
    caller = come(exchange)
    caller.credentials = ("operator", SECRET)
    refused = caller.ask(LOOK, {"topic": "T"})
    assert (refused.code, "must sign as EscrowMQ's" in (refused.remark or "")) == (WANTED, True)
    caller.credentials = ("owner-1", SECRET)
    assert caller.ask(LOOK, {"topic": "T"}).code == 0 or kind == "2.0"
    assert caller.send("T").code == 0
    for secret in (SECRET, "former-secret"):
        assert Signer(come(exchange), secret=secret).ask(LOOK, topic="T").code == 0
    assert Signer(come(exchange), secret="wrong").ask(LOOK, topic="T").code not in (0, WANTED)


@pytest.mark.parametrize(
    ("wanted", "refused"),
    [("administrators", {"operator"}), ("owner-1", {"owner-1"}), ("all", {"operator", "owner-1"}),
     ("administrators; owner-1", {"operator", "owner-1"}), ("", set()), ("nobody", set())],
)  # fmt: skip
def test_it_is_wanted_of_whom_the_setting_names(wanted: str, refused: set[str]) -> None:
    exchange = world(wanted=wanted)
    found = set()
    for key in ("operator", "owner-1"):
        caller = come(exchange)
        caller.credentials = (key, SECRET)
        if caller.send("T").code == WANTED:
            found.add(key)
    assert found == refused
    assert Signer(come(exchange), "owner-1").ask(LOOK, topic="T").code == 0  # always welcome


def test_what_was_heard_is_worth_nothing() -> None:
    exchange = world()
    operator = Signer(come(exchange))
    heard = operator.signed(LOOK, {"topic": "T"})
    caller = operator.caller
    assert caller.ask(LOOK, heard).code == 0
    again = caller.ask(LOOK, heard)
    assert (again.code, "was sent before" in (again.remark or "")) == (16, True)
    assert caller.ask(DELETE, heard).code == 16  # as another request
    late = operator.signed(LOOK, {"topic": "T"})
    assert operator.ask(LOOK, topic="T").code == 0
    assert caller.ask(LOOK, late).code == 16  # after a later one
    stranger = Signer(come(exchange), secret="not the secret")
    for fields in (heard, late, operator.signed(DELETE, {"topic": "T"})):
        assert stranger.caller.ask(DELETE, fields).code == 16  # on another connection
    assert come(exchange).ask(LOOK, heard).code == 16  # on one without a session
    assert exchange.core.broker.topics.get("T") is not None


@pytest.mark.parametrize("number", ["", "-1", "0", "x", "1e3", "٣", "9" * 19, " 1"])
def test_a_number_that_is_none_is_refused(number: str) -> None:
    operator = Signer(come(world()))
    fields = {"topic": "T", ACCESS_KEY: "operator", NUMBER: number}
    fields[SIGNATURE] = sign_request(LOOK, fields, b"", secret=SECRET, session=operator.session)
    assert operator.caller.ask(LOOK, fields).code == 16


def test_rights_are_asked_as_of_everybody() -> None:
    exchange = world(wanted="all")
    owner = Signer(come(exchange), "owner-1")
    assert owner.ask(DELETE, topic="T").code == 1
    assert owner.ask(LOOK, topic="T").code == 0
    assert Signer(come(exchange), "nobody").ask(LOOK, topic="T").code == 16


def test_a_poll_that_was_signed_so_waits_when_the_rules_change() -> None:
    exchange = world(wanted="all")
    owner = Signer(come(exchange), "owner-1")
    fields: dict[str, Any] = {
        "consumerGroup": "CG", "topic": "T", "queueId": "0", "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "60000",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    pending = owner.caller.begin(11, owner.signed(11, fields))
    assert not pending
    exchange.disk.small["plain_acl.yml"] = FILE + b"# looked at again\n"
    exchange.advance(2_000)
    assert not pending
    exchange.disk.small["plain_acl.yml"] = FILE.replace(b"T=PUB|SUB", b"T=PUB")
    exchange.advance(2_000)
    assert pending.now.code == 1


def test_from_a_trusted_address_the_user_of_acl_2_is_proved_alone() -> None:
    disk = SimDisk()
    disk.small["plain_acl.yml"] = b"globalWhiteRemoteAddresses: [10.0.0.1]\n" + FILE.replace(
        b"owner-1, secretKey: " + SECRET.encode(), b"owner-1, secretKey: another-one"
    )
    disk.small["config/auth.json"] = USERS
    settings = BrokerSettings(acl_enabled=True, authenticates=True, authorizes=True)
    exchange = Exchange(settings, disk=disk)
    exchange.core.broker.topics.put(TopicConfig(topic_name="T"), exchange.now_ms)

    def send(host: str, key: str, secret: str = SECRET) -> Command:
        caller = exchange.connect(host=host)
        ext = {"a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "5", "i": ""}
        return caller.ask(310, Signer(caller, key, secret).signed(310, ext, b"body"), b"body")

    for key in ("operator", "owner-1"):
        assert send("10.0.0.1", key).code == 0
        wrong = send("10.0.0.1", key, "no-secret-of-it")
        assert (wrong.code, wrong.remark) == (16, f"the signature of {key} is not right")
    assert send("10.0.0.2", "owner-1").code == 16, "from elsewhere it must satisfy both"
    assert send("10.0.0.2", "operator").code == 0


def test_a_session_opens_nothing_and_stays_what_it_was() -> None:
    exchange = world()
    caller = come(exchange)
    sessions = {(caller.ask(7721).ext or {})[SESSION] for _ in range(3)}
    sessions |= {(come(exchange).ask(7721).ext or {})[SESSION] for _ in range(3)}
    assert len(sessions) == 4
    assert caller.ask(LOOK, {"topic": "T"}).code != 0
    assert Exchange().connect().ask(7721).code == 3  # as a broker of RocketMQ's answers
