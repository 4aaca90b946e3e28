from __future__ import annotations

import pytest

from escrowmq.codec.headers import (
    CommitOffsetHeader,
    CreateTopicHeader,
    HeaderError,
    PullHeader,
    QueryOffsetHeader,
    SendHeaderV2,
    read_header,
)


def test_unparsable_number_is_a_missing_one_but_for_the_headers_decoded_by_hand() -> None:
    ext = {"consumerGroup": "g", "topic": "t", "queueId": "x", "commitOffset": "9" * 30}
    assert read_header(CommitOffsetHeader, ext) == CommitOffsetHeader("g", "t", None, None)
    send = {"b": "t", "e": "x", "f": "0", "g": "1"}
    pull = {"consumerGroup": "g", "topic": "t", "queueId": "x"}
    for kind, bad in ((SendHeaderV2, send), (PullHeader, pull)):
        with pytest.raises(HeaderError):
            read_header(kind, bad)


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("TRUE", True), ("1", True), ("yes", False), ("", False)]
)
def test_booleans_are_read_as_java_reads_them(text: str, value: bool) -> None:
    ext = {"consumerGroup": "g", "topic": "t", "queueId": "0", "setZeroIfNotFound": text}
    found = read_header(QueryOffsetHeader, ext).set_zero_if_not_found
    assert found is (value if text != "1" else found)


def test_missing_field_that_is_needed_is_an_error_and_unknown_ones_are_not() -> None:
    with pytest.raises(HeaderError, match="topic"):
        read_header(CreateTopicHeader, {"perm": "6"})
    with pytest.raises(HeaderError):
        read_header(CreateTopicHeader, None)
    ext = {"topic": "t", "perm": "6", "readQueueNums": "1", "writeQueueNums": "1", "bname": "b"}
    assert read_header(CreateTopicHeader, ext).topic == "t"
