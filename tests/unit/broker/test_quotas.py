"""One account at its bound leaves the others untouched, and a stranger leaves all."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.settings import BrokerSettings
from escrowmq.testing.exchange import COMMIT, Caller, Exchange
from escrowmq.testing.sim.disk import SimDisk

SECRET = "secret-of-all"
FILE = f"""
accounts:
- {{accessKey: operator, secretKey: {SECRET}, admin: true}}
- {{accessKey: greedy-1, secretKey: {SECRET}, topicPerms: [T=PUB|SUB], groupPerms: [CG=SUB]}}
- {{accessKey: modest-1, secretKey: {SECRET}, topicPerms: [T=PUB|SUB], groupPerms: [CG=SUB]}}
""".encode()
BUSY, FLOW_CONTROL = 2, 215
HOLD_MS = 60_000


def world(**settings: Any) -> Exchange:
    disk = SimDisk()
    disk.small["plain_acl.yml"] = FILE
    exchange = Exchange(BrokerSettings(acl_enabled=True, **settings), disk=disk)
    fields = {
        "topic": "T", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1",
        "perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false",
    }  # fmt: skip
    assert come(exchange, "operator").ask(17, fields).code == 0
    exchange.advance(2_000)
    return exchange


def come(exchange: Exchange, key: str, host: str = "10.0.0.1") -> Caller:
    caller = exchange.connect(host=host)
    caller.credentials = (key, SECRET)
    return caller


def half(caller: Caller) -> Command:
    return caller.send("T", group="PG", TRAN_MSG="true", PGROUP="PG")


def test_requests_of_an_account_have_a_rate_over_all_its_addresses() -> None:
    exchange = world(account_requests_per_s=5)
    callers = [come(exchange, "greedy-1", f"10.0.0.{number}") for number in range(10)]
    replies = [caller.send("T") for caller in callers]
    assert [reply.code for reply in replies] == [0] * 5 + [BUSY] * 5
    assert "account greedy-1 asks for more than escrowAccountRequestsPerSecond=5" in (
        replies[-1].remark or ""
    )
    assert come(exchange, "modest-1").send("T").code == 0


def test_stored_bytes_of_an_account_have_a_rate() -> None:
    exchange = world(account_bytes_per_s=1_000)
    greedy = come(exchange, "greedy-1")
    assert [greedy.send("T", bytes(2_000)).code for _ in range(2)] == [0, BUSY]
    assert come(exchange, "modest-1").send("T", bytes(900)).code == 0
    exchange.advance(2_100)
    assert greedy.send("T", bytes(2_000)).code == 0


def test_traces_and_replies_have_a_rate_of_their_own() -> None:
    exchange = world(account_free_bytes_per_s=1_000, has_trace_topic=True)
    greedy = come(exchange, "greedy-1")
    trace = exchange.settings.trace_topic
    assert [greedy.send(trace, bytes(2_000)).code for _ in range(2)] == [0, BUSY]
    reply = {"b": "DefaultCluster_REPLY_TOPIC", "i": "REPLY_TO_CLIENT\x01nobody\x02"}
    operator = come(exchange, "operator")
    codes = [
        operator.ask(Request.SEND_REPLY_MESSAGE_V2, reply, bytes(2_000)).code for _ in range(2)
    ]
    assert codes[0] != BUSY
    assert codes[1] == BUSY
    assert greedy.send("T", bytes(2_000)).code == 0
    assert come(exchange, "modest-1").send(trace, bytes(9)).code == 0


def test_an_account_has_a_share_of_pending_halves_and_gets_it_back() -> None:
    exchange = world(pending_max=20)
    greedy, modest = come(exchange, "greedy-1"), come(exchange, "modest-1")
    halves = [greedy.prepare("T") for _ in range(5)]
    refused = half(greedy)
    assert refused.code == BUSY
    assert "end some transactions first" in (refused.remark or "")
    assert greedy.send("T").code == 0
    assert [half(modest).code for _ in range(5)] == [0] * 5
    greedy.end(halves[0], COMMIT)
    assert [half(greedy).code for _ in range(2)] == [0, BUSY]
    accounts = exchange.core._ends.engine.pending.sources.accounts
    assert accounts == {"greedy-1": 5, "modest-1": 5}


@pytest.mark.parametrize("is_pop", [True, False])
def test_long_polls_of_an_account_are_bounded_over_all_its_connections(is_pop: bool) -> None:
    exchange = world(account_polls_max=4)
    fields = {
        "consumerGroup": "CG", "topic": "T", "queueId": "-1", "maxMsgNums": "32",
        "invisibleTime": "10000", "pollTime": str(HOLD_MS), "bornTime": str(exchange.now_ms),
        "initMode": "0", "order": "false",
    }  # fmt: skip
    callers = [come(exchange, "greedy-1") for _ in range(5)]
    polls = [
        caller.begin(Request.POP_MESSAGE, fields)
        if is_pop
        else caller.begin_pull("T", hold_ms=HOLD_MS)
        for caller in callers
    ]
    assert list(map(bool, polls)) == [False] * 4 + [True]
    assert polls[-1].now.code == FLOW_CONTROL
    assert not come(exchange, "modest-1").begin_pull("T", hold_ms=HOLD_MS)
    exchange.leave(callers[0])
    assert not callers[-1].begin_pull("T", hold_ms=HOLD_MS)
    for caller in list(exchange.callers.values()):
        exchange.leave(caller)
    assert not exchange.core.broker.polls_counts


def test_connections_of_an_account_are_bounded_and_given_back() -> None:
    exchange = world(account_connections_max=2)
    first, second, third = (come(exchange, "greedy-1") for _ in range(3))
    assert [caller.send("T").code for caller in (first, second, third)] == [0, 0, BUSY]
    assert come(exchange, "modest-1").send("T").code == 0
    exchange.leave(first)
    assert third.send("T").code == 0


def test_a_connection_is_counted_for_who_was_proved_on_it_last() -> None:
    exchange = world(account_connections_max=1)
    shared = come(exchange, "greedy-1")
    assert shared.send("T").code == 0
    shared.credentials = ("modest-1", SECRET)
    assert shared.send("T").code == 0
    assert come(exchange, "greedy-1").send("T").code == 0
    assert come(exchange, "modest-1").send("T").code == BUSY


def test_what_ends_something_is_not_refused() -> None:
    exchange = world(account_requests_per_s=2)
    greedy = come(exchange, "greedy-1")
    pending = greedy.prepare("T")
    for _ in range(3):
        greedy.send("T")
    greedy.end(pending, COMMIT)
    assert exchange.core._ends.engine.counters.prepared == 1
    assert len(exchange.core._ends.engine.pending) == 0


def test_zero_is_no_bound() -> None:
    exchange = world(
        account_requests_per_s=0, account_bytes_per_s=0, account_free_bytes_per_s=0,
        account_pending_percent=0, account_polls_max=0, account_connections_max=0, pending_max=8,
    )  # fmt: skip
    greedy = come(exchange, "greedy-1")
    assert [half(greedy).code for _ in range(8)] == [0] * 8


def test_a_stranger_s_flood_does_not_refuse_an_account_at_his_address() -> None:
    exchange = world(requests_per_s=5)
    stranger, forger = exchange.connect(host="10.0.0.1"), come(exchange, "operator")
    forger.credentials = ("operator", "another-secret")
    for _ in range(20):
        stranger.ask(21)
        forger.ask(21)
    assert stranger.ask(21).code == BUSY
    assert forger.ask(21).code == BUSY
    assert come(exchange, "operator").ask(21).code == 0


def test_who_must_not_prove_anything_is_counted_by_address_alone() -> None:
    disk = SimDisk()
    disk.small["plain_acl.yml"] = FILE + b"globalWhiteRemoteAddresses: [10.0.0.1]\n"
    exchange = Exchange(BrokerSettings(acl_enabled=True, account_requests_per_s=1), disk=disk)
    caller = come(exchange, "greedy-1")
    assert [caller.send("T").code for _ in range(5)] == [0] * 5
