"""Offsets of a broadcasting member: RocketMQ's own file, and the one before beside it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.instance import ClientInstance
from escrowmq.client.offset_file import FileOffsets, _decode_offsets, _encode_offsets
from escrowmq.errors import RemoteProtocolError

QUEUE = MessageQueue("T", "broker-a", 3)


def test_the_file_is_the_java_clients() -> None:
    javas = b'{"offsetTable":{{"brokerName":"broker-a","queueId":3,"topic":"T"}:17}}\n'
    assert _decode_offsets(javas) == {QUEUE: 17}
    assert _encode_offsets({QUEUE: 17}) == javas


KEY = b'{"brokerName":"broker-a","queueId":3,"topic":"T"}'
DAMAGED = [
    b"",
    b"{",
    b'{"offsetTable":{"T":1}}',
    b'{"offsetTable":[7]}',
    b'{"offsetTable":{%b:null}}' % KEY,
    b'{"offsetTable":{%b:[1]}}' % KEY,
]


@pytest.mark.parametrize("data", DAMAGED)
def test_a_file_that_is_none_is_told(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        _decode_offsets(data)


@pytest.mark.parametrize("data", DAMAGED)
def test_the_one_before_is_read_when_the_file_is_damaged(data: bytes, tmp_path: Path) -> None:
    """Not so when one of its values was none: the consumer could not be made."""
    folder = tmp_path / "g"
    folder.mkdir()
    (folder / "offsets.json").write_bytes(data)
    (folder / "offsets.json.bak").write_bytes(b'{"offsetTable":{%b:17}}' % KEY)
    offsets = FileOffsets(cast("ClientInstance", None), str(tmp_path), group="g", start="last")
    assert asyncio.run(offsets.committed(QUEUE)) == 17


def test_a_file_without_offsets_has_none() -> None:
    assert _decode_offsets(b"{}") == {}
    assert _decode_offsets(b"[]") == {}
