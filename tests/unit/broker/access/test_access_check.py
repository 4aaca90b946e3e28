"""What is inside already when the rules change: long polls, and members of producer groups."""

from __future__ import annotations

import json

import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.measure import Sample
from escrowmq.broker.access import access_check as door_module
from escrowmq.testing.disk import SimDisk
from tests.harness.exchange import COMMIT, Caller, Exchange, Pending, half_of_check

SECRET = "secret-of-all"
FILE = f"""
accounts:
- {{accessKey: operator, secretKey: {SECRET}, admin: true}}
- {{accessKey: owner-1, secretKey: {SECRET}, topicPerms: [T=PUB|SUB], groupPerms: [CG=SUB]}}
- {{accessKey: thief-1, secretKey: {SECRET}, topicPerms: [other=PUB|SUB], groupPerms: [CG=SUB]}}
""".encode()
WITHOUT = FILE.replace(b"T=PUB|SUB", b"T=PUB")
CHECK = Request.CHECK_TRANSACTION_STATE
HOLD_MS = 60_000


def world(*, is_as_peer: bool = False) -> Exchange:
    disk = SimDisk()
    disk.small["plain_acl.yml"] = FILE
    exchange = Exchange(BrokerSettings(acl_enabled=True, acl_as_rocketmq=is_as_peer), disk=disk)
    come(exchange, "operator").ask(17, topic("T"))
    come(exchange, "operator").ask(17, topic("other"))
    return exchange


def topic(name: str) -> dict[str, str]:
    return {
        "topic": name, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1",
        "perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false",
    }  # fmt: skip


def come(exchange: Exchange, key: str, host: str = "10.0.0.1") -> Caller:
    caller = exchange.connect(host=host)
    caller.credentials = (key, SECRET)
    return caller


def hold(exchange: Exchange, caller: Caller, kind: str) -> Pending:
    if kind == "pull":
        return caller.begin_pull("T", hold_ms=HOLD_MS)
    fields = {
        "consumerGroup": "CG", "topic": "T", "queueId": "-1", "maxMsgNums": "32",
        "invisibleTime": "10000", "pollTime": str(HOLD_MS), "bornTime": str(exchange.now_ms),
        "initMode": "0", "order": "false",
    }  # fmt: skip
    code = {"pop": Request.POP_MESSAGE, "notify": Request.NOTIFICATION}[kind]
    return caller.begin(code, fields)


# -- long polls ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pull", "pop", "notify"])
def test_a_poll_ends_when_its_right_is_withdrawn(kind: str) -> None:
    exchange = world()
    pending = hold(exchange, come(exchange, "owner-1"), kind)
    assert not pending
    exchange.disk.small["plain_acl.yml"] = WITHOUT
    exchange.advance(1_000)
    assert (pending.now.code, pending.now.remark) == (
        1,
        "org.apache.rocketmq.acl.common.AclException: No permission for topic:T",
    )
    writer = come(exchange, "owner-1")
    assert writer.send("T").code == 0
    assert exchange.core.assembly.pulls.holds.count == 0


def test_a_poll_goes_on_when_other_rules_change() -> None:
    exchange = world()
    pending = hold(exchange, come(exchange, "owner-1"), "pull")
    exchange.disk.small["plain_acl.yml"] = FILE + b"# a comment more\n"
    exchange.advance(1_000)
    assert not pending
    come(exchange, "owner-1").send("T", b"late")
    assert pending.now.code == 0


def test_a_poll_ends_with_its_account() -> None:
    exchange = world()
    pending = hold(exchange, come(exchange, "owner-1"), "pull")
    assert come(exchange, "operator").ask(51, {"accessKey": "owner-1"}).code == 0
    exchange.advance(0)
    exchange.core.wake(exchange.now_ms)
    exchange.advance(1)
    assert "No acl config for owner-1" in (pending.now.remark or "")


