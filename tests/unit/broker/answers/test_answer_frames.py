"""Answers that do not fit into a frame."""

from __future__ import annotations

import json

import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request, Response
from escrowmq.codec import command, large_answers
from tests.harness.exchange import Exchange

GROUPS = 40


@pytest.fixture(name="exchange")
def make_exchange(monkeypatch: pytest.MonkeyPatch) -> Exchange:
    exchange = Exchange(BrokerSettings())
    for number in range(GROUPS):
        exchange.core.broker.groups.get_or_create(f"group-{number}", exchange.now_ms)
    monkeypatch.setattr(command, "FRAME_SIZE_MAX", 4096)
    return exchange


def test_answer_is_refused_if_its_sender_cannot_read_a_compressed_one(exchange: Exchange) -> None:
    """The connection was cut: a slave asked again and again, and said nothing."""
    caller = exchange.connect()
    answer = caller.ask(Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert answer.code == Response.SYSTEM_ERROR
    assert "the answer is too large: frame of" in (answer.remark or "")
    assert caller.ask(Request.GET_ALL_DELAY_OFFSET).code == Response.SUCCESS


def test_answer_is_compressed_for_a_sender_that_accepts_it(exchange: Exchange) -> None:
    answer = exchange.connect().ask(
        Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, large_answers.ACCEPTS_ZLIB
    )
    assert answer.code == Response.SUCCESS
    table = json.loads(large_answers.decompressed_body(answer))["subscriptionGroupTable"]
    assert {f"group-{number}" for number in range(GROUPS)} <= table.keys()


def test_answer_that_fits_is_not_compressed(exchange: Exchange) -> None:
    answer = exchange.connect().ask(Request.GET_ALL_DELAY_OFFSET, large_answers.ACCEPTS_ZLIB)
    assert answer.code == Response.SUCCESS
    assert large_answers.decompressed_body(answer) is answer.body
