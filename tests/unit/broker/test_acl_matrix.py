"""Every request code, in the name of nobody, of a forger, and of accounts with all, some and no
rights, about a topic of their own, another's, none at all, and one that is not what it says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import msgspec
import pytest

from escrowmq.base.answer import Reply
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.broker.incoming_request import Question, RequestRow
from escrowmq.broker.requests.request_table import request_rows
from escrowmq.codec.headers import read_header
from escrowmq.codec.recall_handle import RecallHandle, encode_recall_handle
from escrowmq.testing.disk import SimDisk
from tests.harness.exchange import Caller, Exchange

SECRET = "secret-of-all"
CODES = sorted(
    {code for name, code in vars(Request).items() if name.isupper() and isinstance(code, int)}
    - {Request.ESCROW_SESSION}  # anybody's, and opens nothing (test_account_proofs)
    | {0, -1, 513, 9_999, 32_767}
)

OF_CLIENTS = frozenset(
    {10, 310, 320, 324, 325, 370, 37, 11, 361, 14, 15, 200050, 200052, 200054, 200055, 200051,
     200053, 200151, 36, 33, 12, 34, 41, 42, 46, 400, 35, 38, 203, 343, 352, 208, 303, 345, 29, 30,
     31, 32, 105, 202, 300, 351, 7709, 7710, 7711}
)  # fmt: skip
"""What docs/security.md opens to accounts with rights; all else is for operators."""

BODY = frozenset({34, 41, 42, 46, 400, 200151, 7709, 7710, 7711, 18, 200, 225})
"""What they are about stands in the body."""

STORED = frozenset({33, 36, 37})
"""What they are about is stored; they may say anything."""


NAMES_NOTHING = {(35, "absent"), (200151, "absent")}
"""Without a group or an ack they do nothing, and need nothing."""


class World:
    """A broker with one message and one half in a topic of each kind."""

    def __init__(self, settings: BrokerSettings, disk: SimDisk) -> None:
        self.exchange = Exchange(settings, disk=disk)
        self.served: list[int] = []
        rows = self.exchange.core.serving.rows
        rows.update({code: self._noting(row) for code, row in rows.items()})
        self.owner = self.come("operator")
        self.places: dict[str, dict[str, str]] = {}
        for topic in ("mine", "theirs"):
            sent = self.owner.send(topic)
            half = self.owner.prepare(topic, group="my-group" if topic == "mine" else "PG")
            self.places[topic] = {
                "offset": str(int((sent.ext or {})["msgId"][-16:], 16)),
                "commitLogOffset": str(half.log_offset),
                "tranStateTableOffset": str(half.queue_offset),
                "transactionId": half.unique_key,
            }

    def _noting(self, row: RequestRow) -> RequestRow:
        def serve(asked: Question) -> Reply:
            self.served.append(row.code)
            if row.header is not None:
                asked.header = read_header(row.header, asked.command.ext)
            return row.serve(asked)

        return msgspec.structs.replace(row, header=None, serve=serve)

    def come(self, name: str | None, secret: str = SECRET) -> Caller:
        caller = self.exchange.connect(host="10.0.0.1")
        caller.credentials = None if name is None else (name, secret)
        return caller

    def fields(self, topic: str, group: str, stored: str) -> dict[str, str]:
        """All fields that any request has, about one topic and group."""
        handle = RecallHandle(topic=stored, broker_name="broker-a", deliver_ms=1, unique_key="k")
        return {
            "topic": topic, "b": topic, "consumerGroup": group, "group": group, "queueId": "0",
            "e": "0", "f": "0", "g": "1", "sysFlag": "0", "bornTimestamp": "1", "delayLevel": "0",
            "queueOffset": "0", "maxMsgNums": "1", "extraInfo": "0 0 0 0 0 broker-a 0 0 0",
            "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "9",
            "timestamp": "0", "recallHandle": encode_recall_handle(handle), "commitOffset": "0",
            "invisibleTime": "1", "producerGroup": "PG", "commitOrRollback": "0",
            "originTopic": topic, "groupName": group, "attemptId": "a",
            **self.places[stored],
        }  # fmt: skip

    def body(self, code: int, topic: str, group: str) -> bytes:
        subscription = {"topic": topic, "subString": "*"}
        consumer = {"groupName": group, "subscriptionDataSet": [subscription]}
        queue = {"topic": topic, "brokerName": "broker-a", "queueId": 0}
        ack = {"c": group, "t": topic, "r": "0", "bm": "", "q": 0, "po": 0, "so": 0, "it": 0}
        epoch = {"group": group, "epoch": "q-1", "tokens": {}}
        bodies: dict[int, object] = {
            34: {"clientID": "c", "consumerDataSet": [consumer]},
            41: {"consumerGroup": group, "clientId": "c", "mqSet": [queue]},
            42: {"consumerGroup": group, "clientId": "c", "mqSet": [queue]},
            46: {"group": group, "subscriptionData": subscription},
            400: {"consumerGroup": group, "topic": topic},
            200151: {"brokerName": "broker-a", "acks": [ack]},
            18: {"topicConfigList": [{"topicName": topic}]},
            200: {"groupName": group},
            225: {"groupConfigList": [{"groupName": group}]},
            **dict.fromkeys((7709, 7710, 7711), epoch),
        }
        return json.dumps(bodies[code]).encode() if code in bodies else b""

    def passes(self, caller: Caller, code: int, ext: dict[str, str], body: bytes) -> bool:
        """Whether a request comes past the door, whatever is behind it."""
        self.served.clear()
        reply = caller.begin(code, ext, body).reply
        return bool(self.served) or (reply is not None and reply.code == 3)


def accounts(*, as_peer: bool = False) -> World:
    disk = SimDisk()
    disk.small["plain_acl.yml"] = f"""
