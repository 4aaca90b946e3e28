"""Who may pass by ACL 2.0, and what each request needs there (acl2_accesses.py)."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from escrowmq.acl.acl2_accesses import FieldAccesses
from escrowmq.acl.acl2_guard import AuthRequirements, missing_right, refusal
from escrowmq.acl.acl2_users import UserTable
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.broker.requests.request_table import request_rows
from escrowmq.codec.acl2_bodies import AclInfo, UserInfo
from escrowmq.codec.client_bodies import decode_body
from escrowmq.codec.signature import sign_fields
from escrowmq.errors import RemoteProtocolError
from escrowmq.testing.disk import SimDisk
from tests.unit.acl.rights import rights_of

SECRET = "a-long-secret"
HOST = "10.0.0.1"
CLUSTER = "DefaultCluster"


class Nowhere:
    """No record is stored; there is one topic."""

    reply_topic = "DefaultCluster_REPLY_TOPIC"

    def topics_of_end(self, request: Command) -> list[str]:
        return ["stored"]

    def topic_at(self, log_offset: int) -> str | None:
        return "stored" if log_offset == 1 else None

    def has_offsets(self, group: str, topic: str) -> bool:
        return group == "g" and topic.startswith("%RETRY%g_")

    def request_topic_of_reply(self, properties: Mapping[str, str]) -> str | None:
        return "asked" if properties.get("CORRELATION_ID") == "known" else None

    def has_topic(self, topic: str) -> bool:
        return topic == "orders"


@pytest.fixture(name="book")
def make_book() -> UserTable:
    book = UserTable(SimDisk())
    book.create_user(UserInfo("root", SECRET, user_type="Super"))
    book.create_user(UserInfo("gone", SECRET, user_status="disable"))
    book.create_user(UserInfo("orders", SECRET))
    allow(book, "Topic:orders*", "Pub")
    allow(book, "Topic:orders-secret", "All", decision="Deny")
    return book


def allow(book: UserTable, resource: str, *actions: str, decision: str = "Allow") -> None:
    entry = {"resource": resource, "actions": list(actions), "decision": decision}
    body = json.dumps({"policies": [{"entries": [entry]}]}).encode()
    book.put_policies("User:orders", decode_body(AclInfo, body))


def ask(
    code: int, ext: dict[str, str] | None = None, body: bytes = b"", *, name: str | None = "orders"
) -> Command:
    found = dict(ext or {})
    if name is not None:
        found["AccessKey"] = name
        found["Signature"] = sign_fields(found, body, secret=SECRET)
    return Command(code=code, opaque=1, ext=found, body=body, version=479)


def terms(**more: object) -> AuthRequirements:
    given = {"is_authorized": True} | more
    return AuthRequirements(**given)  # type: ignore[arg-type]


def why(book: UserTable, request: Command, **more: object) -> str:
    asked_of = terms(**more)
    rights = rights_of(request, Nowhere(), as_rocketmq=asked_of.as_rocketmq)
    return refusal(book, request, HOST, rights, asked_of)


# -- who -----------------------------------------------------------------------------------------


def test_who_is_not_known_is_refused_in_the_words_of_the_peer(book: UserTable) -> None:
    assert why(book, ask(30, name=None)) == "username cannot be null."
    assert why(book, ask(30, name="nobody")) == "User:nobody is not found."
    assert why(book, ask(30, name="gone")) == "User:gone is disabled."
    forged = ask(30, {"topic": "orders"})
    assert forged.ext is not None
    forged.ext["topic"] = "orders2"
    assert why(book, forged) == "check signature failed."


def test_super_users_may_do_everything(book: UserTable) -> None:
    for code in (10, 25, 26, 3001, 7704, 9_999):
        assert why(book, ask(code, name="root")) == ""


def test_of_super_users_nothing_is_missing(book: UserTable) -> None:
    (access,) = rights_of(ask(25), Nowhere()).accesses()
    assert missing_right(book, book.users["root"], access, HOST) == ""


def test_without_authorization_a_name_is_enough(book: UserTable) -> None:
    assert why(book, ask(25), is_authorized=False) == ""
    assert why(book, ask(25, name=None), is_authorized=False) != ""


def test_requests_may_be_left_open_by_their_codes(book: UserTable) -> None:
    unsigned = ask(310, {"b": "orders"}, name=None)
    open_to_all = frozenset({310})
    assert why(book, unsigned, unauthenticated=open_to_all).startswith("Authorization failed")
    both = {"unauthenticated": open_to_all, "unauthorized": open_to_all}
    assert why(book, unsigned, **both) == ""
    assert why(book, ask(310, {"b": "theirs"}), unauthorized=open_to_all) == ""
    # A name that nobody has proved opens nothing.
    forged = ask(310, {"b": "orders"})
    assert forged.ext is not None
    forged.ext["Signature"] = "x"
    assert why(book, forged, unauthenticated=open_to_all).startswith("Authorization failed")


# -- what ----------------------------------------------------------------------------------------


def test_a_missing_right_is_told_in_the_words_of_the_peer(book: UserTable) -> None:
    front = "User:orders has no permission to access Topic:{} from 10.0.0.1, {}"
    assert why(book, ask(310, {"b": "orders-paid"})) == ""
    assert why(book, ask(310, {"b": "bills"})) == front.format("bills", "no matched policies.")
    allow(book, "Topic:bills", "Pub", decision="Deny")
    assert why(book, ask(310, {"b": "bills"})) == front.format("bills", "the decision is deny.")


def needs(code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> list[str]:
    found = rights_of(ask(code, ext, body), Nowhere()).accesses()
    return [_shown(access) for access in found]


def peer_needs(code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> list[str]:
    found = rights_of(ask(code, ext, body), Nowhere(), as_rocketmq=True).accesses()
    return [_shown(access) for access in found]


def _shown(access: object) -> str:
    resource, actions = access.resource, access.actions  # type: ignore[attr-defined]
    return f"{resource} {'|'.join(sorted(action.value for action in actions))}"


READ = {"topic": "T", "consumerGroup": "g"}


@pytest.mark.parametrize(
    ("code", "ext", "expected"),
    [
        (10, {"topic": "T"}, ["Topic:T Pub"]),
        (310, {"b": "T"}, ["Topic:T Pub"]),
        (320, {"b": "%RETRY%g", "a": "mine"}, ["Group:g Sub"]),
        (325, {"b": "DefaultCluster_REPLY_TOPIC"}, ["Topic:DefaultCluster_REPLY_TOPIC Pub"]),
        (325, {"b": "DefaultCluster_REPLY_TOPIC", "i": "CORRELATION_ID\x01known"},
         ["Topic:asked Sub"]),
        (11, READ, ["Group:g Sub", "Topic:T Sub"]),
        (361, READ, ["Group:g Sub", "Topic:T Sub"]),
        (200050, READ, ["Group:g Sub", "Topic:T Sub"]),
        (200055, READ, ["Group:g Get", "Topic:T Get"]),
        (12, {"topic": "T"}, ["Topic:T Get|Sub"]),
        (14, READ, ["Group:g Get|Sub", "Topic:T Get|Sub"]),
        (15, READ, ["Group:g Sub|Update", "Topic:T Sub|Update"]),
        (30, {"topic": "T"}, ["Topic:T Get"]),
        (33, {"offset": "1", "topic": "claimed"}, ["Topic:stored Get"]),
        (37, {"topic": "claimed"}, ["Topic:stored Pub"]),
        (38, READ, ["Group:g Get|Sub"]),
        (17, {"topic": "T"}, ["Topic:T Create"]),
        (215, {"topic": "T"}, ["Topic:T Delete"]),
        (207, {"groupName": "g"}, ["Group:g Delete"]),
        (208, {"consumerGroup": "g", "topicList": "T;;T2"},
         ["Group:g Get", "Topic:T Get", "Topic:T2 Get"]),
        (222, {"group": "g", "topic": "T"}, ["Group:g Update", "Topic:T Update"]),
        (303, {"group": "g", "topic": "T"}, ["Topic:T Get", "Group:g Get"]),
        (26, {}, ["Cluster:DefaultCluster Get"]),
        (25, {}, ["Cluster:DefaultCluster Update"]),
        (309, {"topic": "T"}, ["Cluster:DefaultCluster Update"]),
        (3001, {"username": "u"}, ["Cluster:DefaultCluster Update"]),
        (3005, {}, ["Cluster:DefaultCluster Get"]),
        (7701, {}, ["Cluster:DefaultCluster Get"]),
        (7704, {}, ["Cluster:DefaultCluster Update"]),
        (9_999, {"topic": "T"}, ["Cluster:DefaultCluster Update"]),
        # What names nothing asks for the cluster, not for nothing.
        (17, {}, ["Cluster:DefaultCluster Update"]),
        (202, {"topic": ""}, ["Cluster:DefaultCluster Update"]),
        (310, {"b": "RMQ_SYS_TRANS_HALF_TOPIC"}, ["Topic:RMQ_SYS_TRANS_HALF_TOPIC Pub"]),
        (11, {"topic": "%RETRY%g_orders", "consumerGroup": "g"},
         ["Group:g Sub", "Group:g_orders Sub", "Group:g Sub", "Topic:orders Sub"]),
    ],
)  # fmt: skip
def test_what_a_request_needs(code: int, ext: dict[str, str], expected: list[str]) -> None:
    assert needs(code, ext) == expected


@pytest.mark.parametrize("code", [29, 30, 31, 32, 202, 222, 321, 351, 17, 215, 310, 11, 12])
def test_the_brokers_own_topics_are_nobodys_but_super_users(book: UserTable, code: int) -> None:
    allow(book, "*", "All")
    topic = "RMQ_SYS_TRANS_HALF_TOPIC"
    ext = {"topic": topic, "b": topic, "consumerGroup": "g", "group": "g"}
    assert "the broker's own: for super users" in why(book, ask(code, ext))
    assert why(book, ask(code, ext, name="root")) == ""
    assert why(book, ask(code, ext | {"topic": "T", "b": "T"})) == ""


@pytest.mark.parametrize("code", [50, 51, 53, 3001, 3002, 3003, 3006, 3007, 3008])
def test_who_may_do_everything_else_does_not_change_who_may_do_what(
    book: UserTable, code: int
) -> None:
    allow(book, "*", "All")
    assert "for super users" in why(book, ask(code))
    assert why(book, ask(code, name="root")) == ""
    peers = UserTable(SimDisk(), as_rocketmq=True)
    peers.users, peers.policies = book.users, book.policies
    assert why(peers, ask(code), as_rocketmq=True) == ""


@pytest.mark.parametrize(
    ("code", "body", "expected"),
    [
        (200, {"groupName": "g"}, ["Group:g Create|Update"]),
        (225, {"groupConfigList": [{"groupName": "g"}, {"groupName": "h"}]},
         ["Group:g Create|Update", "Group:h Create|Update"]),
        (18, {"topicConfigList": [{"topicName": "T"}]}, ["Topic:T Create"]),
        (225, {"groupConfigList": []}, ["Cluster:DefaultCluster Update"]),
    ],
)  # fmt: skip
def test_bodies_say_what_is_needed(code: int, body: object, expected: list[str]) -> None:
    assert needs(code, body=json.dumps(body).encode()) == expected
    with pytest.raises(RemoteProtocolError):
        needs(code, body=b"{")


@pytest.mark.parametrize(
    ("code", "ext", "expected"),
    [
        (310, {"b": "%RETRY%g", "a": "mine"}, ["Group:mine Sub"]),
        (310, {"b": "%RETRY%g"}, ["Group:g Sub"]),
        (11, {"topic": "%RETRY%g", "consumerGroup": "g"}, ["Group:g Sub"]),
        (11, READ, ["Topic:T Sub", "Group:g Sub"]),
        (320, {"b": "T", "a": "mine"}, ["Topic:T Pub"]),
        (361, READ, []),
        (37, {"topic": "claimed"}, ["Topic:claimed Pub"]),
        (37, {"topic": " "}, []),
        (370, {"topic": "%RETRY%g"}, ["Topic:%RETRY%g Pub"]),
        (33, {"offset": "1", "topic": "claimed"}, ["Topic:claimed Get"]),
        (35, {"consumerGroup": "g"}, ["Group:g Sub"]),
        (35, {"producerGroup": "g"}, []),
        (309, {"consumerGroup": "g", "topic": "T"}, ["Group:g Sub", "Topic:T Sub"]),
        (17, {}, []),
        (26, {}, []),
        (204, {}, ["Cluster:DefaultCluster Get"]),
        (3001, {}, ["Cluster:DefaultCluster Update"]),
        (9_999, {}, []),
    ],
)
def test_what_the_peer_asks_for(code: int, ext: dict[str, str], expected: list[str]) -> None:
    assert peer_needs(code, ext) == expected


def test_bodies_at_the_peer() -> None:
    subscriptions = [{"topic": "T"}, {"topic": "%RETRY%g"}]
    consumer = {"groupName": "g", "subscriptionDataSet": subscriptions}
    beat = json.dumps({"clientID": "c", "consumerDataSet": [consumer]}).encode()
    assert peer_needs(34, body=beat) == ["Group:g Sub", "Topic:T Sub"]
    queues = [{"topic": topic, "brokerName": "b", "queueId": 0} for topic in ("T", "%RETRY%g")]
    lock = json.dumps({"consumerGroup": "g", "clientId": "c", "mqSet": queues}).encode()
    assert peer_needs(41, body=lock) == ["Group:g Sub", "Topic:T Sub"]


def test_as_the_peer_what_is_stored_does_not_count(book: UserTable) -> None:
    end = ask(Request.END_TRANSACTION, {"topic": "orders"})
    assert why(book, end) != ""
    assert why(book, end, as_rocketmq=True) == ""


def test_requests_of_operators_name_what_they_change() -> None:
    for fields in (row.rule.accesses for row in request_rows()):
        if not isinstance(fields, FieldAccesses):
            continue
        assert fields.topics or fields.groups
