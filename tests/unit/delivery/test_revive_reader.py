from __future__ import annotations

import pytest

from escrowmq.base.message import Message
from escrowmq.delivery.revive_records import RESET_TAG
from tests.unit.broker.consumer import PopConsumer
from tests.unit.broker.world import World

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
_HOST = b"\x7f\x00\x00\x01\x00\x00\x00\x01"


def test_a_start_takes_nothing_from_records_with_a_tag_of_a_later_release() -> None:
    world = World()
    world.topic()
    for body in "abcdef":
        world.send(body)
    consumer = PopConsumer(world)
    consumer.ack(*consumer.pop())
    later = Message(
        topic=REVIVE,
        body=b'{"c":"G","t":"T","o":{"0":0}}',
        properties={"TAGS": "another"},
        born_host=_HOST,
        store_host=_HOST,
    )
    assert world.core.broker.store.put(later, world.now_ms).log_offset >= 0
    world.crash()
    assert world.core.broker.offsets.get("G", "T", 0) == 6
    assert world.core.assembly.pops.ledger._reader.dropped_count == 0


@pytest.mark.parametrize(("moves_offsets", "offset"), [(True, 2), (False, 6)])
def test_a_reset_that_the_offsets_know_already_is_not_made_again(
    *, moves_offsets: bool, offset: int
) -> None:
    world = World()
    world.topic()
    for body in "abcdef":
        world.send(body)
    consumer = PopConsumer(world)
    consumer.ack(*consumer.pop())
    reset = Message(
        topic=REVIVE,
        body=b'{"c":"G","t":"T","o":{"0":2}}',
        properties={"TAGS": RESET_TAG},
        born_host=_HOST,
        store_host=_HOST,
    )
    store = world.core.broker.store
    record = store.read(store.put(reset, world.now_ms).log_offset)
    assert record is not None
    reader = world.core.assembly.pops.ledger._reader
    reader.apply_record(record, record.queue_offset, world.now_ms, moves_offsets=moves_offsets)
    assert world.core.broker.offsets.get("G", "T", 0) == offset
