"""Users and policies at the broker's door: requests 3001 to 3010, and what they change."""

from __future__ import annotations

import json
from typing import Any

import pytest

from escrowmq.acl.acl2_users import PATH
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.broker.access.on_acl2 import read_auth_requirements
from escrowmq.errors import UsageError
from escrowmq.testing.disk import SimDisk
from tests.harness.exchange import COMMIT, Caller, Exchange

SECRET = "secret-of-all"
FIRST = json.dumps({"username": "operator", "password": SECRET})


def settings(**more: Any) -> BrokerSettings:
    given: dict[str, Any] = {"authenticates": True, "authorizes": True, "first_user": FIRST}
    return BrokerSettings(**(given | more))


def world(disk: SimDisk | None = None, **more: Any) -> Exchange:
    return Exchange(settings(**more), disk=disk)


def come(exchange: Exchange, name: str | None, host: str = "10.0.0.1") -> Caller:
    caller = exchange.connect(host=host)
    caller.credentials = None if name is None else (name, SECRET)
    return caller


def body(value: object) -> bytes:
    return json.dumps(value).encode()


def policy(resource: str, *actions: str, decision: str = "Allow") -> bytes:
    entry = {"resource": resource, "actions": list(actions), "decision": decision}
    return body({"policies": [{"policyType": "Custom", "entries": [entry]}]})


@pytest.fixture(name="exchange")
def make_exchange() -> Exchange:
    return world()


@pytest.fixture(name="operator")
def make_operator(exchange: Exchange) -> Caller:
    return come(exchange, "operator")


def create(operator: Caller, name: str, **more: str) -> Caller:
    reply = operator.ask(3001, {"username": name}, body({"password": SECRET} | more))
    assert (reply.code, reply.remark) == (0, "not set any response code")
    return come(operator.exchange, name)


def test_the_first_user_makes_others(exchange: Exchange, operator: Caller) -> None:
    user = create(operator, "orders")
    assert user.send("T").remark == (
        "User:orders has no permission to access Topic:T from 10.0.0.1, no matched policies."
    )
    assert operator.ask(3006, {"subject": "User:orders"}, policy("Topic:T", "Pub")).code == 0
    assert user.send("T").code == 0
    assert come(exchange, None).send("T").remark == "username cannot be null."
    assert come(exchange, "nobody").send("T").code == 16


def test_users_and_policies_are_there_after_a_restart(exchange: Exchange, operator: Caller) -> None:
    create(operator, "orders")
    operator.ask(3006, {"subject": "User:orders"}, policy("Topic:T", "Pub"))
    exchange.crash()
    assert come(exchange, "orders").send("T").code == 0
    assert PATH in exchange.disk.private


def test_what_is_asked_about_users_is_answered_without_passwords(operator: Caller) -> None:
    create(operator, "orders")
    shown = operator.ask(3004, {"username": "orders"})
    assert json.loads(shown.body) == {
        "userStatus": "enable", "userType": "Normal", "username": "orders",
    }  # fmt: skip
    assert operator.ask(3004, {"username": "nobody"}).body == b""
    assert operator.ask(3004, {"username": " "}).code == 29
    listed = json.loads(operator.ask(3005, {"filter": "o"}).body)
    assert [user["username"] for user in listed] == ["operator", "orders"]
    assert operator.ask(3005, {"filter": "x"}).body == b""
    assert SECRET not in str(listed)


def test_as_the_peer_passwords_are_shown() -> None:
    operator = come(world(acl_as_rocketmq=True), "operator")
    shown = json.loads(operator.ask(3004, {"username": "operator"}).body)
    assert shown["password"] == SECRET


def test_policies_are_shown_and_removed(operator: Caller) -> None:
    create(operator, "orders")
    subject = {"subject": "User:orders"}
    assert operator.ask(3009, subject).body == b""
    for resource in ("Topic:T", "Group:G"):
        operator.ask(3007, subject, policy(resource, "Sub"))
    shown = json.loads(operator.ask(3009, subject).body)
    assert [e["resource"] for e in shown["policies"][0]["entries"]] == ["Topic:T", "Group:G"]
    assert json.loads(operator.ask(3010, {"resourceFilter": "Group"}).body)[0]["subject"] == (
        "User:orders"
    )
    # A resource that cannot be read removes nothing; RocketMQ removes everything then.
    refused = operator.ask(3008, subject | {"resource": "Topics:T"})
    assert (refused.code, "nothing is removed" in (refused.remark or "")) == (16, True)
    assert operator.ask(3008, subject | {"resource": "Topic:T"}).code == 0
    shown = json.loads(operator.ask(3009, subject).body)
    assert [e["resource"] for e in shown["policies"][0]["entries"]] == ["Group:G"]
    assert operator.ask(3008, subject).code == 0
    assert operator.ask(3010).body == b""
    assert operator.ask(3009, {"subject": "User:nobody"}).remark == "The subject is not exist."


