"""Names belong to whoever began them, when accounts are on: transactions, epochs, replies."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.fixed_limits import BUNDLE_MESSAGES_MAX
from escrowmq.base.own_properties import OWNER
from escrowmq.codec.ids import offset_id
from escrowmq.codec.properties import encode_properties
from escrowmq.testing.disk import SimDisk
from tests.harness.exchange import (
    COMMIT,
    ROLLBACK,
    Caller,
    Exchange,
    Pending,
    half_of_check,
)

CHECK = Request.CHECK_TRANSACTION_STATE
SECRET = "secret-of-all"
FILE = f"""
globalWhiteRemoteAddresses: [10.0.0.9]
accounts:
- {{accessKey: operator, secretKey: {SECRET}, admin: true}}
- {{accessKey: nothing, secretKey: {SECRET}}}
- accessKey: a-team-1
  secretKey: {SECRET}
  topicPerms: [TA=PUB|SUB, Q=PUB]
  groupPerms: [GA=PUB|SUB]
- accessKey: b-team-1
  secretKey: {SECRET}
  topicPerms: [TB=PUB|SUB, Q=PUB]
  groupPerms: [GB=PUB|SUB, PGB=PUB]
- accessKey: answers
  secretKey: {SECRET}
  topicPerms: [Q=SUB]
  groupPerms: [GQ=SUB]