def test_a_repeated_poll_is_judged_by_its_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = Exchange()
    exchange.create_topic("T")
    caller = exchange.connect()
    caller.is_binary = True
    polls = [caller.begin_pull("T", hold_ms=5_000) for _ in range(3)]
    door = exchange.core.assembly.access
    judged = []
    monkeypatch.setattr(
        door, "_judge_by_rules", lambda asked, _, **__: judged.append(asked.command.ext)
    )
    door._apply_changed_rules()
    exchange.advance(100)
    assert [ext["queueOffset"] for ext in judged] == ["0", "0", "0"]
    assert not any(polls)
    caller.send("T", b"now")
    assert [poll.now.code for poll in polls] == [0, 0, 0]


def test_many_polls_are_judged_by_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_module, "_ASKED_AGAIN_MAX", 2)
    exchange = world()
    owner = come(exchange, "owner-1")
    polls = [hold(exchange, owner, "pull") for _ in range(5)]
    owner.exchange.core.assembly.access._apply_changed_rules()
    exchange.disk.small["plain_acl.yml"] = WITHOUT
    exchange.advance(1_000)
    assert all(pending.now.code == 1 for pending in polls)


def test_nobody_has_more_polls_than_his_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("escrowmq.delivery.held_pulls.HELD_PER_PEER_MAX", 3)
    monkeypatch.setattr("escrowmq.delivery.held_pops.HELD_PER_PEER_MAX", 3)
    exchange = world()
    greedy, modest = come(exchange, "owner-1"), come(exchange, "owner-1")
    other = hold(exchange, modest, "pull")
    polls = [hold(exchange, greedy, "pull") for _ in range(5)]
    assert [bool(pending) for pending in polls] == [True, True, False, False, False]
    assert not other
    pops = [hold(exchange, greedy, "pop") for _ in range(5)]
    assert [bool(pending) for pending in pops] == [False, False, False, True, True]
    assert not hold(exchange, modest, "pop")


# -- who is shown halves -------------------------------------------------------------------------


def checks(exchange: Exchange, caller: Caller) -> int:
    return len(caller.take(CHECK))


def test_a_member_without_the_right_to_the_topic_is_shown_no_half() -> None:
    exchange = world()
    thief = come(exchange, "thief-1")
    thief.heartbeat(producer="PG")
    sender = come(exchange, "owner-1")
    half = sender.prepare("T", b"secret")
    sender.leave()
    exchange.advance(40_000)
    assert checks(exchange, thief) == 0
    assert exchange.core.transactions.checker.parked_count("PG") == 1
    owner = come(exchange, "owner-1")
    owner.heartbeat(producer="PG")
    exchange.advance(1_000)
    (check,) = owner.take(CHECK)
    assert owner.end(half_of_check(check), COMMIT, is_from_check=True).code == 0
    assert checks(exchange, thief) == 0
    assert owner.bodies("T") == [b"secret"]
    assert half.topic == "T"


def test_at_the_peer_any_member_is_shown_it() -> None:
    exchange = world(is_as_peer=True)
    thief = come(exchange, "thief-1")
    thief.heartbeat(producer="PG")
    come(exchange, "owner-1").prepare("T")
    exchange.advance(10_000)
    assert checks(exchange, thief) == 1


def test_a_member_who_gets_the_right_is_asked_then() -> None:
    exchange = world()
    late = come(exchange, "thief-1")
    late.heartbeat(producer="PG")
    sender = come(exchange, "owner-1")
    sender.prepare("T")
    sender.leave()
    exchange.advance(40_000)
    assert checks(exchange, late) == 0
    exchange.disk.small["plain_acl.yml"] = FILE.replace(
        b"other=PUB|SUB], groupPerms: [CG=SUB]", b"T=PUB|SUB], groupPerms: [PG=PUB]"
    )
    exchange.advance(2_000)
    assert checks(exchange, late) == 1


def test_a_member_whose_account_is_gone_is_asked_no_more() -> None:
    exchange = world()
    owner = come(exchange, "owner-1")
    owner.heartbeat(producer="PG")
    owner.prepare("T")
    exchange.disk.small["plain_acl.yml"] = FILE.replace(b"owner-1", b"owner-2")
    exchange.advance(60_000)
    assert checks(exchange, owner) == 0


