"""Rows of a frame as messages."""

from __future__ import annotations

import datetime as dt

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from escrowmq.errors import InvalidMessage, UsageError
from escrowmq.pipeline.sink.rows import check_columns, messages_of_rows

MOMENT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def test_a_whole_row() -> None:
    batch = pa.record_batch(
        {
            "topic": ["t"],
            "body": pa.array([b"x"]),
            "tags": ["tag"],
            "keys": pa.array([["a", "", "b"]]),
            "queueId": pa.array([3], type=pa.int32()),
            "brokerName": ["b"],
            "properties": pa.array([[("n", "1"), ("UNIQ_KEY", "theirs"), ("empty", "")]],
                                   type=pa.map_(pa.string(), pa.string())),
            "deliverTime": pa.array([MOMENT], type=pa.timestamp("us", tz="UTC")),
            "flag": pa.array([7], type=pa.int32()),
            "customer": pa.array([17]),
        }
    )  # fmt: skip
    (row,) = messages_of_rows(batch, topic="", order_by="customer")
    message = row.message
    assert (message.topic, message.body, message.tag, message.keys) == (
        "t",
        b"x",
        "tag",
        ["a", "b"],
    )
    assert message.properties == {"n": "1"}, "names with a meaning are left out"
    assert (message.order_key, message.deliver_at, message.flag) == ("17", MOMENT, 7)
    assert (row.queue_id, row.broker_name) == (3, "b")


def test_the_least_of_a_row() -> None:
    batch = pa.record_batch({"body": ["ä"], "topic": ["column"], "keys": ["a b"]})
    (row,) = messages_of_rows(batch, topic="option", order_by="")
    assert row.message.topic == "option", "the option goes before the column"
    assert row.message.body == "ä".encode()
    assert row.message.keys == ["a", "b"]
    assert row.queue_id is None


def test_nulls_are_nothing_but_for_body_and_topic() -> None:
    nothing = pa.array([None], type=pa.string())
    batch = pa.record_batch({"body": ["x"], "tags": nothing, "keys": nothing})
    (row,) = messages_of_rows(batch, topic="t", order_by="")
    assert (row.message.tag, row.message.keys) == ("", [])
    with pytest.raises(InvalidMessage, match="has no topic"):
        list(
            messages_of_rows(
                pa.record_batch({"body": ["x"], "topic": nothing}), topic="", order_by=""
            )
        )
    with pytest.raises(InvalidMessage, match="has no body"):
        list(messages_of_rows(pa.record_batch({"body": nothing}), topic="t", order_by=""))


def test_a_broker_without_a_queue_is_refused_and_not_ignored() -> None:
    queues = pa.array([1, None, None], type=pa.int32())
    batch = pa.record_batch({"body": ["x"] * 3, "brokerName": ["b", None, "b"], "queueId": queues})
    with pytest.raises(InvalidMessage, match="row 2 of a batch has brokerName='b' and no queueId"):
        list(messages_of_rows(batch, topic="t", order_by=""))
    places = [(row.queue_id, row.broker_name)
              for row in messages_of_rows(batch.slice(0, 2), topic="t", order_by="")]  # fmt: skip
    assert places == [(1, "b"), (None, "")]
    check_columns({"body": "string", "brokerName": "string", "queueId": "int"}, order_by="")
    with pytest.raises(UsageError, match="there is no column queueId"):
        check_columns({"body": "string", "brokerName": "string"}, order_by="")


def test_columns_that_cannot_be() -> None:
    check_columns({"body": "string", "n": "bigint"}, order_by="n")
    with pytest.raises(UsageError, match="a column `body` is needed"):
        check_columns({"value": "string"}, order_by="")
    with pytest.raises(UsageError, match="a column 'n' has no meaning"):
        check_columns({"body": "string", "n": "bigint"}, order_by="")
    with pytest.raises(UsageError, match="keys has the type int; array<string> or string"):
        check_columns({"body": "string", "keys": "int"}, order_by="")
