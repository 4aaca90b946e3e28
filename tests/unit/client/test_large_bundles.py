"""Transactions as large as they may be, from the client to what consumers see."""

from __future__ import annotations

import asyncio

import pytest

import escrowmq
import escrowmq.aio
from escrowmq.base.fixed_limits import BUNDLE_MESSAGES_MAX, BUNDLE_SIZE_MAX
from escrowmq.errors import EscrowMQError, UsageError
from escrowmq.testing import Broker

BODIES = [b"%d" % nth for nth in range(BUNDLE_MESSAGES_MAX)]


def send_together(producer: escrowmq.Producer, bodies: list[bytes]) -> None:
    with producer.transaction() as tx:
        for body in bodies:
            tx.send("paid", body)


def test_a_thousand_messages_appear_together_or_not_at_all() -> None:
    with Broker() as broker, escrowmq.Producer(broker.nameserver, group="orders") as producer:
        broker.create_topic("paid")
        with producer.transaction() as tx:
            for body in BODIES:
                tx.send("paid", body)
            with pytest.raises(UsageError, match="at most 1000 messages"):
                tx.send("paid", b"one more")
            assert broker.delivered("paid") == []
        assert broker.delivered("paid") == BODIES
        with producer.transaction() as tx:
            for body in BODIES:
                tx.send("paid", body)
            tx.rollback()
        broker.restart()
        assert broker.pending() == []
        assert broker.delivered("paid") == BODIES


def test_a_thousand_messages_of_a_database_go_out_in_one_bundle() -> None:
    async def go() -> None:
        with Broker() as broker:
            broker.create_topic("paid")
            async with escrowmq.aio.Producer(broker.nameserver, group="orders") as producer:
                marked = producer.marked_messages("a database")
                await marked.send([escrowmq.Message("paid", body) for body in BODIES])
                assert len(broker.pending("paid")) == len(BODIES)
                marked.leave_to_marker()
                await marked.report_commit_and_wait()
                assert marked.outcome is escrowmq.Outcome.COMMIT
                assert sorted(broker.delivered("paid")) == sorted(BODIES)

    asyncio.run(go())


def test_a_transaction_with_too_many_bytes_is_refused_and_rolled_back() -> None:
    body = bytes(BUNDLE_SIZE_MAX // 8)
    with (
        Broker() as broker,
        escrowmq.Producer(
            broker.nameserver, group="orders", compression_over_size=len(body) + 1
        ) as producer,
    ):
        with pytest.raises(EscrowMQError, match="16777216 are allowed"):
            send_together(producer, [body] * 9)
        assert broker.pending() == []
        assert broker.delivered("paid") == []
