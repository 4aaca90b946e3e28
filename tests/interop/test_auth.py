"""ACL 2.0 with real clients: users and policies made by mqadmin and ours, and what they allow."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import escrowmq
from escrowmq.errors import PermissionDenied

from . import wire
from .drivers import ClientError, Driver, JavaDriver, unique
from .servers import Server
from .test_acl_rules import signed

pytestmark = pytest.mark.ours_alone

SECRET = "secret-7-of-them"
OPERATOR: dict[str, Any] = {"accessKey": "operator", "secretKey": SECRET}


@pytest.fixture(scope="module")
def guarded(server_factory: Callable[..., Server]) -> Server:
    return server_factory(
        authenticationEnabled=True,
        authorizationEnabled=True,
        initAuthenticationUser=json.dumps({"username": "operator", "password": SECRET}),
        transactionTimeOut=1_000,
        transactionCheckInterval=1_000,
    )


@pytest.fixture(scope="module")
def admin(guarded: Server) -> Iterator[escrowmq.Admin]:
    who = escrowmq.Credentials("operator", SECRET)
    with escrowmq.Admin(guarded.nameserver, credentials=who) as opened:
        yield opened


@pytest.fixture
def user(admin: escrowmq.Admin) -> dict[str, str]:
    """A user who may do nothing yet."""
    name = unique("user")
    admin.access.create_user(name, SECRET)
    return {"accessKey": name, "secretKey": SECRET}


@pytest.fixture
def place(admin: escrowmq.Admin) -> str:
    name = unique("T")
    admin.topics.create(name, queues=2)
    return name


@pytest.fixture
def mqadmin(java: JavaDriver, guarded: Server) -> Callable[..., str]:
    """The tool, in the super user's name unless it is told another."""

    def run(verb: str, *arguments: str, **signer: str) -> str:
        where = ("-b", guarded.broker, "-n", guarded.nameserver)
        return java.mqadmin(verb, *where, *arguments, **(signer or OPERATOR))

    return run


def test_mqadmin_makes_shows_and_removes_users_and_policies(mqadmin: Callable[..., str]) -> None:
    name = unique("user")
    subject = ("-s", f"User:{name}")
    assert "success" in mqadmin("createUser", "-u", name, "-p", SECRET)
    wish = ("-r", "Topic:a*,Group:g", "-a", "Pub,Sub", "-i", "127.0.0.1,10.0.0.0/8", "-d", "Allow")
    assert "success" in mqadmin("createAcl", *subject, *wish)
    shown = mqadmin("getAcl", *subject)
    for text in ("Topic:a*", "Group:g", "Pub", "10.0.0.0/8", "Allow"):
        assert text in shown
    assert "success" in mqadmin("deleteAcl", *subject, "-r", "Group:g")
    assert "success" in mqadmin("updateUser", "-u", name, "-s", "disable")
    listed = mqadmin("listUser", "-f", name)
    assert "disable" in listed
    assert SECRET not in listed


def test_mqadmin_needs_rights_to_the_cluster(
    mqadmin: Callable[..., str], admin: escrowmq.Admin, user: dict[str, str]
) -> None:
    assert "has no permission to access Cluster:DefaultCluster" in mqadmin("listUser", **user)
    admin.access.put_policy(user["accessKey"], "Cluster:*", ["Get"])
    assert "operator" in mqadmin("listUser", **user)


@pytest.mark.parametrize("client", ["java-5.3.3", "go"], indirect=True)
def test_who_may_sends_receives_and_commits(
    guarded: Server, admin: escrowmq.Admin, client: Driver, user: dict[str, Any], place: str
) -> None:
    group = unique("CG")
    # The Java consumer asks for the ends of queues, for which RocketMQ wants Get as well.
    for resource in (f"Topic:{place}", f"Group:{group}"):
        admin.access.put_policy(user["accessKey"], resource, ["Pub", "Sub", "Get"])
    consumer = client.consumer(guarded.nameserver, place, group=group, **user)
    assert client.producer(guarded.nameserver, **user).send(place, "plain").status == "SEND_OK"
    halves = client.transaction_producer(guarded.nameserver, **user)
    halves.transaction(place, "ended", keys="k-1", outcome="COMMIT")
    # At RocketMQ a Java client's answer to a check is refused: it names the topic of halves.
    halves.transaction(place, "checked", keys="k-2", outcome="UNKNOWN", checks=["COMMIT"])
    assert {got.text for got in consumer.received(3)} == {"plain", "ended", "checked"}