def test_a_resource_that_would_mean_more_removes_nothing(operator: Caller) -> None:
    create(operator, "orders")
    subject = {"subject": "User:orders"}
    operator.ask(3006, subject, policy("Topic:*", "All", decision="Deny"))
    reply = operator.ask(3008, subject | {"resource": "Topic:*-public*"})
    assert (reply.code, "nothing is removed" in (reply.remark or "")) == (16, True)
    assert operator.ask(3009, subject).body


def test_as_the_peer_who_may_change_the_cluster_changes_users_but_no_super_user(
    caplog: pytest.LogCaptureFixture,
) -> None:
    operator = come(world(acl_as_rocketmq=True), "operator")
    assert caplog.text.count("requires no more rights than RocketMQ does") == 1
    deputy = create(operator, "deputy")
    operator.ask(3006, {"subject": "User:deputy"}, policy("Cluster:*", "All"))
    made = deputy.ask(3001, {"username": "x"}, body({"password": SECRET, "userType": "Super"}))
    assert (made.code, made.remark) == (1, "The super user can only be create by super user")
    raised = deputy.ask(3002, {"username": "deputy"}, body({"userType": "Super"}))
    assert (raised.code, raised.remark) == (1, "The super user can only be update by super user")
    taken = deputy.ask(3002, {"username": "operator"}, body({"password": "mine"}))
    assert (taken.code, taken.remark) == (16, "The super user can only be update by super user")
    assert deputy.ask(3003, {"username": "operator"}).code == 16
    assert deputy.ask(3001, {"username": "x"}, body({"password": SECRET})).code == 0
    assert deputy.ask(3003, {"username": "x"}).code == 0


@pytest.mark.parametrize("code", range(3001, 3011))
def test_users_and_policies_are_for_super_users_and_shown_to_who_may_see_the_cluster(
    operator: Caller, code: int
) -> None:
    user = create(operator, "orders")
    operator.ask(3006, {"subject": "User:orders"}, policy("Topic:*", "All"))
    fields = {"username": "orders", "subject": "User:orders"}
    reply = user.ask(code, fields, policy("*", "All"))
    assert reply.code == 16
    shows = code in (3004, 3005, 3009, 3010)
    why = "to access Cluster:DefaultCluster" if shows else "for super users"
    assert why in (reply.remark or "")
    operator.ask(3006, {"subject": "User:orders"}, policy("*", "All"))
    assert user.ask(code, fields, policy("*", "All")).code == (0 if shows else 16)


def test_the_right_to_the_cluster_does_not_lead_to_data_by_another_user(operator: Caller) -> None:
    deputy = create(operator, "deputy")
    operator.ask(3006, {"subject": "User:deputy"}, policy("Cluster:*", "All"))
    create(operator, "owner")
    operator.ask(3006, {"subject": "User:owner"}, policy("Topic:T", "All"))
    taken = deputy.ask(3002, {"username": "owner"}, body({"password": "mine"}))
    given = deputy.ask(3006, {"subject": "User:deputy"}, policy("Topic:T", "All"))
    made = deputy.ask(3001, {"username": "x"}, body({"password": SECRET}))
    assert [reply.code for reply in (taken, given, made)] == [16, 16, 16]
    assert come(operator.exchange, "owner").send("T").code == 0
    assert deputy.send("T").code == 16


@pytest.mark.parametrize("code", range(3001, 3011))
def test_while_nobody_is_authenticated_they_are_served_on_loopback_alone(code: int) -> None:
    exchange = Exchange()
    fields = {"username": "u", "subject": "User:u"}
    far = exchange.connect(host="10.0.0.9").ask(code, fields, body({"password": SECRET}))
    assert (far.code, "loopback" in (far.remark or "")) == (16, True)
    near = exchange.connect(host="127.0.0.1").ask(code, fields, body({"password": SECRET}))
    assert "loopback" not in (near.remark or "")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b'{"policies":7}', b'{"password":7}'])
@pytest.mark.parametrize("code", [3001, 3002, 3006, 3007])
def test_bodies_that_cannot_be_read_change_nothing(
    exchange: Exchange, operator: Caller, code: int, data: bytes
) -> None:
    create(operator, "orders")
    before = exchange.disk.small[PATH]
    fields = {"username": "orders", "subject": "User:orders"}
    assert operator.ask(code, fields, data).code in (0, 1, 16)
    assert exchange.disk.small[PATH] == before


def test_on_loopback_the_first_super_user_may_be_made_before_anybody_is_asked() -> None:
    exchange = Exchange()
    near = exchange.connect(host="127.0.0.1")
    wish = body({"password": SECRET, "userType": "Super"})
    assert near.ask(3001, {"username": "first"}, wish).code == 0
    near.credentials = ("nobody", SECRET)
    unknown = near.ask(3001, {"username": "second"}, wish)
    assert (unknown.code, unknown.remark) == (16, "User:nobody is not found")


@pytest.mark.parametrize("code", [3001, 3002])
def test_a_user_has_a_name(operator: Caller, code: int) -> None:
    reply = operator.ask(code, {"username": ""}, body({"password": SECRET}))
    assert (reply.code, reply.remark) == (29, "The username is blank")


# -- settings ------------------------------------------------------------------------------------


