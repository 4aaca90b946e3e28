"""A topic that is deleted and made again: what was popped before is of another life."""

from __future__ import annotations

import pytest

from escrowmq.base.codes import Request
from escrowmq.delivery.revive_reader import GRACE_MS
from tests.unit.broker.consumer import PopConsumer
from tests.unit.broker.world import World


def again(world: World) -> None:
    """The topic is deleted and made again, with two new messages."""
    assert world.ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0
    world.topic()
    for text in ("new 0", "new 1"):
        world.send(text)


def make() -> tuple[World, PopConsumer]:
    world = World()
    world.topic()
    for text in ("old 0", "old 1"):
        world.send(text)
    return world, PopConsumer(world)


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_was_popped_from_a_topic_before_its_deletion_does_not_come_again(
    *, is_killed: bool
) -> None:
    """By its offsets other messages were found, and came once more although they had been
    acknowledged."""
    world, consumer = make()
    consumer.pop()
    again(world)
    if is_killed:
        world.crash()
    gots = consumer.pop()
    assert [(got.body, got.reconsume_times) for got in gots] == [("new 0", 0), ("new 1", 0)]
    consumer.ack(*gots)
    world.run(10_000 + GRACE_MS)
    assert consumer.pop() == []
    assert world.core.assembly.pops.ledger.popped.count == 0


@pytest.mark.parametrize("is_order", [False, True])
def test_a_start_moves_no_offset_by_what_a_group_had_of_an_earlier_life(*, is_order: bool) -> None:
    """Its messages were acknowledged: as many new ones were never handed out."""
    world, consumer = make()
    consumer.is_order = is_order
    consumer.ack(*consumer.pop())
    again(world)
    world.crash()
    assert [got.body for got in consumer.pop()] == ["new 0", "new 1"]


def test_an_orderly_ack_of_an_earlier_life_moves_no_offset() -> None:
    """The new messages up to there were never handed out."""
    world, consumer = make()
    consumer.is_order = True
    gots = consumer.pop()
    again(world)
    world.now_ms += 1
    consumer.ack(*gots)
    assert [got.body for got in consumer.pop()] == ["new 0", "new 1"]


def test_an_orderly_group_reads_a_topic_that_is_made_again_at_once() -> None:
    """Its queue was held for what had been popped before."""
    world, consumer = make()
    consumer.is_order = True
    consumer.pop(invisibleTime=3_600_000)
    again(world)
    gots = consumer.pop()
    assert [(got.body, got.reconsume_times) for got in gots] == [("new 0", 0), ("new 1", 0)]
    consumer.ack(*gots)
    assert consumer.pop() == []
    world.run(10_000)
    assert b'"T@G"' in world.disk.small["config/consumerOffset.json"]
