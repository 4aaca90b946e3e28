from __future__ import annotations

import errno
import os

import pytest

from escrowmq.base.message import Topic
from escrowmq.delivery import timer_snapshot
from escrowmq.store.optional_file import read_optional_file
from escrowmq.testing.disk import SimDisk
from escrowmq.txn import pending_snapshot
from tests.harness.exchange import Exchange


def test_a_file_that_is_not_there_is_none() -> None:
    disk = SimDisk()
    assert read_optional_file(disk, "escrow/any") is None
    disk.replace("escrow/any", b"data")
    assert read_optional_file(disk, "escrow/any") == b"data"


@pytest.mark.parametrize("path", [timer_snapshot.PATH, pending_snapshot.PATH])
def test_a_broker_starts_although_the_disk_cannot_read_a_snapshot(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    """It did not start before somebody removed the file."""
    exchange = Exchange()
    client = exchange.connect()
    client.heartbeat(producer="PG")
    client.prepare("T", b"half")
    client.send("T", b"later", TIMER_DELAY_SEC="10")
    read = SimDisk.read

    def fail(disk: SimDisk, asked: str) -> bytes | None:
        if asked == path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), asked)
        return read(disk, asked)

    monkeypatch.setattr(SimDisk, "read", fail)
    exchange.reopen()
    assert f"{path} cannot be read, and this start takes longer" in caplog.text
    exchange.advance(11_000)
    assert exchange.connect().bodies("T") == [b"later"]
    assert exchange.core.broker.store.bounds(Topic.HALF, 0) == (0, 1)
