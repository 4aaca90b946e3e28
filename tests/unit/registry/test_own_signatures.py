"""Signatures of our own at the name server: what was heard there is worth nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.codec.own_signature import NUMBER, SESSION, sign_request
from escrowmq.codec.signature import ACCESS_KEY, SIGNATURE
from tests.harness.exchange import Exchange as BrokerExchange

from .exchange import Exchange, queues
from .test_guard import NO_PERMISSION, SECRET, delete, signed, world

WANTED = 7750
FIRST = '{"username":"first","password":"secret-of-first"}'
INNER = '{"accessKey":"brokers","secretKey":"secret-of-brokers"}'


class Signer:
    """Somebody who signs as our own clients do, on one connection."""

    def __init__(
        self, exchange: Exchange, key: str = "operator", secret: str = SECRET, *, peer: int = 1
    ) -> None:
        self.exchange, self.key, self.secret, self.peer = exchange, key, secret, peer
        reply = exchange.ask(Request.ESCROW_SESSION, {}, peer=peer)
        self.session = (reply.ext or {})[SESSION]
        self.number = 0

    def signed(self, code: int, ext: dict[str, str]) -> dict[str, str]:
        self.number += 1
        fields = {**ext, ACCESS_KEY: self.key, NUMBER: str(self.number)}
        fields[SIGNATURE] = sign_request(
            code, fields, b"", secret=self.secret, session=self.session
        )
        return fields

    def ask(self, code: int, **ext: str) -> Command:
        return self.exchange.ask(code, self.signed(code, ext), peer=self.peer)


def careful(kind: str, wanted: str = "administrators", **more: Any) -> Exchange:
    return world(kind, own_signatures=wanted, first_user=FIRST, inner_user=INNER, **more)


@pytest.mark.parametrize("kind", ["1.0", "2.0"])
def test_an_administrator_signs_so_and_not_otherwise(kind: str) -> None:
    exchange = careful(kind)
    for name, secret in (("operator", SECRET), ("first", "secret-of-first")):
        assert delete(exchange, signed(name, secret, topic="T")) == WANTED
        assert Signer(exchange, name, secret, peer=5).ask(216, topic="T").code == 0
        exchange.lose(5)
        assert Signer(exchange, name, "wrong", peer=6).ask(216, topic="T").code == NO_PERMISSION
        exchange.lose(6)
    assert Signer(exchange, "sender-1", peer=7).ask(216, topic="T").code == NO_PERMISSION
    assert delete(exchange, signed("brokers", "secret-of-brokers", topic="T")) == 0
    assert exchange.ask(105, {"topic": "T"}).code == 17  # routes are everybody's


@pytest.mark.parametrize("wanted", ["all", "brokers", "administrators;brokers"])
def test_brokers_sign_so_where_that_is_wanted(wanted: str) -> None:
    exchange = careful("1.0", wanted)
    assert delete(exchange, signed("brokers", "secret-of-brokers", topic="T")) == WANTED
    assert Signer(exchange, "brokers", "secret-of-brokers").ask(216, topic="T").code == 0


def test_what_was_heard_is_worth_nothing() -> None:
    exchange = careful("1.0")
    operator = Signer(exchange, peer=1)
    heard = operator.signed(216, {"topic": "T"})
    assert exchange.ask(216, heard, peer=1).code == 0
    assert exchange.ask(216, heard, peer=1).code == NO_PERMISSION  # again
    assert exchange.ask(217, operator.signed(216, {"topic": "T"})).code == NO_PERMISSION
    Signer(exchange, peer=2)
    late = operator.signed(216, {"topic": "T"})
    assert exchange.ask(216, late, peer=2).code == NO_PERMISSION  # on another connection
    assert exchange.ask(216, late, peer=3).code == NO_PERMISSION  # on one without a session


def test_a_session_is_chosen_for_each_connection_where_accounts_are_on() -> None:
    exchange = careful("1.0")
    sessions = {Signer(exchange, peer=peer).session for peer in (1, 2, 3, 1)}
    assert len(sessions) == 3
    refused = world().ask(Request.ESCROW_SESSION, {})
    assert refused.code == NO_PERMISSION
    assert "aclEnable" in (refused.remark or "")


def test_our_broker_registers_by_its_own_signature_where_that_is_wanted() -> None:
    settings = BrokerSettings(name_servers="10.0.0.1:9876", inner_user=INNER)
    broker = BrokerExchange(msgspec.structs.replace(settings))
    names = careful("1.0", "all")
    (dial,) = broker.dials
    link = broker.connect(peer=dial.peer)
    (request,) = link.take(Request.REGISTER_BROKER)
    refused = names.ask(103, request.ext, request.body)
    assert refused.code == WANTED
    link.answer(request, refused.code)
    (question,) = link.take(Request.ESCROW_SESSION)
    told = names.ask(Request.ESCROW_SESSION, question.ext)
    link.answer(question, told.code, ext=told.ext)
    (request,) = link.take(Request.REGISTER_BROKER)
    assert names.ask(103, request.ext, request.body).code == 0
    link.answer(request, 0)
    assert broker.core.registration.is_registered
    assert queues(names, "TBW102") == {"broker-a": 8}
    assert names.ask(103, request.ext, request.body).code == NO_PERMISSION
    broker.core.unregister()
    broker._perform()
    (request,) = link.take(Request.UNREGISTER_BROKER)
    assert names.ask(104, request.ext, request.body).code == 0
