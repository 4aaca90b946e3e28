"""Offsets of a broadcasting member: RocketMQ's own file, and the one before beside it."""

from __future__ import annotations

import pytest

from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.offset_file import _decode, _encode
from escrowmq.errors import RemoteProtocolError

QUEUE = MessageQueue("T", "broker-a", 3)


def test_the_file_is_the_java_clients() -> None:
    javas = b'{"offsetTable":{{"brokerName":"broker-a","queueId":3,"topic":"T"}:17}}\n'
    assert _decode(javas) == {QUEUE: 17}
    assert _encode({QUEUE: 17}) == javas


@pytest.mark.parametrize("data", [b"", b"{", b'{"offsetTable":{"T":1}}'])
def test_a_file_that_is_none_is_told(data: bytes) -> None:
    with pytest.raises((RemoteProtocolError, ValueError)):
        _decode(data)


def test_a_file_without_offsets_has_none() -> None:
    assert _decode(b"{}") == {}
    assert _decode(b"[]") == {}
