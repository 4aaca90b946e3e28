"""Who may change what a name server knows."""

from __future__ import annotations

import json
import logging
import random
from typing import Any

import msgspec
import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.fixed_limits import HEADER_SIZE_MAX
from escrowmq.base.nameserver_settings import NameServerGuardSettings
from escrowmq.codec.command import encode_request
from escrowmq.codec.signature import ACCESS_KEY, SIGNATURE, sign_fields
from escrowmq.errors import UsageError
from escrowmq.registry.core import HANDLERS
from escrowmq.registry.guard import OPEN_REQUESTS, RegistryGuard, TrustedAddresses
from escrowmq.testing.disk import SimDisk
from tests.harness.exchange import Exchange as BrokerExchange

from .exchange import Exchange, queues, register

SECRET = "secret-of-all"
FILE = f"""
accounts:
- {{accessKey: operator, secretKey: {SECRET}, admin: true}}
- {{accessKey: sender-1, secretKey: {SECRET}, defaultTopicPerm: PUB|SUB}}
""".encode()
USERS = json.dumps(
    {
        "users": [
            {"username": name, "password": SECRET, "userType": kind, "userStatus": status}
            for name, kind, status in (
                ("operator", "Super", "enable"),
                ("sender-1", "Normal", "enable"),
                ("retired", "Super", "disable"),
            )
        ]
    }
).encode()
STRANGER = "203.0.113.9"
NO_PERMISSION = 16


def world(kind: str = "", *, host: str = STRANGER, **more: Any) -> Exchange:
    disk = SimDisk()
    disk.small["plain_acl.yml"] = FILE
    disk.small["config/auth.json"] = USERS
    settings = NameServerGuardSettings(
        acl_enabled=kind == "1.0", authenticates=kind == "2.0", **more
    )
    guard = RegistryGuard(
        settings,
        accounts=disk,
        users=disk,
        own=("own-broker", "own-secret"),
        chance=random.Random(1),
    )
    return Exchange(disk=disk, guard=guard, host=host)


def signed(name: str, secret: str = SECRET, **ext: str) -> dict[str, str]:
    fields = {**ext, ACCESS_KEY: name}
    return {**fields, SIGNATURE: sign_fields(fields, b"", secret=secret)}


def delete(exchange: Exchange, fields: dict[str, str] | None = None) -> int:
    return exchange.ask(216, fields or {"topic": "T"}).code


def test_every_request_that_changes_something_is_guarded_and_a_new_one_too() -> None:
    assert set(HANDLERS) - OPEN_REQUESTS == {
        Request.PUT_KV_CONFIG, Request.DELETE_KV_CONFIG, Request.REGISTER_BROKER,
        Request.UNREGISTER_BROKER, Request.BROKER_HEARTBEAT, Request.QUERY_DATA_VERSION,
        Request.WIPE_WRITE_PERM_OF_BROKER, Request.ADD_WRITE_PERM_OF_BROKER,
        Request.DELETE_TOPIC_IN_NAMESRV, Request.REGISTER_TOPIC_IN_NAMESRV,
        Request.UPDATE_NAMESRV_CONFIG, Request.GET_NAMESRV_CONFIG,
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["1.0", "2.0", ""])
@pytest.mark.parametrize("code", sorted(set(HANDLERS) - OPEN_REQUESTS))
def test_a_stranger_changes_nothing_and_is_told_why(kind: str, code: int) -> None:
    exchange = world(kind)
    reply = exchange.ask(code, {"topic": "T", "namespace": "n", "key": "k", "value": "v"})
    assert reply.code == NO_PERMISSION
    assert "change this name server" in (reply.remark or "")


@pytest.mark.parametrize("as_peer", [False, True])
@pytest.mark.parametrize("kind", ["1.0", "2.0"])
def test_every_request_passes_for_administrators_and_what_changes_nothing_for_all(
    kind: str, as_peer: bool
) -> None:
    exchange = world(kind, acl_as_rocketmq=as_peer)
    fields = {"topic": "T", "namespace": "n", "key": "k", "value": "v"}
    codes = set(HANDLERS) | {-1, 0, 10, 34, 9_999}
    everybody = codes if as_peer else OPEN_REQUESTS
    for who, may in (
        (fields, everybody),
        (signed("operator", **fields), codes),
        (signed("operator", "another-secret", **fields), everybody),
        (signed("sender-1", **fields), everybody),
        (signed("nobody-1", **fields), everybody),
    ):
        passed = {
            code
            for code in codes
            if "change this name server" not in (exchange.ask(code, who).remark or "")
        }
        assert passed == may, who.get(ACCESS_KEY)


