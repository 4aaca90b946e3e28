"""The guard at the broker's door: who has no right does not get through, whatever is written."""

from __future__ import annotations

import json
import logging

import pytest

from escrowmq.acl.request_needs import ADMIN
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.message import Topic
from escrowmq.broker.requests.request_table import UNKNOWN_REQUEST_ROW, request_rows
from escrowmq.codec.recall_handle import RecallHandle, encode_recall_handle
from escrowmq.errors import UsageError
from escrowmq.testing.disk import SimDisk
from tests.harness.exchange import COMMIT, Caller, Exchange

SECRET = "secret-of-all"
FILE = f"""
globalWhiteRemoteAddresses: [10.9.9.9]
accounts:
- {{accessKey: operator, secretKey: {SECRET}, admin: true}}
- {{accessKey: nothing, secretKey: {SECRET}}}
- accessKey: everything
  secretKey: {SECRET}
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
- accessKey: limited
  secretKey: {SECRET}
  topicPerms: [mine=PUB|SUB, read=SUB, written=PUB]
  groupPerms: [my-group=SUB]
- accessKey: half-open
  secretKey: {SECRET}
  defaultTopicPerm: SUB
  defaultGroupPerm: SUB
  groupPerms: [closed=DENY]
dataVersion: [{{counter: 4, timestamp: 77}}]
""".encode()
PREFIX = "org.apache.rocketmq.acl.common.AclException: "
CODES = sorted(
    {code for name, code in vars(Request).items() if name[0] != "_" and isinstance(code, int)}
    - {Request.ESCROW_SESSION}  # anybody's, and opens nothing (test_account_proofs)
)
ROWS = {row.code: row for row in request_rows()}
NEEDS_NOTHING = {Request.UNREGISTER_CLIENT, Request.END_TRANSACTION, Request.BATCH_ACK_MESSAGE}
"""What a request that names nothing at all does: nothing."""


WITH_BODY = {34, 41, 42, 46, 400, 7709, 7710, 7711}


@pytest.fixture(name="exchange")
def make_exchange() -> Exchange:
    return world()


def world(*, is_as_peer: bool = False, file: bytes = FILE) -> Exchange:
    disk = SimDisk()
    disk.small["plain_acl.yml"] = file
    settings = BrokerSettings(acl_enabled=True, acl_as_rocketmq=is_as_peer, allows_recall=True)
    return Exchange(settings, disk=disk)


def come(exchange: Exchange, key: str | None, secret: str = SECRET) -> Caller:
    caller = exchange.connect(host="10.0.0.1")
    caller.credentials = None if key is None else (key, secret)
    return caller


def why(reply: Command) -> str:
    """The reason of a refusal; empty when the request got through."""
    remark = reply.remark or ""
    return remark.removeprefix(PREFIX) if remark.startswith(PREFIX) else ""


def everything_about(name: str, group: str = "my-group") -> dict[str, str]:
    """Fields of all requests that name a topic."""
    return {
        "topic": name, "b": name, "consumerGroup": group, "group": group, "queueId": "0",
        "e": "0", "f": "0", "g": "1", "sysFlag": "0", "bornTimestamp": "1", "queueOffset": "0",
        "maxMsgNums": "1", "offset": "0", "delayLevel": "0", "extraInfo": "0 0 0 0 0 b",
        "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "9", "timestamp": "0",
        "recallHandle": handle_of(name), "commitOffset": "0", "invisibleTime": "1",
    }  # fmt: skip


def handle_of(topic: str) -> str:
    return encode_recall_handle(
        RecallHandle(topic=topic, broker_name="broker-a", deliver_ms=1, unique_key="k")
    )


# -- every code ----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", CODES)
def test_every_request_needs_an_account_and_its_secret(exchange: Exchange, code: int) -> None:
    for fields in ({}, everything_about("mine")):
        assert why(come(exchange, None).ask(code, fields)) == "No accessKey is configured"
        stranger = come(exchange, "stranger").ask(code, fields)
        assert why(stranger) == "No acl config for stranger"
        forged = come(exchange, "operator", "not the secret").ask(code, fields)
        assert why(forged) == "Check signature failed for accessKey=operator"


@pytest.mark.parametrize("code", CODES)
def test_without_rights_nothing_gets_through(exchange: Exchange, code: int) -> None:
    caller = come(exchange, "nothing")
    for fields in ({}, everything_about("mine")):
        reply = caller.begin(code, fields).reply
        if code in NEEDS_NOTHING and not (fields and code == Request.UNREGISTER_CLIENT):
            assert reply is None or why(reply) == ""
            continue
        assert reply is not None
        assert reply.code == 1
        # One that cannot be read is not judged, and not served either.
        assert why(reply) or not fields or code in WITH_BODY