def test_the_first_users_are_made_once(exchange: Exchange, operator: Caller) -> None:
    operator.ask(3002, {"username": "operator"}, body({"password": "another-secret"}))
    exchange.reopen()
    caller = exchange.connect()
    caller.credentials = ("operator", "another-secret")
    assert caller.ask(Request.GET_BROKER_CONFIG).code == 0


def test_a_user_for_brokers_is_made() -> None:
    inner = json.dumps({"accessKey": "inner", "secretKey": SECRET})
    assert come(world(inner_user=inner), "inner").ask(Request.GET_BROKER_CONFIG).code == 0


@pytest.mark.parametrize("text", ["operator", '{"username":"u"}', '{"password":"p"}', "[]", "{"])
def test_a_first_user_that_cannot_be_read_keeps_the_broker_from_starting(text: str) -> None:
    with pytest.raises(UsageError, match="initAuthenticationUser"):
        world(first_user=text)


def test_no_password_stands_in_a_refusal_to_start_or_in_shown_settings() -> None:
    with pytest.raises(UsageError) as caught:
        world(first_user=f'{{"username":"u","password":"{SECRET}"')
    assert SECRET not in str(caught.value)
    exchange = world()
    shown = come(exchange, "operator").ask(Request.GET_BROKER_CONFIG)
    assert SECRET.encode() not in shown.body
    assert SECRET not in repr(exchange.settings)


def test_rights_without_names_are_a_contradiction() -> None:
    with pytest.raises(UsageError, match="rights can only be checked"):
        world(authenticates=False)


def test_codes_that_are_left_open_are_numbers() -> None:
    terms = read_auth_requirements(
        settings(unauthenticated=" 310, 34,", unauthorized="apache.v2.Send,10")
    )
    assert (terms.unauthenticated, terms.unauthorized) == (frozenset({310, 34}), frozenset({10}))
    for bad in ("all", "-1", "1;2", "9" * 10):
        with pytest.raises(UsageError, match="authenticationWhitelist"):
            read_auth_requirements(settings(unauthenticated=bad))


def test_settings_of_the_door_are_not_changed_over_the_wire(operator: Caller) -> None:
    for line in (
        b"authenticationEnabled=false", b"authorizationEnabled=false",
        b"authenticationWhitelist=310", b"initAuthenticationUser={}",
        b"innerClientAuthenticationCredentials={}", b"migrateAuthFromV1Enabled=true",
    ):  # fmt: skip
        assert operator.ask(25, body=line).code == 16


def test_a_broken_file_keeps_the_broker_from_starting() -> None:
    disk = SimDisk()
    disk.small[PATH] = b'{"users": ['
    with pytest.raises(UsageError, match=r"auth\.json"):
        world(disk)


ACCOUNTS = f"""
accounts:
- {{accessKey: operator, secretKey: {SECRET}, admin: true}}
- {{accessKey: service-1, secretKey: {SECRET}, topicPerms: [paid=PUB]}}
""".encode()


def test_accounts_of_acl_1_are_taken_over() -> None:
    disk = SimDisk()
    disk.small["plain_acl.yml"] = ACCOUNTS
    exchange = world(disk, takes_over_accounts=True, first_user="")
    come(exchange, "operator").send("paid")
    service = come(exchange, "service-1")
    assert service.send("paid").code == 0
    assert "the decision is deny." in (service.send("other").remark or "")
    exchange.reopen()
    assert come(exchange, "service-1").send("paid").code == 0


def test_both_acls_may_be_on_and_both_must_agree() -> None:
    disk = SimDisk()
    disk.small["plain_acl.yml"] = ACCOUNTS
    exchange = world(disk, acl_enabled=True)
    operator = come(exchange, "operator")
    operator.send("paid")
    service = come(exchange, "service-1")
    assert service.send("paid").remark == "User:service-1 is not found."
    create(operator, "service-1")
    operator.ask(3006, {"subject": "User:service-1"}, policy("Topic:*", "Pub"))
    assert service.send("paid").code == 0
    assert "AclException" in (service.send("other").remark or "")


# -- what is stored ------------------------------------------------------------------------------


def test_an_end_needs_the_right_to_the_topic_of_the_half(operator: Caller) -> None:
    half = operator.prepare("theirs")
    thief = create(operator, "thief")
    operator.ask(3006, {"subject": "User:thief"}, policy("Topic:mine", "Pub"))
    for fields in ({}, {"topic": "mine"}, {"topic": ""}):
        refused = thief.end(half, COMMIT, fields=fields)
        assert "to access Topic:theirs" in (refused.remark or "")
    assert operator.end(half, COMMIT).code == 0


def test_who_answers_a_check_needs_no_right_to_the_topic_of_halves(operator: Caller) -> None:
    """At RocketMQ a Java producer's answer, which names that topic, is refused."""
    user = create(operator, "orders")
    operator.ask(3006, {"subject": "User:orders"}, policy("Topic:paid", "Pub"))
    operator.send("paid")
    half = user.prepare("paid")
    answer = {"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}
    assert user.end(half, COMMIT, fields=answer, is_from_check=True).code == 0
