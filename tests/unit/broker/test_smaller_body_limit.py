"""After maxMessageSize was lowered: what was accepted before is still delivered, or ended."""

from __future__ import annotations

import pytest

from escrowmq.base.codes import Request
from escrowmq.base.message import Topic
from tests.harness.exchange import COMMIT, Caller, Exchange

LARGE = b"x" * 50_000


def pop(exchange: Exchange, caller: Caller) -> bytes:
    fields = {
        "consumerGroup": "G",
        "topic": "T",
        "queueId": "-1",
        "maxMsgNums": "32",
        "invisibleTime": "5000",
        "pollTime": "0",
        "bornTime": str(exchange.now_ms),
        "initMode": "0",
        "expType": "TAG",
        "exp": "*",
        "order": "false",
    }
    return caller.ask(Request.POP_MESSAGE, fields).body


def lower(exchange: Exchange) -> Caller:
    exchange.store_settings.body_size_max = 10_000
    exchange.reopen()
    caller = exchange.connect()
    assert caller.send("T", LARGE).code == 13
    return caller


@pytest.fixture
def exchange() -> Exchange:
    made = Exchange()
    made.create_topic("T", queues=1)
    return made


@pytest.mark.parametrize("delay", [{"DELAY": "1"}, {"TIMER_DELAY_MS": "3000"}])
def test_delayed_messages_are_delivered(exchange: Exchange, delay: dict[str, str]) -> None:
    assert exchange.connect().send("T", LARGE, **delay).code == 0
    caller = lower(exchange)
    exchange.advance(10_000)
    assert caller.bodies("T") == [LARGE]


def test_popped_messages_are_redelivered(exchange: Exchange) -> None:
    caller = exchange.connect()
    caller.send("T", LARGE)
    assert LARGE in pop(exchange, caller)
    caller = lower(exchange)
    exchange.advance(20_000)
    assert LARGE in pop(exchange, caller)


def test_halves_are_committed_and_given_up_and_carried_forward(exchange: Exchange) -> None:
    caller = exchange.connect()
    committed = caller.prepare("T", LARGE)
    caller.prepare("T", LARGE)
    caller = lower(exchange)
    assert caller.send("T", LARGE, TRAN_MSG="true", PGROUP="PG").code == 13
    assert caller.end(committed, COMMIT).code == 0
    assert caller.bodies("T") == [LARGE]
    exchange.core.transactions.carrier.carry(1 << 40, exchange.now_ms)
    assert exchange.core.transactions.carrier.carried_count == 1
    exchange.settings.transaction_checks_max = 1
    caller.heartbeat(producer="PG")
    exchange.advance(120_000)
    assert exchange.core.broker.store.bounds(Topic.CHECK_MAX_TIME, 0) == (0, 1)


def test_messages_are_sent_back(exchange: Exchange) -> None:
    caller = exchange.connect()
    caller.send("T", LARGE)
    caller = lower(exchange)
    caller.heartbeat(consumer="G")
    fields = {"offset": "0", "group": "G", "delayLevel": "1", "originTopic": "T"}
    assert caller.ask(Request.CONSUMER_SEND_MSG_BACK, fields).code == 0
    exchange.advance(3_000)
    assert exchange.core.broker.store.bounds("%RETRY%G", 0) == (0, 1)


def test_a_half_leaves_space_for_the_properties_of_its_copies(exchange: Exchange) -> None:
    caller = exchange.connect()
    assert caller.send("T", b"x", TRAN_MSG="true", PGROUP="PG", LONG="p" * 32_500).code == 13
    caller.prepare("T", b"x", LONG="p" * 32_200)
    exchange.core.transactions.carrier.carry(1 << 40, exchange.now_ms)
    assert exchange.core.transactions.carrier.carried_count == 1