accounts:
- {{accessKey: operator, secretKey: {SECRET}, admin: true}}
- {{accessKey: nothing, secretKey: {SECRET}}}
- accessKey: everything
  secretKey: {SECRET}
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: PUB|SUB
- accessKey: limited
  secretKey: {SECRET}
  topicPerms: [mine=PUB|SUB]
  groupPerms: [my-group=PUB|SUB]
""".encode()
    settings = BrokerSettings(acl_enabled=True, allows_recall=True, acl_as_rocketmq=as_peer)
    return World(settings, disk)


def users(*, as_peer: bool = False) -> World:
    first = json.dumps({"username": "operator", "password": SECRET})
    settings = BrokerSettings(
        authenticates=True, authorizes=True, first_user=first, allows_recall=True,
        acl_as_rocketmq=as_peer,
    )  # fmt: skip
    world = World(settings, SimDisk())
    for name, resources in (
        ("nothing", ()),
        ("everything", ("Topic:*", "Group:*")),
        ("limited", ("Topic:mine", "Group:my-group")),
    ):
        body = json.dumps({"password": SECRET}).encode()
        assert world.owner.ask(3001, {"username": name}, body).code == 0
        entries = [
            {"resource": each, "actions": ["Pub", "Sub", "Get", "Update"], "decision": "Allow"}
            for each in resources
        ]
        policies = json.dumps({"policies": [{"entries": entries}]}).encode()
        if entries:
            assert world.owner.ask(3006, {"subject": f"User:{name}"}, policies).code == 0
    return world


KINDS = {"1.0": accounts, "2.0": users}

NAMED_BY_OPERATORS = {
    "1.0": frozenset[int](),
    "2.0": frozenset({200, 222, 223, 225, 307, 308, 314, 321, 353, 354}),
}
"""What operators do to one topic or group, which a user of ACL 2.0 may have the right to."""


@pytest.fixture(params=["1.0", "2.0"], name="kind", scope="module")
def each_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(name="world", scope="module")
def make_world(kind: str) -> World:
    return KINDS[kind]()


def shapes(world: World, code: int) -> Iterator[tuple[str, dict[str, str], bytes]]:
    """The same request about nothing, one's own, another's, and something that it is not."""
    own = world.fields("mine", "my-group", "mine")
    yield "absent", {}, b""
    yield "own", own, world.body(code, "mine", "my-group")
    theirs = world.fields("theirs", "their-group", "theirs")
    yield "theirs", theirs, world.body(code, "theirs", "their-group")
    if code in STORED or code == 370:
        yield "forged", world.fields("mine", "my-group", "theirs"), b""
    elif code in BODY:
        yield "forged", own, world.body(code, "theirs", "their-group")
    else:
        yield "forged", own | {"topic": "theirs", "b": "theirs", "group": "their-group",
                               "consumerGroup": "their-group"}, b""  # fmt: skip


Seen = tuple[int, str]
"""A code and a shape."""


def passed(world: World, caller: Caller, codes: Iterable[int] = CODES) -> set[Seen]:
    """All that comes past the door in somebody's name."""
    return {
        (code, shape)
        for code in codes
        for shape, ext, body in shapes(world, code)
        if world.passes(caller, code, ext, body)
    }


