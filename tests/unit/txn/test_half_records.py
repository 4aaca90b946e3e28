from __future__ import annotations

import msgspec
import pytest

from escrowmq.base.message import Message, StoredMessage, SysFlag, Topic
from escrowmq.base.own_properties import OWNER, TRANSACTION
from escrowmq.txn.half_records import (
    copy_to,
    is_half,
    make_final,
    make_half,
    recorded_checks,
    target_queue,
)

MESSAGE = Message(
    topic="T",
    body=b"body",
    queue_id=3,
    flag=7,
    properties={"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": "U1", "TAGS": "a", "DELAY": "3"},
    sys_flag=SysFlag.COMPRESSED | SysFlag.PREPARED,
    born_ms=5,
    born_host=b"abcd0001",
    store_host=b"efgh0002",
    reconsume_times=2,
)


def message_with(**properties: str) -> Message:
    return msgspec.structs.replace(MESSAGE, properties={**MESSAGE.properties, **properties})


def stored(message: Message) -> StoredMessage:
    return StoredMessage(
        **msgspec.structs.asdict(message),
        queue_offset=4,
        log_offset=100,
        stored_ms=9,
        record_size=200,
    )


@pytest.mark.parametrize(
    ("properties", "times", "is_one"),
    [
        ({"TRAN_MSG": "true"}, 0, True),
        ({"TRAN_MSG": "TRUE"}, 0, True),
        ({"TRAN_MSG": "yes"}, 0, False),
        ({}, 0, False),
        ({"TRAN_MSG": "true", "DELAY": "3"}, 1, False),
        ({"TRAN_MSG": "true", "DELAY": "3"}, 0, True),
        ({"TRAN_MSG": "true", "DELAY": "0"}, 1, True),
        ({"TRAN_MSG": "true", "DELAY": "x"}, 1, True),
        ({"TRAN_MSG": "true", "DELAY": "\u00b2"}, 1, True),
    ],
)
def test_which_messages_belong_to_a_transaction(
    properties: dict[str, str], times: int, is_one: bool
) -> None:
    assert is_half(properties, times) == is_one


def test_half_remembers_where_its_message_belongs_and_nothing_else_changes() -> None:
    half = make_half(MESSAGE)
    assert (half.topic, half.queue_id) == (Topic.HALF, 0)
    assert half.sys_flag == SysFlag.COMPRESSED
    assert half.properties == {
        "TRAN_MSG": "true",
        "PGROUP": "PG",
        "UNIQ_KEY": "U1",
        "TAGS": "a",
        "__transactionId__": "U1",
        "REAL_TOPIC": "T",
        "REAL_QID": "3",
    }
    same = ("body", "flag", "born_ms", "born_host", "store_host", "reconsume_times")
    assert {n: getattr(half, n) for n in same} == {n: getattr(MESSAGE, n) for n in same}


def test_final_is_the_message_again_with_what_the_peer_leaves_on_it() -> None:
    half = stored(make_half(MESSAGE))
    final = make_final(half)
    assert final is not None
    assert (final.topic, final.queue_id, final.prepared_log_offset) == ("T", 3, 100)
    assert final.sys_flag == SysFlag.COMPRESSED | SysFlag.COMMIT
    assert final.properties == half.properties
    same = ("body", "flag", "born_ms", "born_host", "store_host", "reconsume_times")
    assert {n: getattr(final, n) for n in same} == {n: getattr(MESSAGE, n) for n in same}


def test_the_mark_of_an_account_stays_on_messages_that_belong_together_alone() -> None:
    """A start must know of whom the messages of a transaction are."""
    for more in ({}, {TRANSACTION: "t"}):
        final = make_final(stored(make_half(message_with(**{OWNER: "mark"}, **more))))
        assert final is not None
        assert (OWNER in final.properties) == (TRANSACTION in final.properties)


@pytest.mark.parametrize(
    "place", [{}, {"REAL_TOPIC": "T"}, {"REAL_QID": "1"}, {"REAL_TOPIC": "T", "REAL_QID": "-1"},
              {"REAL_TOPIC": "T", "REAL_QID": "x"}, {"REAL_TOPIC": "T", "REAL_QID": "\u00b2"}]
)  # fmt: skip
def test_half_that_does_not_say_where_it_belongs_has_no_final(place: dict[str, str]) -> None:
    half = stored(Message(topic=Topic.HALF, body=b"x", properties=place))
    assert target_queue(half) is None
    assert make_final(half) is None


def test_copy_is_the_half_in_another_topic() -> None:
    half = stored(make_half(MESSAGE))
    copy = copy_to(half, Topic.CHECK_MAX_TIME, TRANSACTION_CHECK_TIMES="0")
    assert (copy.topic, copy.queue_id, copy.flag, copy.reconsume_times) == (
        Topic.CHECK_MAX_TIME,
        0,
        7,
        2,
    )
    assert copy.properties == {**half.properties, "TRANSACTION_CHECK_TIMES": "0"}


@pytest.mark.parametrize(
    ("text", "count"), [("3", 3), ("", 0), ("x", 0), ("-1", 0), ("99999", 99_999), ("100000", 0)]
)
def test_checks_that_a_copy_of_the_peer_counts(text: str, count: int) -> None:
    assert recorded_checks({"TRANSACTION_CHECK_TIMES": text}) == count
    assert recorded_checks({}) == 0