""".encode()
TX: dict[str, Any] = {"escrowTransaction": "tx-1"}


def world(**settings: Any) -> Exchange:
    disk = SimDisk()
    disk.small["plain_acl.yml"] = FILE
    exchange = Exchange(BrokerSettings(acl_enabled=True, **settings), disk=disk)
    for topic in ("TA", "TB", "Q"):
        exchange.create_topic(topic, 1)
    return exchange


@pytest.mark.parametrize(("key", "keeps"), [("operator", True), ("a-team-1", False)])
def test_only_an_operators_message_is_one_that_was_stored_again(key: str, keeps: bool) -> None:
    exchange = world(admin_from="everybody")
    caller = exchange.connect(host="10.0.0.7")
    caller.credentials = (key, SECRET)
    assert caller.send("TA", escrowRedone="true").code == 0
    (message,) = exchange.connect().messages("TA")  # from a trusted address
    assert (message.properties.get("escrowRedone") == "true") is keeps


@pytest.mark.parametrize("actions", [["Update"], ["Get"]])
def test_a_user_needs_update_on_the_cluster_to_store_a_message_again(actions: list[str]) -> None:
    first = json.dumps({"username": "operator", "password": SECRET})
    settings = BrokerSettings(authenticates=True, authorizes=True, first_user=first)
    exchange = Exchange(msgspec.structs.replace(settings, admin_from="everybody"))
    owner, caller = exchange.connect(), exchange.connect()
    owner.credentials, caller.credentials = ("operator", SECRET), ("redo", SECRET)
    made = {"topic": "TA", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    made |= {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "order": "false"}
    assert owner.ask(Request.UPDATE_AND_CREATE_TOPIC, made).code == 0
    body = json.dumps({"password": SECRET}).encode()
    assert owner.ask(Request.AUTH_CREATE_USER, {"username": "redo"}, body).code == 0
    entries = [
        {"resource": "Topic:TA", "actions": ["Pub"], "decision": "Allow"},
        {"resource": "Cluster:*", "actions": actions, "decision": "Allow"},
    ]
    policies = json.dumps({"policies": [{"entries": entries}]}).encode()
    assert owner.ask(Request.AUTH_CREATE_ACL, {"subject": "User:redo"}, policies).code == 0
    assert caller.send("TA", escrowRedone="true").code == 0
    (message,) = owner.messages("TA")
    assert ("escrowRedone" in message.properties) is (actions == ["Update"])


@pytest.fixture(name="exchange")
def make_exchange() -> Exchange:
    return world()


def come(exchange: Exchange, key: str, client_id: str | None = None) -> Caller:
    caller = exchange.connect(client_id, host="10.0.0.1")
    caller.credentials = (key, SECRET)
    return caller


def half(caller: Caller, topic: str, body: bytes = b"x", **properties: Any) -> int:
    said: dict[str, Any] = {"TRAN_MSG": "true", "PGROUP": "PGB", **properties}
    return caller.send(topic, body, **said).code


# -- transactions of several messages ------------------------------------------------------------


@pytest.mark.parametrize("restart", ["none", "clean", "killed"])
def test_a_half_of_another_account_is_none_of_a_transaction(
    exchange: Exchange, restart: str
) -> None:
    b = come(exchange, "b-team-1")
    first = b.prepare("TB", b"b1", group="PGB", **TX)
    assert half(come(exchange, "a-team-1"), "TA", b"spoiler", **TX) == 0
    b.prepare("TB", b"b2", group="PGB", **TX)
    if restart == "clean":
        exchange.reopen()
    elif restart == "killed":
        exchange.crash()
    b = come(exchange, "b-team-1")
    ended = b.end(first, COMMIT, fields={"escrowCount": "2"})
    assert ended.code == 0

    assert [m.body for m in messages(exchange, "TB")] == [b"b1", b"b2"]
    assert messages(exchange, "TA") == []


def messages(exchange: Exchange, topic: str) -> list[Any]:
    caller = exchange.connect(host="10.0.0.9")
    return caller.messages(topic)


def test_nobody_fills_or_ends_a_transaction_id_of_another_account(exchange: Exchange) -> None:
    a, b = come(exchange, "a-team-1"), come(exchange, "b-team-1")
    theirs = a.prepare("TA", group="PGB", **TX)
    assert a.end(theirs, ROLLBACK).code == 0
    for _ in range(BUNDLE_MESSAGES_MAX):
        assert half(a, "TA", escrowTransaction="tx-2") == 0
    assert half(b, "TB", **TX) == 0
    assert half(b, "TB", escrowTransaction="tx-2") == 0


def test_nobody_ends_messages_of_another_account_by_a_half_of_his_own(exchange: Exchange) -> None:
    a, b = come(exchange, "a-team-1"), come(exchange, "b-team-1")
    leading = a.prepare("TA", b"a1", group="PGB", **TX)
    theirs = b.prepare("TB", b"b1", group="PGB", **TX)
    assert a.end(leading, COMMIT).code == 0
    assert messages(exchange, "TB") == []
    assert b.end(theirs, ROLLBACK).code == 0


def test_what_was_given_up_is_resumed_with_the_halves_of_its_own_account_alone() -> None:
    exchange = world(transaction_checks_max=1, transaction_check_interval_ms=6_000)
    a, b = come(exchange, "a-team-1"), come(exchange, "b-team-1")
    for caller, topic in ((a, "TA"), (b, "TB")):
        caller.heartbeat(producer="PGB")
        caller.prepare(topic, group="PGB", **TX)
    exchange.advance(60_000)
    assert len(exchange.core.transactions.engine.halves.pending) == 0
    given_up = messages(exchange, "TRANS_CHECK_MAX_TIME_TOPIC")
    (mine,) = [one for one in given_up if one.properties["REAL_TOPIC"] == "TB"]
    message_id = offset_id(mine.store_host, mine.log_offset)
    operator = come(exchange, "operator")
    assert operator.ask(Request.RESUME_CHECK_HALF_MESSAGE, {"msgId": message_id}).code == 0
    assert [
        exchange.core.transactions.engine.halves.pending.topic(n)
        for n in exchange.core.transactions.engine.halves.pending
    ] == ["TB"]


def test_the_mark_of_an_account_is_the_brokers_to_set(exchange: Exchange) -> None:
    a, b = come(exchange, "a-team-1"), come(exchange, "b-team-1")
    mine = b.prepare("TB", group="PGB", **TX)
    assert b.end(mine, COMMIT).code == 0
    mark = messages(exchange, "TB")[0].properties[OWNER]
    assert "team" not in mark
    theirs = a.prepare("TA", group="PGB", **TX, **{OWNER: mark})
    assert a.end(theirs, COMMIT).code == 0
    assert messages(exchange, "TA")[0].properties[OWNER] != mark


def test_halves_of_one_message_and_of_open_brokers_have_no_mark(exchange: Exchange) -> None:
    b = come(exchange, "b-team-1")
    assert b.end(b.prepare("TB", group="PGB"), COMMIT).code == 0
    assert OWNER not in messages(exchange, "TB")[0].properties
    for exchange in (Exchange(), world(acl_as_rocketmq=True)):
        exchange.create_topic("TB", 1)
        b = come(exchange, "b-team-1")
        assert b.end(b.prepare("TB", group="PGB", **TX), COMMIT).code == 0
        caller = exchange.connect(host="10.0.0.9")
        assert OWNER not in caller.messages("TB")[0].properties


# -- ends ----------------------------------------------------------------------------------------


def refused(reply: Any) -> bool:
    return bool(reply.code == 1 and "permission for group:" in (reply.remark or ""))


@pytest.mark.parametrize("restart", ["none", "clean", "killed"])
@pytest.mark.parametrize("what", [COMMIT, ROLLBACK])
def test_who_began_a_half_ends_it_and_nobody_else_who_may_send_to_the_topic(
    exchange: Exchange, restart: str, what: int
) -> None:
    mine = come(exchange, "a-team-1").prepare("Q", b"a1", group="PGA")
    if restart == "clean":
        exchange.reopen()
    elif restart == "killed":
        exchange.crash()
    a, b = come(exchange, "a-team-1"), come(exchange, "b-team-1")
    assert refused(b.end(mine, COMMIT))
    assert refused(b.end(mine, ROLLBACK))
    assert messages(exchange, "Q") == []
    assert a.end(mine, what).code == 0
    assert refused(b.end(mine, what))
    assert len(messages(exchange, "Q")) == (what == COMMIT)


def test_who_may_publish_for_the_group_ends_what_others_of_it_have_begun(
    exchange: Exchange,
) -> None:
    mine = come(exchange, "a-team-1").prepare("Q", b"a1", group="PGB")
    assert come(exchange, "b-team-1").end(mine, COMMIT).code == 0
    (found,) = messages(exchange, "Q")
    assert OWNER not in found.properties
    open_one = come(exchange, "a-team-1").prepare("Q", b"a2", group="PGX")
    assert come(exchange, "operator").end(open_one, ROLLBACK).code == 0


def test_a_check_is_for_who_may_end_the_half() -> None:
    exchange = world()
    a, b = come(exchange, "a-team-1"), come(exchange, "b-team-1")
    for caller in (a, b):
        for group in ("PGA", "PGB"):
            caller.heartbeat(producer=group)
    for group in ("PGA", "PGB"):
        a.prepare("Q", group=group)
    a.leave()
    exchange.advance(120_000)
    asked = {half_of_check(request).group for request in b.take(CHECK)}
    assert asked == {"PGB"}


def test_a_half_that_an_open_broker_took_is_ended_by_the_right_to_its_topic() -> None:
    exchange = world(acl_as_rocketmq=True)
    mine = come(exchange, "a-team-1").prepare("Q", b"a1", group="PGA")
    exchange.settings.acl_as_rocketmq = False
    exchange.reopen()
    assert come(exchange, "b-team-1").end(mine, COMMIT).code == 0


# -- epochs --------------------------------------------------------------------------------------


def test_a_half_of_an_epoch_needs_the_right_to_decide_about_it(exchange: Exchange) -> None:
    a, b = come(exchange, "a-team-1"), come(exchange, "b-team-1")
    epoch: dict[str, Any] = {"escrowEpoch": "query/1", "escrowToken": "token"}
    for _ in range(3):
        assert half(b, "TB", **epoch) == 0
    said: dict[str, Any] = {"TRAN_MSG": "true", "PGROUP": "PGB", **epoch}
    refused = a.send("TA", b"x", **said)
    assert refused.code == 1
    assert (refused.remark or "").endswith("No default permission for group:PGB")
    decide = {"group": "PGB", "epoch": "query/1", "tokens": {"token": 3}}
    reply = b.ask(Request.ESCROW_DECIDE, {}, json.dumps(decide).encode())
    assert reply.code == 0
    assert json.loads(reply.body)["count"] == 3


# -- requests and their replies ------------------------------------------------------------------

REPLIES = "DefaultCluster_REPLY_TOPIC"
ID = "10.0.0.5@4711#123456"


def ask_q(caller: Caller, correlation_id: str = "c-1") -> int:
    return caller.send("Q", b"?", REPLY_TO_CLIENT=ID, CORRELATION_ID=correlation_id).code


def answer_to(caller: Caller, correlation_id: str = "c-1", *, code: int = 325) -> Pending:
    properties = {"REPLY_TO_CLIENT": ID, "CORRELATION_ID": correlation_id}
    text = encode_properties(properties).decode()
    if code == Request.SEND_REPLY_MESSAGE_V2:
        ext = {"a": "PG", "b": REPLIES, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "5",
               "h": "0", "i": text}  # fmt: skip
    else:
        ext = {"producerGroup": "PG", "topic": REPLIES, "queueId": "0", "sysFlag": "0",
               "bornTimestamp": "5", "flag": "0", "properties": text}  # fmt: skip
    return caller.begin(code, ext, b"answer")


@pytest.mark.parametrize("code", [324, 325])
def test_a_reply_goes_to_who_asked_whoever_took_his_client_id_before(
    exchange: Exchange, code: int
) -> None:
    a, b = come(exchange, "a-team-1", ID), come(exchange, "b-team-1", ID)
    assert a.heartbeat(producer="any").code == 0
    assert b.heartbeat(producer="other").code == 0
    assert ask_q(b) == 0
    assert ask_q(a) == 0  # who has read the request may write it again
    pending = answer_to(come(exchange, "answers"), code=code)
    assert a.take() == []
    (push,) = b.take(Request.PUSH_REPLY_MESSAGE_TO_CLIENT)
    assert push.body == b"answer"
    b.answer(push)
    assert pending.now.code == 0


def test_a_reply_reaches_the_heartbeats_connection_of_a_client_with_several(
    exchange: Exchange,
) -> None:
    first, second = come(exchange, "b-team-1", ID), come(exchange, "b-team-1", ID)
    first.heartbeat(producer="other")
    assert ask_q(second) == 0
    answer_to(come(exchange, "answers"))
    assert len(first.take(Request.PUSH_REPLY_MESSAGE_TO_CLIENT)) == 1


def test_who_may_not_read_the_request_cannot_answer_it(exchange: Exchange) -> None:
    b = come(exchange, "b-team-1", ID)
    b.heartbeat(producer="other")
    assert ask_q(b) == 0
    for key in ("nothing", "a-team-1"):
        refused = answer_to(come(exchange, key)).now
        assert refused.code == 1
        assert (refused.remark or "").endswith("permission for topic:Q")
    assert b.take() == []


def test_a_reply_to_nothing_needs_the_right_to_the_topic_of_replies(exchange: Exchange) -> None:
    b = come(exchange, "b-team-1", ID)
    b.heartbeat(producer="other")
    for key in ("nothing", "answers"):
        refused = answer_to(come(exchange, key), "never-asked").now
        assert (refused.remark or "").endswith(f"No default permission for topic:{REPLIES}")
    assert b.take() == []
    # Of a cluster's brokers another one may have got the request.
    answer_to(come(exchange, "operator"), "never-asked")
    assert len(b.take(Request.PUSH_REPLY_MESSAGE_TO_CLIENT)) == 1


def test_a_reply_to_nothing_goes_to_nobody_when_two_accounts_have_the_clients_id(
    exchange: Exchange,
) -> None:
    come(exchange, "a-team-1", ID).heartbeat(producer="any")
    come(exchange, "b-team-1", ID).heartbeat(producer="other")
    reply = answer_to(come(exchange, "operator"), "never-asked").now
    assert reply.remark == f"push reply message fail, channel of <{ID}> not found."


def test_as_at_the_peer_anybody_answers() -> None:
    exchange = world(acl_as_rocketmq=True)
    b = come(exchange, "b-team-1", ID)
    b.heartbeat(producer="other")
    answer_to(come(exchange, "nothing"), "never-asked")
    assert len(b.take(Request.PUSH_REPLY_MESSAGE_TO_CLIENT)) == 1
