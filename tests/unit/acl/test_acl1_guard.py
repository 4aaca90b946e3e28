from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.acl.acl1_accounts import ANY, DENY, PUB, SUB, merge_files, read_accounts
from escrowmq.acl.acl1_guard import includes_right, is_signed, refusal
from escrowmq.acl.trusted_addresses import AddressParts, address_parts
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.codec.signature import sign_fields
from tests.unit.acl.rights import rights_of

FILE = b"""
globalWhiteRemoteAddresses: [10.10.103.*]
accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress: 10.0.0.7
  defaultGroupPerm: SUB
  topicPerms: [topicA=DENY, topicB=PUB|SUB, topicC=SUB]
  groupPerms: [groupA=DENY, groupB=PUB|SUB, groupC=SUB]
- accessKey: rocketmq2
  secretKey: 12345678
  admin: true
"""
RULES = merge_files([("f", read_accounts(FILE))], default="f")
ELSEWHERE = address_parts("10.0.0.1")


class Empty:
    reply_topic = "DefaultCluster_REPLY_TOPIC"

    def topics_of_end(self, request: Command) -> Iterable[str]:
        return ()

    def topic_at(self, log_offset: int) -> str | None:
        return None

    def has_offsets(self, group: str, topic: str) -> bool:
        return group == "g" and topic.startswith("%RETRY%g_")

    def request_topic_of_reply(self, properties: Mapping[str, str]) -> str | None:
        return "asked" if properties.get("CORRELATION_ID") == "known" else None

    def has_topic(self, topic: str) -> bool:
        return False


def request(
    code: int = 310,
    *,
    key: str | None = "RocketMQ",
    secret: str = "12345678",
    body: bytes = b"",
    version: int = 479,
    **fields: str,
) -> Command:
    ext = dict(fields)
    if key is not None:
        ext["AccessKey"] = key
        ext["Signature"] = sign_fields(ext, body, secret=secret)
    return Command(code=code, ext=ext, body=body, version=version)


def judged(asked: Command, *, parts: AddressParts = ELSEWHERE, as_rocketmq: bool = False) -> str:
    return refusal(RULES, asked, parts, rights_of(asked, Empty(), as_rocketmq=as_rocketmq).needs)


# Golden: the secret `12345678`, taken from a broker 5.3.2 that let them in.
@pytest.mark.parametrize(
    ("fields", "body", "signature"),
    [
        ({"AccessKey": "rocketmq2"}, b"", "Ou1T58RIcyZWaTIwzkhJZWn/Zvs="),
        ({"AccessKey": "rocketmq2", "topic": "TopicA"}, b"", "yvZvKMqXR7E4uBCgkiiGE2OZ9Zg="),
        (
            {"AccessKey": "RocketMQ", "queueId": "0", "topic": "topicB"},
            b"",
            "80p4sQPjflbpgzzqueyBAdy0mGQ=",
        ),
        (
            {"AccessKey": "RocketMQ", "SecurityToken": "tok", "a": "PG", "b": "topicB"},
            b"hi",
            "Lyg8r2cf6xSnV+GRda0WdiyI0XA=",
        ),
    ],
)
def test_signatures_of_the_peers_clients(
    fields: Mapping[str, str], body: bytes, signature: str
) -> None:
    command = Command(ext={**fields, "Signature": signature}, body=body, version=479)
    assert is_signed(command, "12345678")
    assert not is_signed(command, "12345679")
    command.body += b"x"
    assert not is_signed(command, "12345678")


@pytest.mark.parametrize(("version", "is_right"), [(399, True), (401, False)])
def test_old_clients_mark_a_query_after_they_have_signed(version: int, is_right: bool) -> None:
    command = request(12, topic="topicC", version=version)
    assert command.ext is not None
    command.ext["_UNIQUE_KEY_QUERY"] = "true"
    assert is_signed(command, "12345678") is is_right


def test_the_order_of_the_checks() -> None:
    assert judged(request(key=None), parts=address_parts("10.10.103.9")) == ""
    assert judged(Command(code=310)) == "No accessKey is configured"
    assert judged(request(key="")) == "No accessKey is configured"
    assert judged(request(key="nobody")) == "No acl config for nobody"
    wrong = request(17, secret="another", topic="topicA")
    assert judged(wrong, parts=address_parts("10.0.0.7")) == ""
    assert judged(wrong) == "Check signature failed for accessKey=RocketMQ"
    assert judged(request(17, key="rocketmq2", topic="topicA")) == ""
    needed = "Need admin permission for request code=17, but accessKey=RocketMQ is not"
    assert judged(request(17, topic="topicB")) == needed


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        ("topicB", ""),
        ("topicA", "No permission for topic:topicA"),
        ("topicC", "No permission for topic:topicC"),
        ("topicX", "No default permission for topic:topicX"),
        ("%RETRY%groupA", "No permission for group:groupA"),
        ("%RETRY%groupC", ""),
        ("%RETRY%groupX", ""),
        ("RMQ_SYS_TRACE_TOPIC", ""),
        ("", "No default permission for topic:"),
    ],
)
def test_sends_by_their_topic(topic: str, text: str) -> None:
    for code, field in ((10, "topic"), (310, "b"), (320, "b")):
        fields: dict[str, Any] = {field: topic}
        assert judged(request(code, **fields)) == text


def test_everybody_s_default_does_not_open_what_has_no_name() -> None:
    assert judged(request(38)) == "No default permission for group:"


def test_what_the_peer_leaves_open_needs_rights_here_unless_parity_is_wanted() -> None:
    pull = request(Request.LITE_PULL_MESSAGE, consumerGroup="groupC", topic="topicA")
    assert judged(pull) == "No permission for topic:topicA"
    assert judged(pull, as_rocketmq=True) == ""
    unknown = request(9999)
    assert judged(unknown).startswith("Need admin permission for request code=9999")
    assert judged(unknown, as_rocketmq=True) == ""
    assert judged(request(9999, key="rocketmq2")) == ""


def test_a_signature_that_no_signer_can_have_made_is_wrong() -> None:
    command = request()
    assert command.ext is not None
    command.ext["topic"] = "\ud800"
    assert judged(command) == "Check signature failed for accessKey=RocketMQ"
    del command.ext["topic"]
    command.ext["Signature"] = "\udfff"
    assert judged(command) == "Check signature failed for accessKey=RocketMQ"


@pytest.mark.parametrize(
    ("owned", "needed", "has"),
    [
        (PUB, PUB, True), (PUB, SUB, False), (PUB | SUB, SUB, True), (DENY, PUB, False),
        (DENY | PUB, PUB, False), (PUB, ANY, True), (SUB, ANY, True), (DENY, ANY, False),
    ],
)  # fmt: skip
def test_rights(owned: int, needed: int, has: bool) -> None:
    assert includes_right(owned, needed) is has


@given(
    ext=st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=6),
    body=st.binary(max_size=20),
    code=st.integers(-9, 400),
)
def test_who_has_no_secret_never_gets_in(ext: dict[str, str], body: bytes, code: int) -> None:
    for key in ("RocketMQ", "rocketmq2"):
        forged = Command(code=code, ext={**ext, "AccessKey": key}, body=body)
        assert judged(forged) == f"Check signature failed for accessKey={key}"
