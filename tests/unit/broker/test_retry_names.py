"""`%RETRY%billing_orders` may be the retry topic of the group billing_orders, or what the group
billing has popped from orders: it is whose it was first."""

from __future__ import annotations

import pytest

from escrowmq.delivery.groups import GroupConfig
from tests.unit.broker.consumer import PopConsumer
from tests.unit.broker.world import World

OLDER, NEWER = "%RETRY%billing_orders", "%RETRY%billing+orders"


@pytest.fixture
def world() -> World:
    made = World()
    made.topic("orders")
    return made


@pytest.fixture
def consumer(world: World) -> PopConsumer:
    return PopConsumer(world, group="billing", topic="orders")


def own_group(world: World) -> None:
    """The group billing_orders, with a message that it could not digest."""
    world.core.broker.groups.put(GroupConfig(group_name="billing_orders"), world.now_ms)
    world.topic(OLDER)
    world.send("secret", topic=OLDER)


def test_a_pop_does_not_read_the_retry_topic_of_a_group_that_is_called_alike(
    world: World, consumer: PopConsumer
) -> None:
    own_group(world)
    assert consumer.pop() == []
    assert not world.core.broker.offsets.offsets_of("billing", OLDER)
    consumer.wait(initMode=0)
    world.send("another", topic=OLDER)
    assert world.take_replies() == []


def test_what_was_popped_comes_again_under_a_name_that_nobody_else_can_have(
    world: World, consumer: PopConsumer
) -> None:
    own_group(world)
    world.send("mine", topic="orders")
    assert [got.body for got in consumer.pop()] == ["mine"]
    world.run(15_000)
    assert [message.body for message in world.messages(OLDER)] == [b"secret"]
    assert [message.body for message in world.messages(NEWER)] == [b"mine"]
    (got,) = consumer.pop()
    assert (got.body, got.reconsume_times) == ("mine", 1)
    consumer.ack(got)
    world.run(15_000)
    assert consumer.pop() == []


def test_a_group_that_came_later_does_not_take_from_one_that_pops(
    world: World, consumer: PopConsumer
) -> None:
    world.send("mine", topic="orders")
    assert [got.body for got in consumer.pop()] == ["mine"]
    world.run(15_000)
    world.core.broker.groups.put(GroupConfig(group_name="billing_orders"), world.now_ms)
    assert [got.body for got in consumer.pop()] == ["mine"]


def test_two_groups_that_pop_do_not_share_a_retry_topic(world: World) -> None:
    world.topic("late_orders")
    one = PopConsumer(world, group="a", topic="late_orders")
    two = PopConsumer(world, group="a_late", topic="orders")
    world.send("of a", topic="late_orders")
    assert [got.body for got in one.pop()] == ["of a"]
    world.run(15_000)
    assert [message.body for message in world.messages("%RETRY%a_late_orders")] == [b"of a"]
    assert two.pop() == []
    assert [got.body for got in one.pop()] == ["of a"]