@pytest.mark.parametrize("code", [*CODES, 0, -1, 9999, 3001, 513])
def test_administration_and_what_nobody_knows_is_for_administrators(
    exchange: Exchange, code: int
) -> None:
    if ROWS.get(code, UNKNOWN_REQUEST_ROW).rule.needs is not ADMIN:
        return
    caller = come(exchange, "everything")
    for fields in ({}, everything_about("mine")):
        assert why(caller.ask(code, fields)).startswith("Need admin permission for request")
    assert why(come(exchange, "operator").ask(code, everything_about("mine"))) == ""


BY_TOPIC = {
    *(10, 310, 324, 325, 11, 361, 12, 14, 15, 29, 30, 31, 32, 200050, 200051, 200052, 200053),
    *(200054, 200055, 202, 208, 300, 303, 345, 351, 370),
}


@pytest.mark.parametrize("code", sorted(BY_TOPIC))
def test_a_topic_that_is_not_ones_own_is_refused(exchange: Exchange, code: int) -> None:
    caller = come(exchange, "limited")
    caller.ask(code, everything_about("mine"))
    refused = why(caller.ask(code, everything_about("theirs")))
    assert refused == "No default permission for topic:theirs"
    reply = caller.begin(code, everything_about("mine")).reply
    assert reply is None or why(reply) == ""


BY_GROUP = {36, 38, 35, 203, 343, 352, 11, 14, 15, 200050, 200051, 208, 303, 345}


@pytest.mark.parametrize("code", sorted(BY_GROUP))
def test_a_group_that_is_not_ones_own_is_refused(exchange: Exchange, code: int) -> None:
    caller = come(exchange, "limited")
    refused = why(caller.ask(code, everything_about("mine", "their-group")))
    assert refused == "No default permission for group:their-group"


@pytest.mark.parametrize(
    "topic",
    [
        Topic.HALF, Topic.OP, Topic.SCHEDULE, Topic.TIMER, Topic.CHECK_MAX_TIME,
        "rmq_sys_REVIVE_LOG_DefaultCluster",
    ],
)  # fmt: skip
def test_the_brokers_own_topics_are_for_administrators(exchange: Exchange, topic: str) -> None:
    caller = come(exchange, "everything")
    for code in (310, 11, 361, 12, 200050, 202):
        assert why(caller.ask(code, everything_about(topic))).startswith("Need admin permission")
    as_there = come(world(is_as_peer=True), "everything")
    assert why(as_there.ask(361, everything_about(topic))) == ""


# -- bodies --------------------------------------------------------------------------------------


def beat(topic: str, group: str) -> bytes:
    subscription = {"topic": topic, "subString": "*"}
    consumer = {"groupName": group, "subscriptionDataSet": [subscription]}
    return json.dumps({"clientID": "c", "consumerDataSet": [consumer]}).encode()


def locks(topic: str, group: str) -> bytes:
    queue = {"topic": topic, "brokerName": "broker-a", "queueId": 0}
    return json.dumps({"consumerGroup": group, "clientId": "c", "mqSet": [queue]}).encode()


def config(topic: str, group: str) -> bytes:
    return json.dumps({"group": group, "subscriptionData": {"topic": topic}}).encode()


def assignment(topic: str, group: str) -> bytes:
    return json.dumps({"consumerGroup": group, "topic": topic}).encode()


def acks(topic: str, group: str) -> bytes:
    return json.dumps({"acks": [{"c": "my-group", "t": "mine"}, {"c": group, "t": topic}]}).encode()


def long_acks(topic: str, group: str) -> bytes:
    ack = {"c": "my-group", "t": "mine", "consumerGroup": group, "topic": topic}
    return json.dumps({"acks": [ack]}).encode()


@pytest.mark.parametrize(
    ("code", "make"),
    [(34, beat), (41, locks), (42, locks), (46, config), (400, assignment), (200151, acks),
     (200151, long_acks)],
)  # fmt: skip
def test_bodies_are_judged_by_what_they_name(exchange: Exchange, code: int, make: object) -> None:
    assert callable(make)
    caller = come(exchange, "limited")
    no_topic = caller.ask(code, body=make("theirs", "my-group"))
    assert why(no_topic) == "No default permission for topic:theirs"
    no_group = caller.ask(code, body=make("mine", "their-group"))
    assert why(no_group) == "No default permission for group:their-group"
    assert why(caller.ask(code, body=make("mine", "my-group"))) == ""
    assert why(caller.ask(code, body=make("%RETRY%my-group", "my-group"))) == ""
    broken = caller.begin(code, body=b"{").reply
    assert broken is not None
    assert broken.code == 1


