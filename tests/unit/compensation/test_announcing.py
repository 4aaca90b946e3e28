"""Which transactions are announced as commits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("redis")

import escrowmq
from escrowmq import Outcome, Transaction
from escrowmq.compensation import Announcer
from escrowmq.testing import Broker


@pytest.mark.parametrize(
    ("end", "is_announced"),
    [
        (lambda tx: None, True),
        (lambda tx: tx.database_decides(), True),
        (lambda tx: tx.settle(Outcome.COMMIT), True),
        (lambda tx: tx.rollback(), False),
        (lambda tx: tx.unknown(), False),
        (lambda tx: tx.settle(Outcome.ROLLBACK), False),
        (lambda tx: tx.settle(Outcome.UNKNOWN), False),
        (lambda tx: tx.detach(), False),
    ],
)
def test_only_what_the_block_has_committed_is_announced(
    escrowmq_broker: Broker, end: Callable[[Transaction], object], is_announced: bool
) -> None:
    broker = escrowmq_broker
    with escrowmq.Producer(broker.nameserver, group="orders") as producer:
        with Announcer(producer).transaction("paid", b"o-1:20") as tx:
            end(tx)
        announced = [f"{tx.results[0].message_id}@paid".encode()] if is_announced else []
        assert broker.delivered("escrow-announced") == announced
