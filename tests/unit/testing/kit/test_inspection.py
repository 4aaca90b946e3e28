"""What a test's broker shows of its contents."""

from __future__ import annotations

import asyncio
import re

import pytest

import escrowmq
import escrowmq.aio
from escrowmq.base.message import SysFlag
from escrowmq.testing import Broker


@pytest.fixture
def broker(escrowmq_broker: Broker) -> Broker:
    return escrowmq_broker


def test_the_text_tells_all_that_there_is(broker: Broker) -> None:
    with escrowmq.Producer(
        broker.nameserver,
        group="orders",
        check=lambda message: escrowmq.Outcome.UNKNOWN,
        topics=["paid"],
    ) as producer:
        producer.send("paid", b"order 1", keys=["o-1"])
        with producer.transaction("paid", b"order 2") as tx:
            tx.unknown()
        told = broker.describe()
    assert "delivered to 'paid': b'order 1' (keys o-1)" in told
    assert "b'order 2' to 'paid', of group 'orders', asked 0 times; its check is due in 6 s" in told
    assert "connected: a producer of 'orders'" in told


def test_the_text_tells_what_comes_later_and_when(broker: Broker) -> None:
    def fail(message: escrowmq.Delivery) -> None:
        raise ValueError("no")

    broker.send("paid", b"reminder", delay=60)
    broker.send("paid", b"poison")
    with escrowmq.Consumer(broker.nameserver, group="mailer", topic="paid", handler=fail):
        broker.wait_consumed("mailer")
        told = broker.describe()
    assert re.search("b'reminder' to 'paid', in (59|60) s", told)  # timers go by whole seconds
    assert "b'poison' to group 'mailer', again, in 10 s" in told
    broker.advance(minutes=2)
    assert "comes later" not in broker.describe()


def test_a_body_that_cannot_be_decompressed_is_shown_as_it_is(broker: Broker) -> None:
    """Such a message of some producer's made each look at the broker fail."""

    async def send() -> None:
        async with escrowmq.aio.Producer(broker.nameserver, group="g") as producer:
            message = escrowmq.Message("T", b"no zlib")
            out = producer.dispatch.prepare(message)
            out.sys_flag |= SysFlag.COMPRESSED
            await producer.dispatch.send_prepared(message, out)

    asyncio.run(send())
    assert broker.delivered("T") == [b"no zlib"]
    assert "delivered to 'T': b'no zlib'" in broker.describe()
