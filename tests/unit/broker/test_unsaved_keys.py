"""Checks of clients that end transactions by signed ids, while no signing key can be saved."""

from __future__ import annotations

import pytest

from escrowmq.base.codes import Request
from escrowmq.errors import DiskFull
from escrowmq.txn import keyring
from tests.harness.exchange import Exchange


@pytest.mark.parametrize("has_key", [False, True])
def test_only_checks_that_are_sent_count_while_no_signing_key_can_be_saved(
    monkeypatch: pytest.MonkeyPatch, *, has_key: bool
) -> None:
    exchange = Exchange()
    exchange.create_topic("T")
    producer = exchange.connect()
    producer.heartbeat(producer="PG")
    exchange.core.broker.peers.by_id[producer.id].knows_signed_ids = True
    half = producer.prepare("T", wants_id=has_key)
    exchange.settings.key_rotation_hours = 0
    replace = exchange.disk.replace

    def fails(path: str, data: bytes, *, is_private: bool = False) -> None:
        if path == keyring.PATH:
            raise DiskFull("no space left on device")
        replace(path, data, is_private=is_private)

    monkeypatch.setattr(exchange.disk, "replace", fails)
    for _ in range(20):
        producer.heartbeat(producer="PG")
        exchange.advance(30_000)
    pending = exchange.core.transactions.engine.halves.pending
    checks = producer.take(Request.CHECK_TRANSACTION_STATE)
    if has_key:
        assert len(checks) == exchange.settings.transaction_checks_max
        assert half.queue_offset not in pending
        return
    assert not checks
    assert pending.checks_count(half.queue_offset) == 0
    monkeypatch.undo()
    exchange.advance(30_000)
    assert len(producer.take(Request.CHECK_TRANSACTION_STATE)) == 1