def test_without_a_name_or_with_a_wrong_one_nothing_passes(world: World) -> None:
    for name, secret in (
        (None, ""), ("stranger", SECRET), ("operator", "not the secret"), ("everything", ""),
    ):  # fmt: skip
        assert passed(world, world.come(name, secret)) == set(), name


def test_an_account_without_rights_passes_nowhere(world: World) -> None:
    assert passed(world, world.come("nothing")) == NAMES_NOTHING


def test_an_account_with_some_rights_passes_with_its_own_alone(world: World, kind: str) -> None:
    may = OF_CLIENTS | NAMED_BY_OPERATORS[kind]
    found = passed(world, world.come("limited"))
    assert found == NAMES_NOTHING | {(code, "own") for code in may}


def test_an_account_with_all_rights_to_topics_and_groups_is_no_operator(
    world: World, kind: str
) -> None:
    may = OF_CLIENTS | NAMED_BY_OPERATORS[kind]
    found = passed(world, world.come("everything"))
    assert {code for code, shape in found if shape != "absent"} == may
    for shape in ("own", "theirs", "forged"):
        assert {code for code, seen in found if seen == shape} == may
    assert {code for code, seen in found if seen == "absent"} == {code for code, _ in NAMES_NOTHING}


def test_an_operator_passes_everywhere(kind: str) -> None:
    world = KINDS[kind]()
    unreadable = BODY | {33, 36, 370}  # what cannot be read is not judged
    ends = frozenset({51, 207, 215, 3001, 3002, 3003})  # these would end the world of the others
    codes = [code for code in CODES if code not in ends]
    found = passed(world, world.come("operator"), codes)
    for shape in ("absent", "own", "theirs", "forged"):
        missing = set(codes) - {code for code, seen in found if seen == shape}
        assert missing <= (unreadable if shape == "absent" else set()), shape


def test_every_request_that_the_broker_serves_is_asked_about() -> None:
    assert {row.code for row in request_rows()} - {Request.ESCROW_SESSION} <= set(CODES)


# -- as RocketMQ -----------------------------------------------------------------------------------

JUDGED = {
    "1.0": frozenset({10, 11, 12, 15, 34, 35, 36, 38, 310, 320}),
    "2.0": frozenset(
        {10, 11, 12, 14, 15, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 41, 42, 202, 203, 208, 222,
         223, 300, 303, 307, 308, 309, 310, 314, 320, 321, 323, 343, 345, 351, 352, 353, 354, 370,
         200050, 200051, 200052, 200053, 200054, 200055}
    ),
}  # fmt: skip
"""What RocketMQ wants a right for."""

OF_ADMINISTRATORS = {
    "1.0": frozenset({17, 25, 50, 51, 52, 200, 207, 215, 513}),
    "2.0": frozenset(
        {17, 204, 207, 215, 315, 317, 328, 355, 905, 906, 908, 1008, *range(3001, 3011)}
    ),
}
"""What it leaves to them; all else to anybody with an account."""


@pytest.fixture(name="parity", scope="module")
def make_parity(kind: str) -> World:
    return KINDS[kind](as_peer=True)


def test_as_rocketmq_nobody_passes_without_an_account(parity: World) -> None:
    for name, secret in ((None, ""), ("stranger", SECRET), ("operator", "not the secret")):
        assert passed(parity, parity.come(name, secret)) == set(), name


def test_as_rocketmq_an_account_passes_with_what_it_leaves_open_and_what_it_has_the_right_to(
    parity: World, kind: str
) -> None:
    open_to_all = set(CODES) - OF_ADMINISTRATORS[kind]
    without = open_to_all - JUDGED[kind]
    for name, shape, expected in (
        ("nothing", "own", without),
        ("nothing", "theirs", without),
        ("limited", "own", open_to_all),
        ("limited", "theirs", without),
        ("everything", "own", open_to_all),
        ("everything", "theirs", open_to_all),
    ):
        found = passed(parity, parity.come(name))
        assert {code for code, seen in found if seen == shape} == expected, (name, shape)
