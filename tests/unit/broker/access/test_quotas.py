"""One account at its bound leaves the others untouched, and a stranger leaves all."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.base import fixed_limits
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.testing.disk import SimDisk
from tests.harness.exchange import COMMIT, Caller, Exchange

SECRET = "secret-of-all"
FILE = f"""
accounts:
- {{accessKey: operator, secretKey: {SECRET}, admin: true}}
- {{accessKey: greedy-1, secretKey: {SECRET}, topicPerms: [T=PUB|SUB], defaultGroupPerm: SUB}}
- {{accessKey: modest-1, secretKey: {SECRET}, topicPerms: [T=PUB|SUB], defaultGroupPerm: SUB}}
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
    accounts = exchange.core.transactions.engine.halves.pending.sources.accounts
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
    assert exchange.core.transactions.engine.halves.counters.prepared == 1
    assert len(exchange.core.transactions.engine.halves.pending) == 0


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


# -- names ---------------------------------------------------------------------------------------

MAKERS = f"""
accounts:
- {{accessKey: operator, secretKey: {SECRET}, admin: true}}
- {{accessKey: greedy-1, secretKey: {SECRET}, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}}
- {{accessKey: modest-1, secretKey: {SECRET}, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}}
""".encode()


def of_makers(disk: SimDisk | None = None, **settings: Any) -> Exchange:
    disk = disk or SimDisk()
    disk.small["plain_acl.yml"] = MAKERS
    return Exchange(
        BrokerSettings(
            acl_enabled=True, creates_groups=True, creates_topics=True, account_topics_max=3,
            account_groups_max=3, **settings,
        ),
        disk=disk,
    )  # fmt: skip


def use_topic(caller: Caller, name: str) -> Command:
    return caller.send(name, default_topic="TBW102")


def use_group(caller: Caller, name: str, how: str) -> Command:
    if how == "pull":
        return caller.begin_pull("SELF_TEST_TOPIC", group=name).now
    if how == "offset":
        fields = {"consumerGroup": name, "topic": "SELF_TEST_TOPIC", "queueId": "0"}
        return caller.ask(Request.UPDATE_CONSUMER_OFFSET, {**fields, "commitOffset": "0"})
    return caller.heartbeat(consumer=name, topics={"SELF_TEST_TOPIC": "*"})


def test_topics_that_an_account_makes_by_sending_are_bounded() -> None:
    exchange = of_makers()
    greedy, modest = come(exchange, "greedy-1"), come(exchange, "modest-1")
    replies = [use_topic(greedy, f"own-{number}") for number in range(4)]
    assert [reply.code for reply in replies] == [0, 0, 0, 1]
    assert "account greedy-1 has already created 3 by using them, and escrowAccountTopics=3" in (
        replies[3].remark or ""
    )
    assert greedy.send("%RETRY%any").code == 1
    assert use_topic(greedy, "own-0").code == 0  # made already
    assert use_topic(modest, "own-3").code == 0
    operator = come(exchange, "operator")
    assert operator.ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": "own-1"}).code == 0
    assert use_topic(greedy, "own-4").code == 0
    assert use_topic(greedy, "own-5").code == 1


@pytest.mark.parametrize("how", ["pull", "heartbeat", "offset"])
def test_groups_that_an_account_makes_by_using_them_are_bounded(how: str) -> None:
    exchange = of_makers()
    greedy, modest = come(exchange, "greedy-1"), come(exchange, "modest-1")
    for number in range(3):
        use_group(greedy, f"G{number}", how)
    refused = use_group(greedy, "G3", how)
    assert refused.code == 1
    assert "escrowAccountGroups=3" in (refused.remark or "")
    assert "escrowAccountGroups" not in (use_group(greedy, "G1", how).remark or "")
    assert "escrowAccountGroups" not in (use_group(modest, "G3", how).remark or "")


@pytest.mark.parametrize("is_killed", [True, False])
def test_whose_names_are_is_known_after_a_start(is_killed: bool) -> None:
    exchange = of_makers()
    greedy = come(exchange, "greedy-1")
    for number in range(3):
        use_topic(greedy, f"own-{number}")
        use_group(greedy, f"G{number}", "pull")
    exchange.advance(10_000)
    if not is_killed:
        exchange.core.close(exchange.now_ms)
    exchange.disk.restart()
    again = of_makers(exchange.disk)
    greedy = come(again, "greedy-1")
    assert use_topic(greedy, "own-3").code == 1
    assert "escrowAccountGroups=3" in (use_group(greedy, "G3", "pull").remark or "")
    assert use_topic(come(again, "modest-1"), "own-3").code == 0


def test_a_damaged_file_of_names_lets_everybody_go_on() -> None:
    disk = SimDisk()
    disk.small["config/escrowMadeNames.json"] = b'{"topics": 7'
    exchange = of_makers(disk)
    assert use_topic(come(exchange, "greedy-1"), "own").code == 0


def test_memberships_of_one_account_leave_room_for_others() -> None:
    exchange = of_makers(account_memberships_max=3)
    first, second = come(exchange, "greedy-1"), come(exchange, "greedy-1")
    assert first.heartbeat(producer="P1").code == 0
    assert first.heartbeat(producer="P2").code == 0
    assert second.heartbeat(producer="P1").code == 0
    refused = second.heartbeat(producer="P2")
    assert "escrowAccountMemberships=3 allows no more" in (refused.remark or "")
    assert come(exchange, "modest-1").heartbeat(producer="P2").code == 0
    first.leave()
    assert second.heartbeat(producer="P2").code == 0


def test_long_polls_that_keep_much_count_as_several() -> None:
    exchange = world(account_polls_max=10)
    greedy = come(exchange, "greedy-1")
    many = {f"field-{number}": "x" * 400 for number in range(100)}
    polls = [greedy.begin_pull("T", hold_ms=HOLD_MS, fields=many) for _ in range(3)]
    assert [bool(poll) for poll in polls] == [False, True, True]
    assert "escrowAccountPolls=10" in (polls[1].now.remark or "")
    assert not come(exchange, "modest-1").begin_pull("T", hold_ms=HOLD_MS)


def test_retry_topics_of_the_groups_of_an_account_are_bounded_also_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fixed_limits, "POP_RETRY_TOPICS_OF_ACCOUNT_MAX", 2)
    exchange = world()
    greedy, modest = come(exchange, "greedy-1"), come(exchange, "modest-1")
    greedy.send("T")

    def pop(caller: Caller, group: str) -> Command:
        fields = {
            "consumerGroup": group, "topic": "T", "queueId": "-1", "maxMsgNums": "1",
            "invisibleTime": "10000", "pollTime": "0", "bornTime": str(exchange.now_ms),
            "initMode": "0", "order": "false",
        }  # fmt: skip
        return caller.ask(Request.POP_MESSAGE, fields)

    for number in range(3):
        assert pop(greedy, f"greedy-{number}").code == 0
    exchange.advance(20_000)
    retries = [name for name in exchange.core.broker.topics.names() if name.endswith("_T")]
    assert retries == ["%RETRY%greedy-0_T", "%RETRY%greedy-1_T"]
    exchange.reopen()
    greedy, modest = come(exchange, "greedy-1"), come(exchange, "modest-1")
    refused = pop(greedy, "greedy-3")
    assert refused.code == 1
    assert "the groups of account greedy-1 have 2 retry topics" in (refused.remark or "")
    assert pop(modest, "modest").code == 0
