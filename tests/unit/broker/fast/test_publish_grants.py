"""Signed requests of accounts: the fast path lets in whom the door lets in, and nobody else."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from escrowmq.base.codes import Request
from escrowmq.broker.fast import publish_grants
from escrowmq.codec.command import encode_command
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.signature import ACCESS_KEY, SIGNATURE, sign_fields
from escrowmq.errors import DiskFull
from tests.unit.broker.both import PLAIN, TOPICS, Both, begin, end, frame, half, send
from tests.unit.broker.fast.test_fast_path import ODD

ACCOUNTS = b"""
accounts:
  - accessKey: orders-app
    secretKey: secret-of-orders
    topicPerms: [Orders=PUB|SUB, Odd=PUB, RMQ_SYS_TRACE_TOPIC=PUB]
    groupPerms: [readers=SUB]
  - accessKey: bills-app
    secretKey: secret-of-bills
    topicPerms: [Bills=PUB]
  - accessKey: administrator
    secretKey: secret-of-admin
    admin: true
"""
SECRETS = {
    "orders-app": "secret-of-orders",
    "bills-app": "secret-of-bills",
    "administrator": "secret-of-admin",
}


def both(**settings: object) -> Both:
    return Both(files={"plain_acl.yml": ACCOUNTS}, acl_enabled=True, **settings)


def signed(data: bytes, account: str = "orders-app", secret: str = "") -> bytes:
    """The same frames, signed."""
    out = []
    for command in FrameReader().read_commands(data):
        ext = {**(command.ext or {}), ACCESS_KEY: account}
        ext[SIGNATURE] = sign_fields(ext, command.body, secret=secret or SECRETS[account])
        command.ext = ext
        out.append(encode_command(command))
    return b"".join(out)


@pytest.mark.parametrize("is_binary", [True, False])
@pytest.mark.parametrize("account", ["orders-app", "administrator"])
def test_signed_messages_are_served_the_short_way(account: str, *, is_binary: bool) -> None:
    pair = both()
    one = signed(send(is_binary=is_binary), account)
    others = [
        signed(send(opaque=n, body=b"b" * n, g=str(10**12 + n), is_binary=is_binary), account)
        for n in range(20)
    ]
    pair.feed((1, one), (1, one), (1, one * 5), (1, b"".join(others)))
    assert pair.fast.served_count > 20
    pair.end()


@pytest.mark.parametrize("is_binary", [True, False])
def test_who_signs_is_served_the_short_way_where_nobody_has_to(*, is_binary: bool) -> None:
    pair = Both()
    for number in range(6):
        pair.feed((1, signed(send(opaque=number, body=b"%d" % number, is_binary=is_binary))))
    assert pair.fast.served_count >= 4
    pair.end()


@pytest.mark.parametrize("is_binary", [True, False])
@pytest.mark.parametrize("name", [name for name in ODD if name != "no frame"])
def test_odd_message_of_an_account_makes_no_difference(name: str, *, is_binary: bool) -> None:
    pair, plain = both(), signed(send(is_binary=is_binary))
    try:
        found = FrameReader().read_commands(ODD[name])
    except ValueError:
        pytest.skip("no frame that could be signed")
    for command in found:
        command.is_binary = is_binary
    odd = signed(b"".join(map(encode_command, found)))
    pair.feed((1, plain), (1, plain))
    pair.feed((1, plain + odd + plain), (1, odd), (1, odd + odd), (1, plain))
    pair.feed((1, send(is_binary=is_binary) + plain), (1, plain))
    pair.end()


@pytest.mark.parametrize("is_binary", [True, False])
def test_nobody_is_let_in_who_must_stay_out(*, is_binary: bool) -> None:
    pair = both()
    plain = send(is_binary=is_binary)
    mine = signed(plain)
    changed = bytearray(mine)
    changed[-1] ^= 1
    forged = [
        bytes(changed),
        signed(plain, secret="secret-of-bills"),
        signed(plain, "bills-app"),
        signed(send(topic="Bills", is_binary=is_binary)),
        plain,
        mine.replace(b"orders-app", b"orders-apq"),
    ]
    pair.feed((1, mine), (1, mine), (1, mine))
    served = pair.fast.served_count
    for each in forged:
        (reply,) = pair.feed((1, each))
        assert reply.code == 1, reply
    assert pair.fast.served_count == served
    for each in forged:
        pair.feed((1, mine + each + mine), (1, each))
    pair.end()


def test_batches_and_halves_of_accounts_make_no_difference() -> None:
    pair = both()
    entry = (20 + 4 + 2).to_bytes(4, "big") + bytes(12) + (4).to_bytes(4, "big") + b"body"
    entry += len(b"UNIQ_KEY\x01a").to_bytes(2, "big") + b"UNIQ_KEY\x01a"
    entry = len(entry).to_bytes(4, "big") + entry[4:]
    batch = send(body=entry * 3, m="true", code=Request.SEND_BATCH_MESSAGE)
    for data in (send(), send(), batch, batch, batch, half(1), half(2), send()):
        pair.feed((1, signed(data)))
    assert pair.fast.served_count == 5  # all but the first, which makes the queue, and halves
    pair.end()


def test_epochs_and_other_marks_are_judged_at_the_door() -> None:
    pair = both()
    odd = send({**PLAIN, "escrowEpoch": "query/1", "PGROUP": "load"})
    plain = signed(send())
    pair.feed((1, plain), (1, plain), (1, signed(odd)), (1, plain + signed(odd) + plain))
    pair.end()


def test_account_at_its_bound_is_refused_alike() -> None:
    pair = both(account_requests_per_s=10, account_bytes_per_s=500)
    plain = signed(send())
    for _ in range(30):
        pair.feed((1, plain), (1, plain * 3), (2, plain))
        pair.pass_time(100)
    assert pair.fast.served_count > 5
    pair.end()


@pytest.mark.parametrize("is_of_ours", [True, False])
def test_requests_that_could_not_be_written_together_count_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, is_of_ours: bool
) -> None:
    pair = both(account_requests_per_s=20)
    plain = signed(send())
    pair.feed((1, plain), (1, plain))
    log = pair.fast.core.broker.store.log
    append, refused = log.append, 0

    def refuse_once(data: bytes, stored_ms: int, **more: Any) -> None:
        nonlocal refused
        if not refused:
            refused += 1
            raise DiskFull("no room for so much")
        append(data, stored_ms, **more)

    def fail(*_: Any) -> None:
        nonlocal refused
        refused += 1
        raise ValueError("a fault of ours")

    if is_of_ours:
        monkeypatch.setattr(pair.fast.core.remoting.fast_path, "_put_sends", fail)
    else:
        monkeypatch.setattr(log, "append", refuse_once)
    served = pair.fast.served_count
    assert [reply.code for reply in pair.feed((1, plain * 9))] == [0] * 9
    monkeypatch.undo()
    caplog.clear()
    assert (refused, pair.fast.served_count) == (1, served)
    pair.pass_time(1)
    assert {reply.code for reply in pair.feed((1, plain * 9))} == {0}
    assert pair.fast.served_count > served
    assert 0 not in {reply.code for reply in pair.feed((1, plain * 9))[1:]}
    pair.end()


@pytest.mark.parametrize("account", ["orders-app", "bills-app"])
def test_certificate_decides_whose_requests_these_are(account: str) -> None:
    pair = both()
    for side in pair.sides:
        side.core.set_certificate_account(1, account)
    plain = signed(send())
    pair.feed((1, plain), (1, plain), (1, plain * 3), (1, send()), (1, signed(send(), "bills-app")))
    assert pair.fast.served_count == 0
    pair.end()


def test_signature_without_an_account_is_judged_at_the_door() -> None:
    pair = both()
    nameless = send(Signature="c2lnbmVk")
    for data in (signed(send()), signed(send()), nameless, nameless * 2, signed(send()) + nameless):
        pair.feed((1, data))
    pair.end()


def test_decisions_of_a_connection_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish_grants, "_KNOWN_MAX", 1)
    pair = both()
    for topic in (*TOPICS, *TOPICS):
        pair.feed((1, signed(send(topic=topic)) * 2))
        dialogue: Any = pair.fast.core.broker.peers.by_id[1].dialogue
        assert len(dialogue._known.grants.by_request) <= 1
    pair.end()


def test_requests_that_are_let_in_but_not_plain_count_once() -> None:
    pair = both(account_requests_per_s=30)
    plain, later = signed(send()), signed(send({**PLAIN, "DELAY": "1"}))
    for _ in range(12):
        pair.feed((1, plain * 2 + later + plain), (1, later))
        pair.pass_time(100)
    assert pair.fast.served_count > 10
    pair.end()


def test_what_is_taken_from_an_account_is_taken_at_once() -> None:
    pair = both()
    plain = signed(send())
    pair.feed((1, plain), (1, plain), (1, plain))
    for side in pair.sides:
        data = ACCOUNTS.replace(b"Orders=PUB|SUB", b"Orders=SUB")
        side.disk.replace("plain_acl.yml", data)
    for _ in range(4):
        pair.pass_time(5_000)
    (reply,) = pair.feed((1, plain))
    assert reply.code == 1
    pair.end()


@pytest.mark.parametrize("seed", range(6))
def test_mixtures_of_accounts_make_no_difference(seed: int) -> None:
    chance = random.Random(seed)
    pair = both(account_requests_per_s=400 if seed % 2 else 0)
    for _ in range(60):
        frames = []
        for _ in range(chance.randrange(1, 8)):
            data = send(
                PLAIN | {"n": str(chance.randrange(100))}, b"x" * chance.randrange(1, 60),
                topic=chance.choice(TOPICS), opaque=chance.randrange(1 << 20),
                flag=chance.choice([0, 0, 2]), e=str(chance.randrange(3)),
                is_binary=chance.random() < 0.7,
            )  # fmt: skip
            account = chance.choice([*SECRETS, ""])
            wrong = "wrong-secret" if chance.random() < 0.1 else ""
            frames.append(signed(data, account, wrong) if account else data)
        pair.feed((chance.choice([1, 2]), b"".join(frames)))
        pair.pass_time(chance.choice([0, 1, 50]))
    assert pair.fast.served_count > 10
    pair.end()


USERS: dict[str, Any] = {
    "authenticates": True,
    "authorizes": True,
    "first_user": json.dumps({"username": "operator", "password": "secret-of-operator"}),
}


def grown(pair: Both) -> None:
    """The operator makes a user who may publish to Orders."""
    secret = "secret-of-operator"
    policy = {"resource": "Topic:Orders", "actions": ["Pub"], "decision": "Allow"}
    policies = {"policies": [{"policyType": "Custom", "entries": [policy]}]}
    for code, name, given in (
        (3001, {"username": "orders-app"}, {"password": SECRETS["orders-app"]}),
        (3006, {"subject": "User:orders-app"}, policies),
    ):
        data = frame(code, name, json.dumps(given).encode())
        (reply,) = pair.feed((2, signed(data, "operator", secret)))
        assert reply.code == 0, reply


def test_users_with_policies_are_served_the_short_way_while_they_have_them() -> None:
    pair = Both(**USERS)
    grown(pair)
    plain, others = signed(send()), signed(send(topic="Bills"))
    pair.feed((1, plain), (1, plain), (1, plain * 4), (1, others), (1, plain + others + plain))
    served = pair.fast.served_count
    assert served >= 5
    gone = frame(3003, {"username": "orders-app"})
    (reply,) = pair.feed((2, signed(gone, "operator", "secret-of-operator")))
    assert reply.code == 0, reply
    (reply,) = pair.feed((1, plain))
    assert reply.code != 0
    assert pair.fast.served_count == served
    pair.end()


def test_where_both_kinds_of_rules_are_on_both_have_to_let_in() -> None:
    accounts = ACCOUNTS.replace(b"administrator", b"operator")
    accounts = accounts.replace(b"secret-of-admin", b"secret-of-operator")
    pair = Both(files={"plain_acl.yml": accounts}, acl_enabled=True, **USERS)
    plain = signed(send())
    (reply,) = pair.feed((1, plain))
    assert reply.code != 0  # no such user
    grown(pair)
    pair.feed((1, plain), (1, plain), (1, plain * 3), (1, signed(send(topic="Odd"))))
    assert pair.fast.served_count >= 3
    pair.end()


@pytest.mark.parametrize("is_binary", [True, False])
def test_a_half_of_before_there_were_accounts_is_not_ended_by_who_has_no_right_to_it(
    *, is_binary: bool
) -> None:
    pair = Both()
    pair.feed((1, send()), (1, half(0)))
    halves = begin(pair, *[half(number) for number in range(1, 5)])
    pair.restart({"plain_acl.yml": ACCOUNTS}, acl_enabled=True)
    for _ in range(2):
        pair.feed((1, signed(send(topic="Bills", is_binary=is_binary), "bills-app")))
    ends = [end(one, flag=0, is_binary=is_binary) for one in halves]
    by_others = [signed(one, "bills-app") for one in ends]
    for some in ends, by_others:
        replies = pair.feed((1, some[0] + some[1])) + pair.feed((1, some[2] + some[3] + some[0]))
        assert [reply.code for reply in replies] == [1] * 5
    replies = pair.feed((1, b"".join(signed(one, "administrator") for one in ends)))
    assert [reply.code for reply in replies] == [0] * 4
    pair.end()