def test_a_trusted_address_is_asked_without_an_account() -> None:
    exchange = world()
    exchange.disk.small["plain_acl.yml"] = b"globalWhiteRemoteAddresses: [10.7.7.7]\n" + FILE
    exchange.advance(1_000)
    trusted = exchange.connect(host="10.7.7.7")
    trusted.heartbeat(producer="PG")
    trusted.prepare("T")
    exchange.advance(10_000)
    assert checks(exchange, trusted) == 1


# -- ACL 2.0 -------------------------------------------------------------------------------------


def users_world() -> tuple[Exchange, Caller]:
    settings = BrokerSettings(
        authenticates=True,
        authorizes=True,
        first_user='{"username":"operator","password":"secret-of-all"}',
    )
    exchange = Exchange(settings)
    operator = come(exchange, "operator")
    for name in ("T", "other"):
        assert operator.ask(17, topic(name)).code == 0
    for name, right in (("owner-1", "Topic:T"), ("thief-1", "Topic:other")):
        body = f'{{"password":"{SECRET}"}}'.encode()
        assert operator.ask(3001, {"username": name}, body).code == 0
        put(operator, name, right)
        put(operator, name, "Group:CG")
    return exchange, operator


def put(operator: Caller, name: str, resource: str, decision: str = "Allow") -> None:
    entry = f'{{"resource":"{resource}","actions":["Pub","Sub"],"decision":"{decision}"}}'
    body = f'{{"policies":[{{"entries":[{entry}]}}]}}'.encode()
    assert operator.ask(3006, {"subject": f"User:{name}"}, body).code == 0


@pytest.mark.parametrize("kind", ["pull", "pop", "notify"])
def test_a_poll_of_a_user_ends_when_his_right_is_withdrawn(kind: str) -> None:
    exchange, operator = users_world()
    pending = hold(exchange, come(exchange, "owner-1"), kind)
    assert not pending
    put(operator, "owner-1", "Topic:T", "Deny")
    exchange.advance(1_000)
    assert pending.now.code == 16
    assert "the decision is deny." in (pending.now.remark or "")


def test_a_poll_of_a_user_ends_when_he_is_disabled() -> None:
    exchange, operator = users_world()
    pending = hold(exchange, come(exchange, "owner-1"), "pull")
    operator.ask(3002, {"username": "owner-1"}, b'{"userStatus":"disable"}')
    exchange.advance(1_000)
    assert pending.now.remark == "User:owner-1 is disabled."


def test_users_without_the_right_to_the_topic_are_shown_no_half() -> None:
    exchange, operator = users_world()
    thief = come(exchange, "thief-1")
    thief.heartbeat(producer="PG")
    sender = come(exchange, "owner-1")
    sender.prepare("T", b"secret")
    sender.leave()
    exchange.advance(40_000)
    assert checks(exchange, thief) == 0
    put(operator, "thief-1", "Topic:T")
    exchange.advance(2_000)
    assert checks(exchange, thief) == 0
    put(operator, "thief-1", "Group:PG")  # whoever is asked may answer
    exchange.advance(2_000)
    assert checks(exchange, thief) == 1


def test_a_disabled_user_is_shown_no_half() -> None:
    exchange, operator = users_world()
    owner = come(exchange, "owner-1")
    owner.heartbeat(producer="PG")
    owner.prepare("T")
    operator.ask(3002, {"username": "owner-1"}, b'{"userStatus":"disable"}')
    exchange.advance(60_000)
    assert checks(exchange, owner) == 0


def test_a_name_that_nobody_asked_to_prove_is_shown_no_half() -> None:
    settings = BrokerSettings(
        authenticates=True,
        authorizes=True,
        first_user='{"username":"operator","password":"secret-of-all"}',
        unauthenticated="34",
        unauthorized="34",
    )
    exchange = Exchange(settings)
    come(exchange, "operator").prepare("T")
    forger = exchange.connect()
    forger.credentials = ("operator", "not the secret")
    assert forger.heartbeat(producer="PG").code == 0
    exchange.advance(60_000)
    assert checks(exchange, forger) == 0
    assert not exchange.core.assembly.access._may_get_check(999, "T", "PG", "")