def test_a_popped_retry_topic_is_judged_by_the_topic_that_it_repeats(exchange: Exchange) -> None:
    caller = come(exchange, "limited")
    for spelling in ("%RETRY%my-group_mine", "%RETRY%my-group+mine"):
        assert why(caller.ask(200051, everything_about(spelling))) == ""
    refused = why(caller.ask(200051, everything_about("%RETRY%my-group_theirs")))
    assert refused == "No default permission for topic:theirs"


def test_what_a_group_has_popped_is_not_read_under_another_name(exchange: Exchange) -> None:
    come(exchange, "everything").send("theirs")
    reader = come(exchange, "half-open")
    assert why(reader.pull("%RETRY%other", group="any")) == ""
    assert why(reader.pull("%RETRY%closed_theirs", group="any")) == ""  # it is called so only
    exchange.core.broker.offsets.commit("closed", "%RETRY%closed_theirs", 0, 0, exchange.now_ms)
    assert why(reader.pull("%RETRY%closed_theirs", group="any")) == "No permission for group:closed"


def test_a_handle_names_the_topic_that_is_recalled(exchange: Exchange) -> None:
    fields = everything_about("mine") | {"recallHandle": handle_of("theirs")}
    refused = why(come(exchange, "limited").ask(370, fields))
    assert refused == "No default permission for topic:theirs"


def test_traces_need_an_account_only(exchange: Exchange) -> None:
    fields = everything_about(Topic.TRACE)
    assert why(come(exchange, "nothing").ask(310, fields)) == ""
    assert why(come(exchange, "nothing").ask(11, fields)) != ""


# -- what is stored ------------------------------------------------------------------------------


def test_an_end_needs_the_right_to_the_topic_of_the_half(exchange: Exchange) -> None:
    owner = come(exchange, "everything")
    half = owner.prepare("theirs")
    thief = come(exchange, "limited")
    for fields in ({}, {"topic": "mine"}, {"topic": ""}):
        refused = thief.end(half, COMMIT, fields=fields)
        assert why(refused) == "No default permission for topic:theirs"
    assert owner.bodies("theirs") == []
    assert thief.end(thief.prepare("written"), COMMIT).code == 0
    assert owner.end(half, COMMIT).code == 0
    assert owner.bodies("theirs") == [b"body"]
    assert why(thief.end(half, COMMIT)) == "No default permission for topic:theirs"


def test_at_the_peer_any_account_ends_any_transaction() -> None:
    exchange = world(is_as_peer=True)
    half = come(exchange, "everything").prepare("theirs")
    assert come(exchange, "nothing").end(half, COMMIT).code == 0


def test_an_end_by_id_needs_the_same_right(exchange: Exchange) -> None:
    owner = come(exchange, "everything")
    half = owner.prepare("theirs", wants_id=True)
    assert half.escrow_id
    refused = come(exchange, "limited").end_by_id(half.escrow_id, COMMIT)
    assert why(refused) == "No default permission for topic:theirs"
    assert owner.end_by_id(half.escrow_id, COMMIT).code == 0


def test_where_there_is_nothing_to_end_the_broker_says_so(exchange: Exchange) -> None:
    caller = come(exchange, "nothing")
    owner = come(exchange, "everything")
    place = (owner.send("theirs").ext or {})["msgId"][-16:]
    for log_offset in ("999999", str(int(place, 16))):
        ask = {"producerGroup": "PG", "tranStateTableOffset": "0", "commitOrRollback": "8"}
        reply = caller.ask(37, {**ask, "commitLogOffset": log_offset})
        assert reply.remark == "Find prepared transaction message failed"
    forged = caller.end_by_id("not an id", COMMIT)
    assert (forged.code, why(forged)) == (16, "")


def test_whoever_ends_one_message_of_a_transaction_needs_the_right_to_all(
    exchange: Exchange,
) -> None:
    owner = come(exchange, "everything")
    mine = owner.prepare("mine", escrowTransaction="tx")
    owner.prepare("theirs", escrowTransaction="tx")
    thief = come(exchange, "limited")
    assert why(thief.end(mine, COMMIT)) == "No default permission for topic:theirs"
    assert owner.end(mine, COMMIT).code == 0


