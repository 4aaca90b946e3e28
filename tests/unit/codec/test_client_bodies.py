from __future__ import annotations

from typing import Any

import pytest

from escrowmq.base.command import Command
from escrowmq.codec.client_bodies import (
    CheckClientBody,
    HeartbeatBody,
    LockBody,
    SubscriptionBody,
    decode_body,
    decode_queue_table,
    read_own_body,
)
from escrowmq.codec.fastjson import QueueId
from escrowmq.errors import RemoteProtocolError, UsageError


@pytest.mark.parametrize("kind", [HeartbeatBody, LockBody, CheckClientBody])
def test_a_body_is_not_read_before_its_size_is_known_to_be_allowed(
    kind: type[HeartbeatBody | LockBody | CheckClientBody],
) -> None:
    body = b'{"clientID":"c"}'
    decode_body(kind, body + b" " * (kind.size_max - len(body)))
    with pytest.raises(RemoteProtocolError, match=f"{kind.size_max} are allowed"):
        decode_body(kind, b"[" * (kind.size_max + 1))


@pytest.mark.parametrize(
    "fields",
    [
        {"topic": "x" * 8_000},
        {"expression_type": "x" * 8_000},
        {"sub_string": "x" * 8_000},
        {"tags_set": ["x" * 8_000]},
        {"code_set": ["x" * 8_000]},
        {"code_set": [1 << 64_000]},
        {"sub_version": 1 << 64_000},
    ],
)
def test_all_texts_and_numbers_of_a_subscription_count_for_its_memory(
    fields: dict[str, Any],
) -> None:
    assert SubscriptionBody(expression_type=None).letters_count == 0
    found = SubscriptionBody(**{"expression_type": None, **fields})
    assert found.letters_count == 8_000
    assert 8_200 <= found.memory_size <= 8_300


def test_bodies_of_our_own_requests_are_bounded_too() -> None:
    with pytest.raises(UsageError, match="1048577 bytes; 1048576 are allowed"):
        read_own_body(Command(code=7709, body=b"[" * 1_048_577), HeartbeatBody)


KEY = b'{"brokerName":"b","queueId":3,"topic":"T"}'


def test_a_table_of_queues() -> None:
    assert decode_queue_table(int, b'{"offsetTable":{%b:17}}' % KEY) == {QueueId("b", 3, "T"): 17}
    for nothing in (b"{}", b"[]", b'{"offsetTable":null}'):
        assert decode_queue_table(int, nothing) == {}


@pytest.mark.parametrize(
    "table", [b"[1]", b'"x"', b"{T:1}", b'{"T":1}', b'{%b:null}' % KEY, b"{%b:[]}" % KEY]
)  # fmt: skip
def test_a_table_of_something_else_is_refused(table: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_queue_table(int, b'{"offsetTable":%b}' % table)
