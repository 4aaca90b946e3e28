"""Every request that RocketMQ's broker serves: by ours too, or why not."""

from __future__ import annotations

import json
import struct

import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from tests.harness.exchange import Caller, Exchange

SERVED_BY_THE_PEER = (
    *(10, 11, 12, 14, 15, 17, 18, 21, 25, 26, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38),
    *(41, 42, 43, 45, 46, 60, 61),
    *(200, 201, 202, 203, 204, 207, 208, 215, 222, 223, 225),
    *(300, 303, 305, 306, 307, 308, 309, 310, 314, 315, 316, 317, 320, 321, 323, 324, 325, 328),
    *(329, 343, 345, 351, 352, 353, 354, 355, 361, 370, 400, 401, 402, 513),
    *(905, 906, 907, 908, 1007, 1008, 2001, 2002, 2003, 2004, *range(3001, 3011)),
    *(200050, 200051, 200052, 200053, 200054, 200055, 200056, 200151),
)
"""AdminBrokerProcessor.processRequest and BrokerController.registerProcessor of 5.3.3."""

REFUSED = {
    513: "topics whose queues are mapped to several brokers are not kept",
    906: "a slave finds its master by the name server, or haMasterAddress",
}
"""Answered with code 3."""

OURS = range(7700, 7800)
"""Requests of our own (docs/extensions.md)."""


@pytest.fixture(name="caller")
def make_caller() -> Caller:
    return Exchange().connect()


def refused(caller: Caller, code: int) -> bool:
    reply = caller.begin(code).reply
    return reply is not None and reply.code == 3


def test_requests_of_the_peer_are_served_but_for_those_with_a_reason() -> None:
    found = [code for code in SERVED_BY_THE_PEER if refused(Exchange().connect(), code)]
    assert found == list(REFUSED)


def test_nothing_else_is_served(caller: Caller) -> None:
    known = {
        code for name, code in vars(Request).items() if name[0] != "_" and isinstance(code, int)
    }
    others = sorted(known - set(SERVED_BY_THE_PEER) - set(OURS))
    assert others, "requests of name servers and to clients are in the table as well"
    assert [code for code in others if not refused(caller, code)] == []


# -- of other members of the group ---------------------------------------------------------------


def counts(caller: Caller) -> dict[str, int]:
    body = json.loads(caller.ask(Request.GET_TIMER_METRICS).body)
    assert body["dataVersion"]["counter"] >= 0
    return {topic: item["count"] for topic, item in body["timingCount"].items()}


def test_waiting_messages_are_counted_by_topic() -> None:
    exchange = Exchange()
    caller = exchange.connect()
    assert counts(caller) == {}
    for topic, delay_ms in (("T", 5_000), ("T", 60_000), ("U", 5_000)):
        caller.send(topic, TIMER_DELAY_MS=str(delay_ms))
    exchange.advance(1_000)
    assert counts(caller) == {"T": 2, "U": 1}
    exchange.advance(10_000)
    assert counts(caller) == {"T": 1}
    exchange.reopen()
    exchange.advance(1_000)
    caller = exchange.connect()
    assert counts(caller) == {"T": 1}
    exchange.advance(60_000)
    assert counts(caller) == {}
    assert len(caller.bodies("T")) == 2


def test_recalled_message_does_not_wait() -> None:
    exchange = Exchange(BrokerSettings(allows_recall=True))
    caller = exchange.connect()
    reply = caller.send("T", TIMER_DELAY_MS="5000")
    fields = {
        "topic": "T", "recallHandle": (reply.ext or {})["recallHandle"], "producerGroup": "P",
    }  # fmt: skip
    assert caller.ask(Request.RECALL_MESSAGE, fields).code == 0
    exchange.advance(20_000)
    assert counts(caller) == {}
    assert caller.bodies("T") == []


def test_check_point_of_the_timer_is_told_in_the_peers_form() -> None:
    exchange = Exchange()
    caller = exchange.connect()
    caller.send("T", TIMER_DELAY_MS="60000")
    exchange.advance(10_000)
    body = caller.ask(Request.GET_TIMER_CHECK_POINT).body
    read_ms, log_position, offset, master_offset, *version = struct.unpack(">7q", body[:56])
    assert exchange.now_ms - 2_000 < read_ms <= exchange.now_ms
    assert (log_position, offset, master_offset) == (0, 0, 0)
    assert version[1] == exchange.now_ms
    exchange.advance(60_000)
    body = caller.ask(Request.GET_TIMER_CHECK_POINT).body
    assert struct.unpack_from(">7q", body)[2] == 1


def test_broker_without_a_timer_says_so() -> None:
    caller = Exchange(BrokerSettings(has_timer=False)).connect()
    remarks = [caller.ask(code).remark for code in (60, 61)]
    assert remarks == ["The checkpoint is null", "The timer message store is null"]


def test_master_alone_hears_news_for_others(caller: Caller) -> None:
    for code, ext in (
        (905, {"minBrokerId": "1", "brokerName": "broker-a", "minBrokerAddr": "h:1"}),
        (908, {"masterFlushOffset": "77"}),
        (1008, {"masterAddress": "h:1", "masterEpoch": "2"}),
    ):
        assert caller.ask(code, ext).code == 0
    reply = caller.ask(1007)
    assert (reply.code, reply.remark) == (1, "this request only for controllerMode ")


def test_tables_are_exported_already(caller: Caller) -> None:
    reply = caller.ask(355, {"configType": "topics"})
    assert (reply.code, reply.remark) == (0, "export done.")