@pytest.mark.parametrize("kind", ["1.0", "2.0", ""])
def test_routes_are_everybody_s(kind: str) -> None:
    exchange = world(kind)
    assert exchange.ask(106).code == 0
    assert exchange.ask(105, {"topic": "T"}).code == 17


@pytest.mark.parametrize("kind", ["1.0", "2.0"])
def test_accounts_on_shut_out_loopback_too_and_let_administrators_in(kind: str) -> None:
    exchange = world(kind, host="127.0.0.1")
    assert register(exchange, {"T": 4, "U": 4}).code == NO_PERMISSION
    assert delete(exchange, signed("operator", topic="T")) == 0
    for fields in (
        signed("sender-1", topic="T"),
        signed("operator", "another-secret", topic="T"),
        signed("retired", topic="T"),
        signed("nobody-1", topic="T"),
        {**signed("operator", topic="T"), "topic": "U"},
    ):
        assert delete(exchange, fields) == NO_PERMISSION


@pytest.mark.parametrize("kind", ["1.0", "2.0"])
def test_what_the_settings_name_lets_brokers_in(kind: str) -> None:
    inner = '{"accessKey":"brokers","secretKey":"secret-of-brokers"}'
    exchange = world(kind, inner_user=inner)
    assert delete(exchange, signed("brokers", "secret-of-brokers", topic="T")) == 0
    assert delete(exchange, signed("brokers", "secret-of-others", topic="T")) == NO_PERMISSION
    assert delete(exchange, signed("own-broker", "own-secret", topic="T")) == 0


@pytest.mark.parametrize("kind", ["1.0", "2.0"])
def test_a_certificate_that_stands_for_an_administrator_needs_no_signature(kind: str) -> None:
    inner = '{"accessKey":"brokers","secretKey":"secret-of-brokers"}'
    fields = {"topic": "T"}
    for identity, sent, is_in in (
        ("operator", fields, True),
        ("brokers", fields, True),  # whom the settings name
        ("sender-1", fields, False),
        ("retired", fields, False),
        ("nobody-1", fields, False),
        ("operator", fields | {ACCESS_KEY: "operator"}, True),
        ("sender-1", fields | {ACCESS_KEY: "operator"}, False),  # another's name
        ("operator", fields | {ACCESS_KEY: "operator", SIGNATURE: "wrong"}, False),
        ("sender-1", signed("operator", topic="T"), True),  # a gateway passes it on
    ):
        exchange = world(kind, inner_user=inner)
        exchange.ask(106)
        exchange.core.set_certificate_account(1, identity)
        code = exchange.ask(216, dict(sent)).code
        assert (code == 0) is is_in, (identity, sent)


def test_without_accounts_a_certificate_opens_nothing() -> None:
    exchange = world()
    exchange.ask(106)
    exchange.core.set_certificate_account(1, "operator")
    assert delete(exchange) == NO_PERMISSION


def test_the_next_peer_of_a_number_has_no_certificate_of_the_last() -> None:
    exchange = world("1.0")
    exchange.ask(106)
    exchange.core.set_certificate_account(1, "operator")
    assert delete(exchange) == 0
    exchange.core.disconnected(1, 0)
    exchange.core.connected(1, STRANGER, 1, 0)
    assert delete(exchange) == NO_PERMISSION


def test_mistaken_credentials_are_told_without_the_secret() -> None:
    with pytest.raises(UsageError, match="innerClient") as caught:
        world("1.0", inner_user='{"accessKey":"brokers","secretkey":"secret-of-brokers"}')
    assert "secret-of" not in str(caught.value)


def test_accounts_that_change_count_after_a_while() -> None:
    for kind, path, data in (
        ("1.0", "plain_acl.yml", FILE.replace(b"operator", b"operator-2")),
        ("2.0", "config/auth.json", USERS.replace(b"operator", b"operator-2")),
    ):
        exchange = world(kind)
        exchange.disk.replace(path, data)
        for now_ms in (1_000, 2_000, 3_000):
            exchange.core.wake(now_ms)
        assert delete(exchange, signed("operator-2", topic="T")) == 0, kind
        assert delete(exchange, signed("operator", topic="T")) == NO_PERMISSION, kind


def test_bad_users_leave_the_last_good_ones() -> None:
    exchange = world("2.0")
    exchange.disk.replace("config/auth.json", b"{")
    exchange.core.wake(1_000)
    assert delete(exchange, signed("operator", topic="T")) == 0


