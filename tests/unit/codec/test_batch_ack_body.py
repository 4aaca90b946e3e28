from __future__ import annotations

import json

import pytest

from escrowmq.codec.batch_ack_body import AckBatch, decode_acks
from escrowmq.errors import RemoteProtocolError


def test_short_and_long_names_are_one() -> None:
    short = {"c": "g", "t": "topic", "r": "1", "so": 2, "q": 3, "rq": 4, "pt": 5, "it": 6, "b": "x"}
    long = {
        "consumerGroup": "g", "topic": "topic", "retry": "1", "startOffset": 2, "queueId": 3,
        "reviveQueueId": 4, "popTime": 5, "invisibleTime": 6, "bitSet": "x",
    }  # fmt: skip
    body = json.dumps({"brokerName": "b", "acks": [short, long]}).encode()
    batch = AckBatch(c="g", t="topic", r="1", so=2, q=3, rq=4, pt=5, it=6, b="x")
    assert decode_acks(body) == [batch, batch]


@pytest.mark.parametrize("body", [b"", b"{}", b'{"acks":null}', b'{"acks":[]}', b"[]"])
def test_nothing_is_acknowledged_by_an_empty_body(body: bytes) -> None:
    assert decode_acks(body) == []


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"acks":7}',
        b'{"acks":[7]}',
        b'{"acks":[{"c":"g"}]}',
        b'{"acks":[{"c":"g","t":"t","q":"x"}]}',
    ],
)
def test_what_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_acks(body)