@pytest.mark.parametrize("client", ["java-5.3.3", "go"], indirect=True)
def test_who_may_not_is_told_why(
    guarded: Server, admin: escrowmq.Admin, client: Driver, user: dict[str, str], place: str
) -> None:
    admin.access.put_policy(user["accessKey"], f"Topic:{place}", ["Sub"])
    for signer, reason in (
        ({}, "username cannot be null"),
        ({**user, "secretKey": "not the secret"}, "check signature failed"),
        (user, "no matched policies"),
    ):
        producer = client.producer(guarded.nameserver, **signer)
        with pytest.raises(ClientError) as caught:
            producer.send(place, "never", queueId=0)
        assert reason in caught.value.text


def test_our_own_client_is_let_in_and_told_why_not(
    guarded: Server, admin: escrowmq.Admin, user: dict[str, str], place: str
) -> None:
    name = user["accessKey"]
    who = escrowmq.Credentials(name, SECRET)
    with escrowmq.Producer(guarded.nameserver, group=unique("PG"), credentials=who) as producer:
        with pytest.raises(PermissionDenied, match="no matched policies"):
            producer.send(place, b"never")
        admin.access.put_policy(name, f"Topic:{place}", ["Pub"])
        assert producer.send(place, b"now").message_id
        admin.access.update_user(name, is_enabled=False)
        with pytest.raises(PermissionDenied, match="is disabled"):
            producer.send(place, b"never")


def test_our_own_admin_client_knows_users_and_policies(
    admin: escrowmq.Admin, user: dict[str, str]
) -> None:
    access, name = admin.access, user["accessKey"]
    access.put_policy(name, "Topic:a*", ["Pub", "Sub"], sources=["10.0.0.0/8"])
    access.put_policy(name, "Topic:ab*", ["Pub"], decision="Deny")
    access.put_policy(name, "*", ["All"], decision="Deny", is_default=True)
    found = access.policies(name)
    assert {(one.resource, one.decision, one.policy_type) for one in found} == {
        ("Topic:a*", "Allow", "Custom"), ("Topic:ab*", "Deny", "Custom"), ("*", "Deny", "Default"),
    }  # fmt: skip
    (answer,) = access.explain(name, "pub", "abc", address="10.1.1.1")
    assert not answer.is_allowed
    assert answer.decided_by == "custom entry Topic:ab* Pub: Deny"
    allowed = "custom entry Topic:a* Pub|Sub from 10.0.0.0/8: Allow"
    assert f"{allowed} matches, and counts less" in answer.steps
    (answer,) = access.explain(name, "pub", "acd", address="10.1.1.1")
    assert (answer.is_allowed, answer.decided_by) == (True, allowed)
    (answer,) = access.explain(name, "sub", "abc")
    assert (answer.is_allowed, answer.decided_by) == (False, "default entry * All: Deny")
    access.delete_policy(name, "Topic:ab*")
    access.delete_policy(name, "*", is_default=True)
    assert [one.resource for one in access.policies(name)] == ["Topic:a*"]
    access.update_user(name, is_super=True, password="another-secret")
    (shown,) = access.users(name)
    assert (shown.is_super, shown.is_enabled) == (True, True)
    access.delete_user(name)
    assert access.users(name) == []


def test_no_request_is_misjudged_while_policies_change(
    guarded: Server, admin: escrowmq.Admin, place: str
) -> None:
    steady, changing = unique("user"), unique("user")
    for name in (steady, changing):
        admin.access.create_user(name, SECRET)
    admin.access.put_policy(steady, f"Topic:{place}", ["Get"])
    ends = threading.Event()

    def judged(name: str, topic: str) -> int:
        fields = signed(name, {"topic": topic, "queueId": "0"}, b"", SECRET)
        return wire.ask(guarded.broker, 30, fields).code

    def load() -> list[tuple[int, int]]:
        seen = []
        while not ends.is_set():
            seen.append((judged(steady, place), judged(steady, "another")))
        return seen

    with ThreadPoolExecutor(2) as pool:
        loads = [pool.submit(load) for _ in range(2)]
        for number in range(60):
            decision: Any = ("Allow", "Deny")[number % 2]
            admin.access.put_policy(changing, f"Topic:{place}", ["Get"], decision=decision)
            # What the answer promises counts for the next request.
            assert judged(changing, place) == (0, 16)[number % 2]
            admin.access.put_policy(steady, f"Topic:filler-{number}", ["Get"], decision=decision)
        ends.set()
        seen = [pair for each in loads for pair in each.result()]
    assert len(seen) > 100
    assert set(seen) == {(0, 16)}