@pytest.mark.parametrize(
    ("host", "is_in"),
    [
        ("127.0.0.1", True), ("::1", True), ("10.255.0.1", True), ("172.16.0.1", True),
        ("172.31.255.1", True), ("192.168.7.7", True), ("::ffff:192.168.7.7", True),
        ("fd00::1", True), ("fe80::1", True), ("169.254.1.1", True), ("172.32.0.1", False),
        ("11.0.0.1", False), ("2001:db8::1", False), (STRANGER, False), ("nowhere", False),
    ],
)  # fmt: skip
def test_without_accounts_changes_come_from_private_addresses(host: str, is_in: bool) -> None:
    exchange = world(host=host)
    assert register(exchange, {"T": 4, "U": 4}).code == (0 if is_in else NO_PERMISSION)
    assert queues(exchange, "T") == ({"broker-a": 4} if is_in else {})


def test_a_list_counts_instead_with_accounts_and_without() -> None:
    listed = "loopback; 203.0.113.7,203.0.113.9"
    for kind in ("", "1.0", "2.0"):
        for host, code in ((STRANGER, 0), ("127.0.0.1", 0), ("10.0.0.1", NO_PERMISSION)):
            exchange = world(kind, changes_from=listed, host=host)
            assert register(exchange, {"T": 4, "U": 4}).code == code, host


def test_a_list_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(UsageError, match=r"escrowNameServerChangesFrom.*auto, private, loopback"):
        TrustedAddresses("privat", is_by_accounts=False)
    with pytest.raises(UsageError, match="256 are allowed"):
        TrustedAddresses(";".join(["10.0.0.1"] * 257), is_by_accounts=False)


def test_parity_leaves_it_open_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        exchange = world("1.0", acl_as_rocketmq=True)
        assert delete(exchange) == 0
        assert delete(exchange) == 0
    assert sum("as with RocketMQ" in text for text in caplog.messages) == 1


def test_refusals_and_bad_requests_are_counted_and_a_line_a_minute_is_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    exchange = world(host="127.0.0.1")
    stranger = world()
    with caplog.at_level(logging.INFO):
        for _ in range(500):
            assert exchange.ask(103, {"brokerName": "a\n" * 2_000}).code == 1
            assert exchange.ask(318, None, b"a\\u00zz\n").code == 1
            delete(stranger)
    assert len(caplog.messages) <= 3
    assert not any("\n" in text for text in caplog.messages)
    assert max(map(len, caplog.messages)) < 1_000
    caplog.clear()
    for each in (exchange, stranger):
        each.core.wake(61_000)
    assert "499 more of refused request 216" in caplog.messages


def test_who_may_only_ask_sends_small_frames() -> None:
    exchange = Exchange(guard=RegistryGuard(NameServerGuardSettings()), host=STRANGER)
    frame = encode_request(105, 1, ext={"topic": "T"}, body=bytes(HEADER_SIZE_MAX + 65_536))
    exchange.feed(frame)
    assert 1 not in exchange.core._readers


# -- our own broker ------------------------------------------------------------------------------


def test_the_broker_of_the_process_changes_it_from_a_public_address_too() -> None:
    own = signed("own-broker", "own-secret", topic="T")
    assert delete(world(), own) == 0
    inner = '{"accessKey":"brokers","secretKey":"secret-of-brokers"}'
    for forged in (
        signed("own-broker", SECRET, topic="T"),
        own | {"topic": "U"},
        signed("operator", topic="T"),
        signed("brokers", "secret-of-brokers", topic="T"),  # no accounts are in force
    ):
        assert delete(world(inner_user=inner), forged) == NO_PERMISSION


def test_the_registration_of_the_broker_of_the_process_may_be_large() -> None:
    exchange = world()
    body = json.dumps({"topicConfigSerializeWrapper": {}, "filler": "x" * 9_000_000}).encode()
    fields = {ACCESS_KEY: "own-broker"}
    fields[SIGNATURE] = sign_fields(fields, body, secret="own-secret")
    assert exchange.ask(Request.REGISTER_BROKER, fields, body).code != NO_PERMISSION


def test_a_broker_signs_its_registration_and_its_farewell() -> None:
    inner = '{"accessKey":"brokers","secretKey":"secret-of-brokers"}'
    settings = BrokerSettings(name_servers="10.0.0.1:9876", inner_user=inner)
    broker = BrokerExchange(msgspec.structs.replace(settings))
    names = world("1.0", inner_user=inner)
    (dial,) = broker.dials
    link = broker.connect(peer=dial.peer)
    (request,) = link.take(Request.REGISTER_BROKER)
    assert names.ask(103, request.ext, request.body).code == 0
    assert queues(names, "TBW102") == {"broker-a": 8}
    broker.core.unregister()
    broker._perform()
    (request,) = link.take(Request.UNREGISTER_BROKER)
    assert names.ask(104, request.ext, request.body).code == 0
    assert queues(names, "TBW102") == {}