def test_without_authorization_every_user_of_the_group_is_asked() -> None:
    settings = BrokerSettings(
        authenticates=True, first_user='{"username":"operator","password":"secret-of-all"}'
    )
    exchange = Exchange(settings)
    member = come(exchange, "operator")
    member.heartbeat(producer="PG")
    member.prepare("T")
    exchange.advance(10_000)
    assert checks(exchange, member) == 1


def test_a_poll_that_was_answered_meanwhile_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_module, "_ASKED_AGAIN_MAX", 1)
    exchange = world()
    owner = come(exchange, "owner-1")
    polls = [hold(exchange, owner, "pull") for _ in range(2)]
    exchange.core.assembly.access._apply_changed_rules()
    owner.send("T", b"in between")
    assert [pending.now.code for pending in polls] == [0, 0]
    exchange.advance(100)
    assert exchange.core.assembly.access.wake_at_ms() > exchange.now_ms


# -- why -----------------------------------------------------------------------------------------


def test_the_broker_explains_what_it_would_do() -> None:
    question = b'{"user":"owner-1","action":"sub","resource":"T","address":"10.0.0.1"}'
    old = world()
    reply = come(old, "operator").ask(7720, body=question)
    (answer,) = json.loads(reply.body)["answers"]
    assert (answer["acl"], answer["isAllowed"]) == ("1.0", True)
    assert answer["decidedBy"] == "topicPerms: T=PUB|SUB"
    assert come(old, "owner-1").ask(7720, body=question).code == 1

    _, operator = users_world()
    (answer,) = json.loads(operator.ask(7720, body=question).body)["answers"]
    assert answer["decidedBy"] == "custom entry Topic:T Pub|Sub: Allow"
    wrong = operator.ask(7720, body=question.replace(b"sub", b"jump"))
    assert (wrong.code, "not an action" in (wrong.remark or "")) == (1, True)

    asked = Exchange().connect().ask(7720, body=question)
    assert json.loads(asked.body) == {"answers": []}


def test_figures_tell_of_refusals_and_of_stale_files() -> None:
    exchange = world()

    def figure(name: str) -> float:
        families = exchange.core.measure(exchange.now_ms)
        (family,) = [one for one in families if one.name == name]
        (sample,) = family.samples
        assert isinstance(sample, Sample)
        return sample.value

    come(exchange, "stranger").send("T")
    assert figure("escrowmq_denied_requests") == 1
    assert figure("escrowmq_limited_requests") == 0
    assert figure("escrowmq_accounts_stale") == 0
    exchange.disk.small["plain_acl.yml"] = b"accounts: ["
    exchange.advance(2_000)
    assert figure("escrowmq_accounts_stale") == 1


# -- frames of strangers -------------------------------------------------------------------------


