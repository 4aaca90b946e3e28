from __future__ import annotations

import pytest

from escrowmq.base.message import Message
from escrowmq.delivery.revive_records import RESET_TAG
from tests.unit.broker.consumer import PopConsumer
from tests.unit.broker.world import World

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
_HOST = b"\x7f\x00\x00\x01\x00\x00\x00\x01"


def _consumed_world() -> World:
    """A world in which a group has popped and acknowledged six messages."""
    world = World()
    world.topic()
    for body in "abcdef":
        world.send(body)
    consumer = PopConsumer(world)
    consumer.ack(*consumer.pop())
    return world


def _reset_record(tag: str, offset: int) -> Message:
    """A record of the revive topic that resets the group's offset, with this tag."""
    return Message(
        topic=REVIVE,
        body=b'{"c":"G","t":"T","o":{"0":%d}}' % offset,
        properties={"TAGS": tag},
        born_host=_HOST,
        store_host=_HOST,
    )


def test_a_start_takes_nothing_from_records_with_a_tag_of_a_later_release() -> None:
    world = _consumed_world()
    later = _reset_record("another", 0)
    assert world.core.broker.store.put(later, world.now_ms).log_offset >= 0
    world.crash()
    assert world.core.broker.offsets.get("G", "T", 0) == 6
    assert world.core.assembly.pops.ledger._reader.dropped_count == 0


@pytest.mark.parametrize(("moves_offsets", "offset"), [(True, 2), (False, 6)])
def test_a_reset_that_the_offsets_know_already_is_not_made_again(
    *, moves_offsets: bool, offset: int
) -> None:
    world = _consumed_world()
    store = world.core.broker.store
    record = store.read(store.put(_reset_record(RESET_TAG, 2), world.now_ms).log_offset)
    assert record is not None
    reader = world.core.assembly.pops.ledger._reader
    reader.apply_record(record, record.queue_offset, world.now_ms, moves_offsets=moves_offsets)
    assert world.core.broker.offsets.get("G", "T", 0) == offset
