"""SendMessage and RecallMessage."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.codec.recall_handle import RecallHandle, encode_recall_handle
from escrowmq.proxy.gen import v2
from escrowmq.proxy.send_methods import consistent_bucket
from tests.harness.exchange import START_MS

from .client import V5, World, message


def client(kind: str = "") -> V5:
    world = World()
    world.topic("T", kind)
    return world.connect()


def refused(one: v2.Message, kind: str = "") -> tuple[str, str]:
    status = client(kind).send(one).status
    return v2.Code.Name(status.code), status.message


def test_a_message_is_stored_and_its_place_told() -> None:
    sender = client()
    for nth in range(2):
        response = sender.send(message("T", message_id=f"id-{nth}"))
        (entry,) = response.entries
        assert (response.status.code, response.status.message) == (v2.OK, "OK")
        assert (entry.status.code, entry.offset) == (v2.OK, nth)
        assert (entry.message_id, entry.transaction_id) == (f"id-{nth}", f"id-{nth}")


def test_what_is_stored_is_what_remoting_clients_read() -> None:
    world = World()
    world.topic("T")
    one = message("T", b"body", tag="paid", keys=["k1", "k2"], message_id="id-1")
    one.user_properties["shop"] = "3"
    one.system_properties.trace_context = "00-1"
    one.system_properties.born_timestamp.FromMilliseconds(START_MS - 7)
    world.connect().send(one)
    (stored,) = world.exchange.connect().messages("T")
    assert (stored.topic, stored.body, stored.born_ms) == ("T", b"body", START_MS - 7)
    assert stored.sys_flag == 0
    expected = {
        "TAGS": "paid", "KEYS": "k1 k2", "UNIQ_KEY": "id-1", "shop": "3", "PGROUP": "T",
        "TRACE_CONTEXT": "00-1", "BORN_TIMESTAMP": str(START_MS - 7),
    }  # fmt: skip
    assert expected.items() <= stored.properties.items()


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_a_packed_body_is_stored_plain(pack: Callable[[bytes], bytes]) -> None:
    world = World()
    world.topic("T")
    packed = message("T", pack(b"a long body " * 20))
    packed.system_properties.body_encoding = v2.GZIP
    world.connect().send(packed)
    (stored,) = world.exchange.connect().messages("T")
    assert (stored.body, stored.sys_flag) == (b"a long body " * 20, 0)
    for broken in (b"no gzip at all", pack(b"x" * 100)[:-4]):
        packed.body = broken
        assert world.connect().send(packed).status.code == v2.MESSAGE_CORRUPTED


def test_messages_of_a_group_go_to_one_queue() -> None:
    world = World()
    world.topic("T", "FIFO", queues=4)
    sender = world.connect()
    for nth in range(6):
        response = sender.send(message("T", kind=v2.FIFO, message_group="g1"))
        assert response.entries[0].offset == nth


def test_messages_without_a_group_go_to_the_queues_in_turn() -> None:
    world = World()
    for name in ("T", "U"):
        world.topic(name, queues=2)
    sender = world.connect()
    offsets = [
        sender.send(message(name)).entries[0].offset for _ in range(4) for name in ("T", "U")
    ]
    assert offsets == [0, 0, 0, 0, 1, 1, 1, 1]


def test_the_consistent_hash_is_guavas() -> None:
    # Hashing.consistentHash("g1".hashCode(), 8) and others, as Guava's own loop gives them.
    assert [consistent_bucket(value, 1) for value in (0, 5, -3)] == [0, 0, 0]
    assert all(0 <= consistent_bucket(value, 8) < 8 for value in range(-500, 500))
    moved = sum(
        consistent_bucket(value, 8) != consistent_bucket(value, 9) for value in range(9_000)
    )
    assert 800 < moved < 1_200  # a ninth of them, and no more


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        (lambda one: one.ClearField("body"), "MESSAGE_BODY_EMPTY", "message body cannot be empty"),
        (
            lambda one: setattr(one, "body", bytes(4_194_305)),
            "MESSAGE_BODY_TOO_LARGE",
            "message body cannot exceed the max 4194304",
        ),
        (
            lambda one: one.user_properties.update({f"p{n}": "" for n in range(129)}),
            "MESSAGE_PROPERTIES_TOO_LARGE",
            "too many user properties, max is 128",
        ),
        (
            lambda one: one.user_properties.update({"KEYS": "x"}),
            "ILLEGAL_MESSAGE_PROPERTY_KEY",
            "property is used by system: KEYS",
        ),
        (
            lambda one: one.user_properties.update({"a\x01b": "x"}),
            "ILLEGAL_MESSAGE_PROPERTY_KEY",
            "the key of property cannot contain control character",
        ),
        (
            lambda one: one.user_properties.update({"a": "x\x02TRAN_MSG\x01true"}),
            "ILLEGAL_MESSAGE_PROPERTY_KEY",
            "the value of property cannot contain control character",
        ),
        (
            lambda one: setattr(one.system_properties, "tag", " "),
            "ILLEGAL_MESSAGE_TAG",
            "tag cannot be the char sequence of whitespace",
        ),
        (
            lambda one: setattr(one.system_properties, "tag", "a|b"),
            "ILLEGAL_MESSAGE_TAG",
            "tag cannot contain '|'",
        ),
        (
            lambda one: one.system_properties.keys.append(" "),
            "ILLEGAL_MESSAGE_KEY",
            "key cannot be the char sequence of whitespace",
        ),
        (
            lambda one: one.user_properties.update({"a": "x" * 16_384}),
            "MESSAGE_PROPERTIES_TOO_LARGE",
            "the total size of user property is too large, max is 16384",
        ),
        (
            lambda one: setattr(one.system_properties, "message_id", " "),
            "ILLEGAL_MESSAGE_ID",
            "message id cannot be empty",
        ),
        (
            lambda one: setattr(one.system_properties, "message_id", "a\x02b"),
            "ILLEGAL_MESSAGE_ID",
            "message id cannot contain control character",
        ),
        (
            lambda one: setattr(
                one.system_properties.orphaned_transaction_recovery_duration, "seconds", 3_601
            ),
            "BAD_REQUEST",
            "the max transaction recovery time of message is too large, max is 3600",
        ),
        (
            lambda one: one.system_properties.delivery_timestamp.FromMilliseconds(
                START_MS + 86_400_001
            ),
            "ILLEGAL_DELIVERY_TIME",
            "the max delay time of message is too large, max is 86400000",
        ),
        (
            lambda one: setattr(one.system_properties, "message_group", "g" * 64),
            "ILLEGAL_MESSAGE_GROUP",
            "message group exceed the max size 64",
        ),
        (
            lambda one: setattr(one.topic, "name", "RMQ_SYS_TRANS_HALF_TOPIC"),
            "ILLEGAL_TOPIC",
            "cannot access system topic",
        ),
        (
            lambda one: setattr(one.system_properties, "message_type", v2.LITE),
            "NOT_IMPLEMENTED",
            "messages of type LITE are not served here; send NORMAL to a topic of its own",
        ),
    ],
)
def test_what_the_proxy_refuses(change: Callable[[v2.Message], Any], code: str, text: str) -> None:
    one = message("T")
    change(one)
    assert refused(one) == (code, text)


@pytest.mark.parametrize(
    ("field", "code"),
    [("born_timestamp", "BAD_REQUEST"), ("delivery_timestamp", "ILLEGAL_DELIVERY_TIME")],
)
@pytest.mark.parametrize(("seconds", "nanos"), [(1 << 50, 0), (-(1 << 50), 0), (1, -1)])
def test_what_is_no_moment_is_refused(field: str, code: str, seconds: int, nanos: int) -> None:
    one = message("T", kind=v2.DELAY if field == "delivery_timestamp" else v2.NORMAL)
    moment = getattr(one.system_properties, field)
    moment.seconds, moment.nanos = seconds, nanos
    name, text = refused(one)
    assert name == code
    assert "are not within the years 1 to 9999" in text


def test_no_message_and_two_topics_are_corrupted() -> None:
    sender = client()
    assert sender.send().status.message == "no message to send"
    both = sender.send(message("T"), message("U"))
    assert (both.status.code, both.status.message) == (
        v2.MESSAGE_CORRUPTED, "topic in message is not same",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "one", "actual"),
    [
        ("NORMAL", message("T", kind=v2.FIFO, message_group="g"), "FIFO"),
        ("FIFO", message("T"), "NORMAL"),
        ("NORMAL", message("T", kind=v2.TRANSACTION), "TRANSACTION"),
        ("TRANSACTION", message("T"), "NORMAL"),
        ("NORMAL", message("T", priority=3), "PRIORITY"),
    ],
)
def test_a_topic_takes_messages_of_its_type_alone(kind: str, one: v2.Message, actual: str) -> None:
    text = f"the expected type is {kind}, but actual type is {actual}"
    assert refused(one, kind) == (
        "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", f"TopicMessageType validate failed, {text}",
    )  # fmt: skip


def test_a_message_of_a_priority_keeps_it() -> None:
    world = World()
    world.topic("T", "PRIORITY")
    sender = world.connect()
    assert sender.send(message("T", kind=v2.PRIORITY, priority=3)).status.code == v2.OK
    (found,) = sender.received("T")
    system = found.system_properties
    assert (system.message_type, system.priority) == (v2.PRIORITY, 3)


def test_a_topic_that_is_not_there_is_of_no_type() -> None:
    code, text = refused(message("nowhere"))
    assert code == "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"
    assert "the expected type is UNSPECIFIED" in text


def test_of_several_messages_each_has_its_result() -> None:
    response = client().send(
        message("T", message_id="a"), message("T", message_id="b", keys=["k"] * 2_049)
    )
    assert response.status.code == v2.MULTIPLE_RESULTS
    assert [entry.status.code for entry in response.entries] == [v2.OK, v2.BAD_REQUEST]


def test_a_delayed_message_can_be_recalled() -> None:
    world = World(BrokerSettings(allows_recall=True))
    world.topic("T", "DELAY")
    late = message("T", kind=v2.DELAY)
    late.system_properties.delivery_timestamp.FromMilliseconds(START_MS + 60_000)
    sender = world.connect()
    (entry,) = sender.send(late).entries
    assert entry.recall_handle
    request = v2.RecallMessageRequest(recall_handle=entry.recall_handle)
    request.topic.name = "T"
    recalled = sender.ask("RecallMessage", request, v2.RecallMessageResponse)
    assert (recalled.status.code, recalled.message_id) == (v2.OK, entry.message_id)
    world.exchange.advance(70_000)
    assert world.exchange.connect().bodies("T") == []


@pytest.mark.parametrize(
    ("handle", "text"),
    [
        ("nonsense", "recall handle is invalid"),
        (
            encode_recall_handle(
                RecallHandle(topic="U", broker_name="b", deliver_ms=1, unique_key="k")
            ),
            "topic",
        ),
        (
            encode_recall_handle(
                RecallHandle(topic="D", broker_name="b", deliver_ms=1, unique_key="k")
            ),
            "broker",
        ),
    ],
)
def test_a_handle_that_recalls_nothing_is_refused_as_by_rocketmq(handle: str, text: str) -> None:
    world = World(BrokerSettings(allows_recall=True))
    world.topic("D", "DELAY")
    request = v2.RecallMessageRequest(recall_handle=handle)
    request.topic.name = "D"
    status = world.connect().ask("RecallMessage", request, v2.RecallMessageResponse).status
    assert status.code == v2.INTERNAL_SERVER_ERROR
    assert text in status.message
