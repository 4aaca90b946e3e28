"""What is told agrees with what is done, and names the rule that does it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping

import pytest

from escrowmq.acl.access_explanation import explain_account, explain_user, question_access
from escrowmq.acl.acl1_accounts import Acl1Rules, merge_files, read_accounts
from escrowmq.acl.acl1_guard import refusal as account_refusal
from escrowmq.acl.acl2_guard import AuthRequirements, missing_right
from escrowmq.acl.acl2_guard import refusal as user_refusal
from escrowmq.acl.acl2_users import UserTable
from escrowmq.acl.trusted_addresses import address_parts
from escrowmq.base.command import Command
from escrowmq.codec.acl2_bodies import (
    AccessQuestion,
    AclInfo,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
)
from escrowmq.codec.signature import sign_fields
from escrowmq.errors import UsageError
from escrowmq.testing.disk import SimDisk
from tests.unit.acl.rights import rights_of

SECRET = "a-long-secret"
TOPICS = ("orders", "orders-paid", "bills", "RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC")
HOSTS = ("10.0.0.1", "10.9.9.9", "192.168.0.1", "::1")


class Nowhere:
    reply_topic = "R"

    def topics_of_end(self, request: Command) -> list[str]:
        return []

    def topic_at(self, log_offset: int) -> str | None:
        return None

    def has_offsets(self, group: str, topic: str) -> bool:
        return group == "g" and topic.startswith("%RETRY%g_")

    def request_topic_of_reply(self, properties: Mapping[str, str]) -> str | None:
        return "asked" if properties.get("CORRELATION_ID") == "known" else None

    def has_topic(self, topic: str) -> bool:
        return False


def request(user: str, action: str, topic: str) -> Command:
    """A request that needs just this right to just this topic."""
    code, field = (310, "b") if action == "pub" else (12, "topic")
    ext = {field: topic, "AccessKey": user}
    ext["Signature"] = sign_fields(ext, b"", secret=SECRET)
    return Command(code=code, opaque=1, ext=ext, version=479)


def question(user: str, action: str, topic: str, host: str = HOSTS[0]) -> AccessQuestion:
    return AccessQuestion(user=user, action=action, resource=topic, address=host)


FILE = f"""
globalWhiteRemoteAddresses: [192.168.0.1]
accounts:
- {{accessKey: operator, secretKey: {SECRET}, admin: true}}
- {{accessKey: nothing, secretKey: {SECRET}}}
- {{accessKey: readers, secretKey: {SECRET}, defaultTopicPerm: SUB, topicPerms: [bills=DENY]}}
- accessKey: writers
  secretKey: {SECRET}
  whiteRemoteAddress: 10.9.9.*
  defaultTopicPerm: PUB
  topicPerms: [orders=PUB|SUB]
  groupPerms: [g=SUB]
