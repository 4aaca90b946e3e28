"""Messages that a RocketMQ broker had popped when this one took over its folder."""

from __future__ import annotations

import pytest

from escrowmq.base.codes import Request
from escrowmq.base.message import Property
from escrowmq.delivery.revive_reader import GRACE_MS
from escrowmq.delivery.revive_records import CheckPointKey, revive_record

from .test_pop_crash import REVIVE, make


@pytest.mark.parametrize(
    ("pop_ms", "invisible_ms", "revive_queue", "is_forwarded"),
    [
        (-1_000, 10_000, 0, True), (0, 10_000, 0, False), (-1_000, 1_000, 0, False),
        (-1_000, 1_001, 0, True), (-1_000, 10_000, 7, True), (-1_000, 10_000, 8, False),
        (-1_000, 10_000, -1, False),
    ],
)  # fmt: skip
def test_an_ack_goes_to_the_timer_if_its_check_point_may_be_there(
    pop_ms: int, invisible_ms: int, revive_queue: int, *, is_forwarded: bool
) -> None:
    """As a RocketMQ broker has left it; `pop_ms` is from this broker's start on."""
    world, _ = make()
    ledger, store = world.core.assembly.pops.ledger, world.core.broker.store
    start_ms = ledger._rocketmq._started_ms
    message = revive_record(REVIVE, "ck", b"{}", 0, deliver_ms=start_ms + 60_000, host=bytes(8))
    message.properties[Property.UNIQ_KEY] = "one"
    ledger._rocketmq._later(message, world.now_ms)
    world.send("x")
    world.run(1)
    handle = CheckPointKey("G", "T", 0, 0, start_ms + pop_ms, revive_queue)
    before = store.end_offset
    ledger.acknowledge(handle, [0], invisible_ms=invisible_ms, now_ms=start_ms)
    assert (store.end_offset > before) is is_forwarded


def test_a_message_that_a_rocketmq_broker_popped_may_be_renewed() -> None:
    world, _ = make()
    ledger = world.core.assembly.pops.ledger
    start_ms = ledger._rocketmq._started_ms
    left = revive_record(REVIVE, "ck", b"{}", 0, deliver_ms=start_ms + 60_000, host=bytes(8))
    left.properties[Property.UNIQ_KEY] = "one"
    ledger._rocketmq._later(left, world.now_ms)
    world.send("x")
    world.run(1)
    handle = CheckPointKey("G", "T", 0, 0, start_ms - 1_000, 0)
    ledger.change_invisible_time(handle, 0, old_ms=10_000, invisible_ms=30_000, now_ms=world.now_ms)
    point = ledger.popped.next_due(world.now_ms + 30_000 + GRACE_MS)
    assert point is not None
    assert point.open_offsets() == [0]


def test_an_ack_of_nothing_is_not_stored_where_rocketmq_has_left_nothing() -> None:
    world, _ = make()
    popped_ms = world.now_ms - 10_000
    world.restart()
    before = world.core.broker.store.end_offset
    ack = {
        "consumerGroup": "G", "topic": "T", "queueId": 0, "offset": 0,
        "extraInfo": f"0 {popped_ms} 172800000 0 0 broker-a 0 0",
    }  # fmt: skip
    assert world.ask(Request.ACK_MESSAGE, ack).code == 0
    assert world.core.broker.store.end_offset == before