def test_a_frame_beyond_a_message_is_read_of_who_has_proved_who_he_is() -> None:
    exchange = world()
    size = exchange.store_settings.body_size_max + 2 * 1024 * 1024
    stranger, owner = exchange.connect(), come(exchange, "owner-1")
    stranger.ask(105, {"topic": "T"})
    stranger.begin(310, {"b": "T"}, bytes(size))
    assert stranger.closed is not None
    owner.ask(Request.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
    assert owner.ask(310, {"b": "T"}, bytes(size)).code != 0
    assert owner.closed is None


def test_half_frames_of_strangers_take_no_room_from_accounts() -> None:
    exchange = world()
    front = exchange.core.remoting
    owner = come(exchange, "owner-1")
    owner.ask(Request.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
    exchange.core.receive(owner.id, bytes(7), exchange.now_ms)
    for _ in range(3):
        exchange.core.receive(exchange.connect().id, bytes(5), exchange.now_ms)
    assert (front.half_frames.size, front.strangers_half_frames.size) == (7, 15)
    for caller in list(exchange.callers.values()):
        exchange.leave(caller)
    assert (front.half_frames.size, front.strangers_half_frames.size) == (0, 0)


# -- certificates --------------------------------------------------------------------------------

USERS = b"""{"acls": [
  {"subject": "User:owner-1", "policies": [{"policyType": "CUSTOM", "entries": [
    {"resource": "Topic:T", "actions": ["Pub", "Sub"], "decision": "Allow"}]}]}],
 "users": [
  {"username": "operator", "password": "secret-of-all", "userType": "Super"},
  {"username": "owner-1", "password": "secret-of-all"},
  {"username": "thief-1", "password": "secret-of-all"}]}"""


def world_of(kind: str) -> Exchange:
    if kind == "1.0":
        return world()
    disk = SimDisk()
    disk.small["config/auth.json"] = USERS
    exchange = Exchange(BrokerSettings(authenticates=True, authorizes=True), disk=disk)
    come(exchange, "operator").ask(17, topic("T"))
    come(exchange, "operator").ask(17, topic("other"))
    return exchange


def certified(exchange: Exchange, account: str) -> Caller:
    caller = exchange.connect(host="10.0.0.1")
    exchange.core.set_certificate_account(caller.id, account)
    return caller


@pytest.mark.parametrize("kind", ["1.0", "2.0"])
def test_a_certificate_is_as_good_as_a_signature_and_no_better(kind: str) -> None:
    exchange = world_of(kind)
    owner = certified(exchange, "owner-1")
    assert owner.send("T").code == 0
    assert owner.send("other").code != 0
    assert owner.ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code != 0
    assert owner.send("T").code == 0
    assert certified(exchange, "nobody-1").send("T").code != 0
    assert exchange.connect(host="10.0.0.1").send("T").code != 0
    operator = certified(exchange, "operator")
    assert operator.ask(17, topic("new")).code == 0


@pytest.mark.parametrize("kind", ["1.0", "2.0"])
def test_who_names_himself_has_to_sign_whatever_his_certificate_says(kind: str) -> None:
    exchange = world_of(kind)
    gateway = certified(exchange, "thief-1")
    gateway.credentials = ("owner-1", SECRET)
    assert gateway.send("T").code == 0  # passes on what the owner has signed
    gateway.credentials = ("owner-1", "another secret")
    assert gateway.send("T").code != 0
    gateway.credentials = None
    assert gateway.send("T").code != 0  # its own again, which has no right to this topic
    claim = {"b": "T", "AccessKey": "owner-1"}
    assert gateway.ask(Request.SEND_MESSAGE_V2, claim).code != 0
    owner = certified(exchange, "owner-1")
    owner.credentials = ("owner-1", "another secret")
    assert owner.send("T").code != 0  # a wrong signature is wrong


@pytest.mark.parametrize("kind", ["pull", "pop", "notify"])
def test_a_poll_of_a_certificate_ends_when_its_right_is_withdrawn(kind: str) -> None:
    exchange = world()
    pending = hold(exchange, certified(exchange, "owner-1"), kind)
    assert not pending
    exchange.disk.small["plain_acl.yml"] = WITHOUT
    exchange.advance(2_000)
    assert pending.now.code == 1


def test_a_member_by_certificate_is_shown_the_halves_that_it_may_see() -> None:
    exchange = world()
    owner = certified(exchange, "owner-1")
    owner.heartbeat(producer="PG")
    owner.prepare("T")
    thief = certified(exchange, "thief-1")
    thief.heartbeat(producer="PG")
    owner.leave()
    exchange.advance(120_000)
    assert thief.take(CHECK) == []
    owner = certified(exchange, "owner-1")
    owner.heartbeat(producer="PG")
    exchange.advance(60_000)
    assert len(owner.take(CHECK)) > 0


def test_without_access_control_a_certificate_changes_nothing() -> None:
    exchange = Exchange()
    exchange.create_topic("T")
    caller = certified(exchange, "owner-1")
    assert caller.send("T").code == 0