def test_a_message_is_shown_to_readers_of_its_topic(exchange: Exchange) -> None:
    owner = come(exchange, "everything")
    theirs, mine = [(owner.send(topic).ext or {})["msgId"][-16:] for topic in ("theirs", "read")]
    reader = come(exchange, "limited")
    for claimed in ({}, {"topic": "mine"}):
        fields = {"offset": str(int(theirs, 16)), **claimed}
        assert why(reader.ask(33, fields)) == "No default permission for topic:theirs"
    assert reader.ask(33, {"offset": str(int(mine, 16))}).code == 0
    half = owner.prepare("read")
    hidden = reader.ask(33, {"offset": str(half.log_offset)})
    assert why(hidden).startswith("Need admin permission")


def test_only_what_one_may_read_is_sent_back(exchange: Exchange) -> None:
    owner = come(exchange, "everything")
    theirs, mine = [
        str(int((owner.send(topic).ext or {})["msgId"][-16:], 16)) for topic in ("theirs", "read")
    ]
    thief = come(exchange, "limited")
    fields = {"group": "my-group", "delayLevel": "-1", "originTopic": "mine"}
    refused = thief.ask(36, {**fields, "offset": theirs})
    assert why(refused) == "No default permission for topic:theirs"
    assert thief.ask(36, {**fields, "offset": mine}).code == 0


# -- the files -----------------------------------------------------------------------------------


def test_a_broker_does_not_start_with_a_bad_file() -> None:
    with pytest.raises(UsageError, match=r"plain_acl\.yml: account 1"):
        world(file=b"accounts: [{accessKey: short, secretKey: short}]")


def test_trusted_addresses_are_asked_nothing(exchange: Exchange) -> None:
    assert exchange.connect(host="10.9.9.9").send("theirs").code == 0
    assert exchange.connect(host="::ffff:10.9.9.9").send("theirs").code == 0


def test_changes_of_the_file_count_within_a_second(exchange: Exchange) -> None:
    caller = come(exchange, "limited")
    assert why(caller.send("theirs")) != ""
    exchange.disk.small["plain_acl.yml"] = FILE.replace(b"mine=PUB|SUB", b"theirs=PUB")
    exchange.advance(1_000)
    assert caller.send("theirs").code == 0
    assert why(caller.send("mine")) != ""


def test_a_bad_change_keeps_the_rules_and_alarms(
    exchange: Exchange, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    caller = come(exchange, "limited")
    exchange.disk.small["plain_acl.yml"] = b"accounts: ["
    exchange.advance(10_000)
    assert caller.send("mine").code == 0
    assert len(caplog.records) == 1


def test_reloads_while_requests_come_misjudge_none(exchange: Exchange) -> None:
    caller = come(exchange, "limited")
    other = FILE.replace(b"read=SUB", b"read=DENY")
    for number in range(60):
        cut = FILE[: len(FILE) * (number % 7) // 7] if number % 3 == 0 else other
        exchange.disk.small["plain_acl.yml"] = cut if number % 2 else FILE
        exchange.advance(100)
        assert caller.send("mine").code == 0
        assert why(caller.send("theirs")) == "No default permission for topic:theirs"


# -- requests that change accounts ---------------------------------------------------------------


NEW = {"accessKey": "new-account", "secretKey": SECRET, "topicPerms": "theirs=PUB,mine=SUB"}


def test_accounts_are_created_changed_and_removed_at_once(exchange: Exchange) -> None:
    operator = come(exchange, "operator")
    new = come(exchange, "new-account")
    assert operator.ask(50, NEW).code == 0
    assert new.send("theirs").code == 0
    assert why(new.send("mine")) == "No permission for topic:mine"
    change = {"accessKey": "new-account", "secretKey": SECRET, "defaultTopicPerm": "PUB"}
    assert operator.ask(50, change).code == 0
    assert new.send("anything").code == 0
    assert why(new.send("mine")) == "No permission for topic:mine"
    assert operator.ask(51, {"accessKey": "new-account"}).code == 0
    assert why(new.send("theirs")) == "No acl config for new-account"
    assert exchange.disk.small["plain_acl.yml"].startswith(b"accounts:")
    exchange.advance(5_000)
    assert why(come(exchange, "limited").send("mine")) == ""


def test_created_accounts_are_there_after_a_restart(exchange: Exchange) -> None:
    come(exchange, "operator").ask(50, NEW)
    exchange.reopen()
    assert come(exchange, "new-account").send("theirs").code == 0


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        ({"secretKey": "short"}, "length should longer than 6"),
        ({"topicPerms": "t1=FOO"}, "Parse resource permission error for t1=FOO."),
        ({"groupPerms": "X"}, "Parse Resource format error for X."),
        ({"whiteRemoteAddress": "1.2.3"}, "address '1.2.3'"),
    ],
)
def test_accounts_that_cannot_be_are_refused(
    exchange: Exchange, change: dict[str, str], remark: str
) -> None:
    before = exchange.disk.small["plain_acl.yml"]
    reply = come(exchange, "operator").ask(50, NEW | change)
    assert reply.code == 209
    assert remark in (reply.remark or "")
    assert exchange.disk.small["plain_acl.yml"] == before


