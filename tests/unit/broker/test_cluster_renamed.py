"""Another `brokerClusterName`: the revive records of popped messages have another topic then."""

from __future__ import annotations

import pytest

from escrowmq.delivery.pop_quotas import PopQuotas
from escrowmq.delivery.revive_reader import GRACE_MS
from tests.unit.broker.consumer import PopConsumer
from tests.unit.broker.world import World


def popped() -> tuple[World, PopConsumer]:
    world = World(cluster="A")
    world.topic()
    for text in "abcdef":
        world.send(text)
    return world, PopConsumer(world)


def rename(world: World, cluster: str, *, is_clean: bool = True) -> None:
    world.settings["cluster"] = cluster
    if is_clean:
        world.restart()
    else:
        world.crash()


def bodies(consumer: PopConsumer) -> list[str]:
    return sorted(got.body for got in consumer.pop())


@pytest.mark.parametrize("is_clean", [True, False])
def test_popped_messages_are_redelivered_under_another_name(is_clean: bool) -> None:
    world, consumer = popped()
    first, second, *_ = consumer.pop(maxMsgNums=4)
    consumer.ack(first)
    rename(world, "B", is_clean=is_clean)
    assert bodies(consumer) == ["e", "f"]  # no offset was forgotten
    consumer.ack(second)  # with a receipt of before
    world.run(10_000 + GRACE_MS)
    again = consumer.pop()
    assert sorted(got.body for got in again) == ["c", "d", "e", "f"]
    consumer.ack(*again)
    world.run(60_000)
    assert consumer.pop() == []


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("name", ["A", "B", "C"])
def test_nothing_is_redelivered_twice_after_the_next_start(name: str, is_clean: bool) -> None:
    world, consumer = popped()
    consumer.pop()
    rename(world, "B")
    world.run(10_000 + GRACE_MS)
    again = consumer.pop(maxMsgNums=6)
    assert len(again) == 6
    consumer.ack(*again[:4])
    rename(world, name, is_clean=is_clean)
    world.run(10_000 + GRACE_MS)
    assert bodies(consumer) == sorted(got.body for got in again[4:])


def test_a_start_says_what_it_takes_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world, consumer = popped()
    rename(world, "B")
    assert "taken over" not in caplog.text
    consumer.pop()
    rename(world, "A")
    assert "1 records of popped messages are taken over from rmq_sys_REVIVE_LOG_B" in caplog.text


def test_a_crash_right_after_the_start_takes_them_over_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, consumer = popped()
    got, *_ = consumer.pop()
    rename(world, "B", is_clean=False)
    world.crash()
    assert "cannot be taken over" not in caplog.text
    consumer.ack(got)
    world.crash()
    world.run(10_000 + GRACE_MS)
    assert bodies(consumer) == ["b", "c", "d", "e", "f"]


def test_what_cannot_be_taken_over_is_logged_and_taken_at_the_next_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world, consumer = popped()
    consumer.pop()
    with monkeypatch.context() as patch:
        patch.setattr(PopQuotas, "may_pop_more", lambda *_: False)
        rename(world, "B")
        world.run(30_000)
    assert "rmq_sys_REVIVE_LOG_A" in caplog.text
    assert "1 of 1" in caplog.text
    assert consumer.pop() == []
    world.restart()
    world.run(10_000 + GRACE_MS)
    assert bodies(consumer) == list("abcdef")
