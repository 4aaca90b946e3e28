from __future__ import annotations

from typing import Any

import pytest

from escrowmq.base.fixed_limits import GROUP_SIZE_MAX, PROPERTIES_SIZE_MAX, TOPIC_SIZE_MAX
from escrowmq.client.core.message import Message
from escrowmq.client.core.validation import (
    check_encoded_properties,
    check_group,
    check_message,
    check_topic,
)
from escrowmq.errors import InvalidMessage


@pytest.mark.parametrize("fields", [{"tag": 5}, {"order_key": 7}, {"topic": ["T"]}])
def test_what_is_no_text_is_refused_before_it_is_sent(fields: dict[str, Any]) -> None:
    message = Message(**{"topic": "T", "body": b"x", **fields})
    with pytest.raises(InvalidMessage):
        check_message(message, body_size_max=10)


@pytest.mark.parametrize("fields", [{"tag": None}, {"order_key": None}])
def test_none_means_that_there_is_none(fields: dict[str, Any]) -> None:
    given = {"tag": "a", "order_key": "b", **fields}
    check_message(Message("T", b"x", **given), body_size_max=10)


@pytest.mark.parametrize("keys", [["a", ""], ["a b"], ["a", 5], 5])
def test_what_is_no_key_is_refused_before_it_is_sent(keys: Any) -> None:
    with pytest.raises(InvalidMessage, match="key"):
        check_message(Message("T", b"x", keys=keys), body_size_max=10)
    check_message(Message("T", b"x", keys=["a", "b"]), body_size_max=10)


@pytest.mark.parametrize(
    "fields",
    [
        {"delay_level": "3"}, {"delay_level": 1.5}, {"properties": ["a"]}, {"flag": "x"},
        {"flag": 1.5}, {"flag": 1 << 31}, {"flag": -(1 << 31) - 1},
    ],
)  # fmt: skip
def test_what_is_of_another_type_is_refused_before_it_is_sent(fields: dict[str, Any]) -> None:
    (name,) = fields
    with pytest.raises(InvalidMessage, match=f"{name}="):
        check_message(Message("T", b"x", **fields), body_size_max=10)
    check_message(Message("T", b"x", flag=-(1 << 31)), body_size_max=10)


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(InvalidMessage, match=r"make one with escrowmq\.Message"):
        check_message(b"x", body_size_max=10)  # type: ignore[arg-type]


def test_a_delay_that_is_none_is_refused_before_it_is_sent() -> None:
    with pytest.raises(InvalidMessage):
        check_message(Message("T", b"x", delay_level=-1), body_size_max=10)
    with pytest.raises(InvalidMessage):
        check_message(Message("T", b"x", delay_level=1, deliver_at=5), body_size_max=10)
    check_message(Message("T", b"x", delay_level=1), body_size_max=10)
    check_message(Message("T", b"x", delay_level=18), body_size_max=10)
    with pytest.raises(InvalidMessage, match=r"1\.\.18 is expected"):
        check_message(Message("T", b"x", delay_level=19), body_size_max=10)


@pytest.mark.parametrize(
    ("delays", "is_refused"),
    [
        ({"delay": 1.0}, False),
        ({"deliver_at": 5.0}, False),
        ({"delay": 1.0, "deliver_at": 5.0}, True),
        ({"delay": 1.0, "delay_level": -1}, True),
        ({"deliver_at": 5.0, "delay_level": 19}, True),
    ],
)
def test_a_message_has_one_delay(delays: dict[str, Any], *, is_refused: bool) -> None:
    message = Message("T", b"x", **delays)
    if is_refused:
        with pytest.raises(InvalidMessage, match="choose one"):
            check_message(message, body_size_max=10)
    else:
        check_message(message, body_size_max=10)


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        (5, "name one"),
        ("", "name one"),
        (" ", "name one"),
        ("T" * (TOPIC_SIZE_MAX + 1), f"at most {TOPIC_SIZE_MAX} are allowed"),
        ("a b", "invalid characters"),
        ("SELF_TEST_TOPIC", "the broker's own; send to another"),
    ],
)
def test_a_topic_that_no_broker_takes_is_refused(topic: Any, said: str) -> None:
    with pytest.raises(InvalidMessage, match=said):
        check_topic(topic)
    check_topic("T" * TOPIC_SIZE_MAX)


@pytest.mark.parametrize(
    ("group", "said"),
    [
        (5, "name one"),
        ("", "name one"),
        (" ", "name one"),
        ("G" * (GROUP_SIZE_MAX + 1), f"at most {GROUP_SIZE_MAX} are allowed"),
        ("a b", "invalid characters"),
        ("DEFAULT_PRODUCER", "reserved"),
    ],
)
def test_a_group_that_no_broker_takes_is_refused(group: Any, said: str) -> None:
    with pytest.raises(InvalidMessage, match=said):
        check_group(group)
    check_group("G" * GROUP_SIZE_MAX)


@pytest.mark.parametrize(
    ("body", "said"),
    [("text", "bytes are expected"), (b"", "is empty"), (b"x" * 11, "has 11 bytes; at most 10")],
)
def test_a_body_that_no_broker_takes_is_refused(body: Any, said: str) -> None:
    with pytest.raises(InvalidMessage, match=said):
        check_message(Message("T", body), body_size_max=10)
    check_message(Message("T", b"x" * 10), body_size_max=10)


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"KEYS": "k"}, "reserved"),
        ({5: "v"}, "not empty"),
        ({"n": 5}, "not empty"),
        ({"": "v"}, "not empty"),
        ({"n": ""}, "not empty"),
    ],
)
def test_a_property_that_would_not_arrive_is_refused(properties: Any, said: str) -> None:
    with pytest.raises(InvalidMessage, match=said):
        check_message(Message("T", b"x", properties=properties), body_size_max=10)
    check_message(Message("T", b"x", properties={"n": "v"}), body_size_max=10)


def test_a_tag_is_one() -> None:
    with pytest.raises(InvalidMessage, match="a message has one tag"):
        check_message(Message("T", b"x", tag="a||b"), body_size_max=10)
    check_message(Message("T", b"x", tag="a|b"), body_size_max=10)


def test_properties_that_the_protocol_cannot_carry_are_refused() -> None:
    check_encoded_properties("n\x01v\x02", 1)
    for text in ("n\x01v\x01\x02", "n\x01v\x02\x02"):
        with pytest.raises(InvalidMessage, match="0x01 or 0x02"):
            check_encoded_properties(text, 1)
    for letter in ("x", "\N{SNOWMAN}"):
        size = len(letter.encode())
        most = letter * (PROPERTIES_SIZE_MAX // size) + "x" * (PROPERTIES_SIZE_MAX % size)
        check_encoded_properties(most, 0)
        with pytest.raises(InvalidMessage, match=f"have {PROPERTIES_SIZE_MAX + 1} bytes"):
            check_encoded_properties(most + "x", 0)


@pytest.mark.parametrize("half", ["\ud83d", "report-\udce9.pdf"])
def test_half_a_character_is_refused(half: str) -> None:
    """It raised UnicodeEncodeError, with `linger_ms` once room was reserved for the message: after
    `inflight_max` of them nothing was sent any more."""
    with pytest.raises(InvalidMessage, match="half a character"):
        check_encoded_properties(f"TAGS\x01{half}\x02", 1)
    check_encoded_properties("TAGS\x01😀\x02", 1)