def test_an_account_that_is_not_there_cannot_be_removed(exchange: Exchange) -> None:
    reply = come(exchange, "operator").ask(51, {"accessKey": "unknown"})
    assert reply.code == 210
    text = "The accessKey[unknown] corresponding to accessConfig has been deleted failed."
    assert reply.remark == text


def test_trusted_addresses_are_replaced_and_judged(exchange: Exchange) -> None:
    operator = come(exchange, "operator")
    ask = {"globalWhiteAddrs": "10.7.7.*,10.8.8.{1,2}"}
    assert operator.ask(53, ask).code == 0
    assert exchange.connect(host="10.7.7.1").send("theirs").code == 0
    assert exchange.connect(host="10.8.8.2").send("theirs").code == 0
    assert why(exchange.connect(host="10.9.9.9").send("theirs")) != ""
    bad = operator.ask(53, {"globalWhiteAddrs": "10.x.*.*"})
    assert bad.code == 211
    assert "The globalWhiteAddresses[10.x.*.*] has been updated failed." in (bad.remark or "")


@pytest.mark.parametrize("path", ["/etc/passwd", "../plain_acl.yml", "acl/other.yml", "config/x"])
def test_no_path_comes_over_the_wire(exchange: Exchange, path: str) -> None:
    before = dict(exchange.disk.small)
    ask = {"globalWhiteAddrs": "10.7.7.*", "aclFileFullPath": path}
    assert come(exchange, "operator").ask(53, ask).code == 211
    assert exchange.disk.small == before


def test_the_version_of_the_accounts(exchange: Exchange) -> None:
    operator = come(exchange, "operator")
    ext = operator.ask(52).ext or {}
    assert json.loads(ext["version"]) == {"counter": 4, "stateVersion": 0, "timestamp": 77}
    assert (ext["brokerName"], ext["brokerAddr"]) == ("broker-a", "10.0.0.1:10911")
    operator.ask(50, NEW)
    after = json.loads((operator.ask(52).ext or {})["version"])
    assert (after["counter"], after["timestamp"]) == (5, exchange.now_ms)


def test_secrets_stand_in_no_log_and_no_answer(
    exchange: Exchange, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    operator = come(exchange, "operator")
    replies = [operator.ask(code, NEW) for code in (50, 52, 53, 54, 51, 26)]
    replies.append(operator.ask(50, NEW | {"topicPerms": "x"}))
    assert SECRET not in caplog.text
    assert not [r for r in replies if SECRET in f"{r.remark}{r.ext}{r.body!r}"]


def test_without_acl_everything_is_open_and_accounts_are_unknown() -> None:
    exchange = Exchange()
    caller = exchange.connect()
    assert caller.send("theirs").code == 0
    assert caller.ask(50, NEW).code == 3
    assert "plain_acl.yml" not in exchange.disk.small


@pytest.mark.parametrize("code", [7709, 7710, 7711])
def test_a_decision_about_an_epoch_needs_the_sinks_group(code: int) -> None:
    file = b"""
accounts:
- {accessKey: the-sink, secretKey: sink-secret, defaultGroupPerm: DENY, groupPerms: [rows=PUB]}
"""
    exchange = world(file=file)
    tokens = "[]" if code == 7710 else "{}"
    for group, is_let_in in (("rows", True), ("others", False)):
        caller = exchange.connect()
        caller.credentials = ("the-sink", "sink-secret")
        body = f'{{"group": "{group}", "epoch": "q/1", "tokens": {tokens}}}'
        assert (why(caller.ask(code, body=body.encode())) == "") is is_let_in