"""


@pytest.fixture(name="rules")
def make_rules() -> Acl1Rules:
    return merge_files([("plain_acl.yml", read_accounts(FILE.encode()))], default="plain_acl.yml")


def test_what_is_told_of_accounts_is_what_is_done(rules: Acl1Rules) -> None:
    users = ("operator", "nothing", "readers", "writers", "stranger")
    seen = set()
    for user, action, topic, host in itertools.product(users, ("pub", "sub"), TOPICS, HOSTS):
        told = explain_account(rules, question(user, action, topic, host))
        asked = request(user, action, topic)
        done = account_refusal(rules, asked, address_parts(host), rights_of(asked, Nowhere()).needs)
        assert told.is_allowed == (not done), (user, action, topic, host, told, done)
        assert told.decided_by == told.steps[-1]
        seen.add(told.is_allowed)
    assert seen == {True, False}


@pytest.mark.parametrize(
    ("user", "action", "resource", "rule"),
    [
        ("operator", "delete", "Cluster:c", "admin: true"),
        ("writers", "sub", "orders", "topicPerms: orders=PUB|SUB"),
        ("writers", "sub", "bills", "defaultTopicPerm=PUB"),
        ("writers", "sub", "Group:g", "groupPerms: g=SUB"),
        ("writers", "sub", "%RETRY%g", "groupPerms: g=SUB"),
        ("writers", "sub", "Group:h", "defaultGroupPerm=DENY"),
        ("writers", "create", "orders", "Create on Topic:orders is for administrators"),
        ("writers", "any", "orders", "topicPerms: orders=PUB|SUB"),
        ("nothing", "pub", "RMQ_SYS_TRACE_TOPIC", "any account may write traces"),
        ("stranger", "pub", "orders", "there is no account stranger"),
    ],
)
def test_the_rule_that_decides_is_named(rules: Acl1Rules, user: str, action: str, resource: str,
                                        rule: str) -> None:  # fmt: skip
    assert explain_account(rules, question(user, action, resource)).decided_by == rule


def some_book(chance: random.Random) -> UserTable:
    book = UserTable(SimDisk())
    book.create_user(UserInfo("root", SECRET, user_type="Super"))
    book.create_user(UserInfo("gone", SECRET, user_status="disable"))
    for number in range(6):
        name = f"user-{number}"
        book.create_user(UserInfo(name, SECRET))
        for kind in ("Custom", "Default"):
            resources = ["Topic:orders", "Topic:orders*", "Topic:o*", "*", "Topic:*", "Group:*"]
            entries = [
                PolicyEntryInfo(
                    resource=resource,
                    actions=chance.sample(["Pub", "Sub", "Get", "All"], 2),
                    source_ips=chance.choice([[], ["10.0.0.0/8"], ["::1"]]),
                    decision=chance.choice(["Allow", "Deny"]),
                )
                for resource in chance.sample(resources, chance.randrange(1, 5))
            ]
            policy = PolicyInfo(policy_type=kind, entries=entries)
            book.put_policies(f"User:{name}", AclInfo(policies=[policy]))
    return book


@pytest.mark.parametrize("seed", range(5))
def test_what_is_told_of_users_is_what_is_done(seed: int) -> None:
    book = some_book(random.Random(seed))
    terms = AuthRequirements(is_authorized=True)
    seen = set()
    users = [*book.users, "stranger"]
    for user, topic, host in itertools.product(users, TOPICS[:3], HOSTS):
        told = explain_user(book, question(user, "pub", topic, host))
        asked = request(user, "pub", topic)
        done = user_refusal(book, asked, host, rights_of(asked, Nowhere()), terms)
        assert told.is_allowed == (not done), (user, topic, host, told, done)
        seen.add(told.is_allowed)
    assert seen == {True, False}


@pytest.mark.parametrize("seed", range(5))
def test_what_is_told_of_the_brokers_own_topics_is_what_is_done(seed: int) -> None:
    chance, book, seen = random.Random(seed), UserTable(SimDisk()), set()
    inner = TOPICS[-1]
    resources = [f"Topic:{inner}", "Topic:RMQ_SYS_TRANS*", "Topic:RMQ*", "Topic:*", "*"]
    for number in range(8):
        book.create_user(UserInfo(f"user-{number}", SECRET))
        entries = [
            PolicyEntryInfo(
                resource=resource,
                actions=chance.sample(["Pub", "Sub", "Get", "All"], 2),
                decision=chance.choice(["Allow", "Allow", "Deny"]),
            )
            for resource in chance.sample(resources, chance.randrange(1, 3))
        ]
        policy = PolicyInfo(policy_type="Custom", entries=entries)
        book.put_policies(f"User:user-{number}", AclInfo(policies=[policy]))
        for action in ("Pub", "Sub", "Get"):
            asked = question(f"user-{number}", action, inner)
            told = explain_user(book, asked)
            user = book.users[asked.user]
            done = missing_right(book, user, question_access(asked), asked.address)
            assert told.is_allowed == (not done), (asked, entries, told, done)
            assert told.decided_by == told.steps[-1]
            seen.add(told.is_allowed)
    assert seen == {True, False}


def test_who_is_no_normal_user_is_told_so() -> None:
    book = some_book(random.Random(1))
    assert explain_user(book, question("root", "pub", "T")).decided_by == "root is a super user"
    assert explain_user(book, question("gone", "pub", "T")).decided_by == "user gone is disabled"
    named = explain_user(book, question("user-1", "pub", "T"), is_authorized=False)
    assert (named.is_allowed, named.decided_by) == (
        True, "authorizationEnabled=false: a name is enough",
    )  # fmt: skip
    inner = explain_user(book, question("user-1", "pub", TOPICS[-1]))
    assert (inner.is_allowed, "the broker's own" in inner.decided_by) == (False, True)
    peers = explain_user(book, question("user-1", "pub", TOPICS[-1]), as_rocketmq=True)
    assert "the broker's own" not in peers.decided_by


@pytest.mark.parametrize(
    ("action", "resource", "reason"),
    [("jump", "T", "not an action"), ("pub", "Topic:o*", "one topic"), ("pub", "", "one topic")],
)  # fmt: skip
def test_what_cannot_be_asked_is_told(action: str, resource: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        question_access(question("u", action, resource))
