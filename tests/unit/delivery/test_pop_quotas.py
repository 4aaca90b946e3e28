from __future__ import annotations

import pytest

from escrowmq.base import fixed_limits
from escrowmq.delivery import pop_quotas
from escrowmq.delivery.pop_check_points import CheckPoints
from escrowmq.delivery.pop_quotas import PopQuotas
from escrowmq.delivery.revive_records import CheckPointKey
from tests.unit.broker.consumer import PopConsumer
from tests.unit.broker.world import World


class Shared:
    """Groups that pop until they may pop no more."""

    def __init__(self) -> None:
        self.popped = CheckPoints()
        self.quotas = PopQuotas(self.popped)

    def pop_all(self, group: str, account: str = "") -> int:
        if account:
            self.quotas.note_popper(account, group)
        before = self.popped.counts[group]
        while self.quotas.may_pop_more(group, 0, account):
            at = self.popped.count
            key = CheckPointKey(group, "T", 0, at, 1, 0)
            self.popped.add(key, [at], invisible_ms=1, revive_offset=at, grace_ms=0)
        return self.popped.counts[group] - before


@pytest.fixture(autouse=True)
def set_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixed_limits, "CHECK_POINTS_MAX", 800)
    monkeypatch.setattr(fixed_limits, "CHECK_POINTS_OF_GROUP_MAX", 200)
    monkeypatch.setattr(fixed_limits, "CHECK_POINTS_OF_ACCOUNT_MAX", 400)
    monkeypatch.setattr(fixed_limits, "CHECK_POINTS_RESERVED", 100)
    monkeypatch.setattr(pop_quotas, "FEW", 10)


def test_some_are_left_for_groups_with_few() -> None:
    shared = Shared()
    assert [shared.pop_all(group) for group in "abcde"] == [200, 200, 200, 100, 10]
    assert shared.pop_all("d") == 0
    assert sum(shared.pop_all(f"small-{n}") for n in range(20)) == 90
    assert shared.pop_all("late") == 0, "all are used"


def test_an_account_has_at_most_half_with_all_its_groups() -> None:
    shared = Shared()
    assert [shared.pop_all(group, "evil") for group in "abab"] == [200, 200, 0, 0]
    assert shared.pop_all("victims", "victim") == 200
    for point in list(shared.popped._lines["a", "T", 0].open.values())[:150]:
        shared.popped.acknowledge_all(point)
    assert shared.pop_all("b", "evil") == 0, "as many as a group may have"
    assert shared.pop_all("c", "evil") == 150


def test_a_group_counts_from_its_first_pop_on() -> None:
    shared = Shared()
    assert [shared.pop_all(group, "evil") for group in "ab"] == [200, 200]
    assert shared.pop_all("victims", "victim") == 200
    for point in list(shared.popped._lines["b", "T", 0].open.values())[:10]:
        shared.popped.acknowledge_all(point)
    assert shared.pop_all("new", "evil") == 10


def test_groups_that_acknowledge_nothing_leave_some_for_others_of_their_account() -> None:
    """All applications may use one account: two groups that were stuck stopped all others."""
    shared = Shared()
    assert [shared.pop_all(group, "all") for group in "ab"] == [200, 200]
    assert shared.pop_all("c", "all") == 10
    assert sum(shared.pop_all(f"small-{n}", "all") for n in range(20)) == 90
    assert shared.pop_all("late", "all") == 0, "half of all, and what is reserved"
    assert shared.pop_all("other", "another") == 200


def test_a_group_that_gets_no_more_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.topic()
    for _ in range(300):
        world.send("m")
    consumer = PopConsumer(world, invisible_ms=365 * 86_400_000)
    gots = [got for _ in range(250) for got in consumer.pop(maxMsgNums=1)]
    assert len(gots) == 200
    lines = [record.getMessage() for record in caplog.records]
    assert (
        lines.count("group G gets no more messages for now: 200 of its pops are not acknowledged")
        == 1
    )
    assert len(PopConsumer(world, group="other").pop()) == 32
    consumer.ack(gots[0])
    assert len(consumer.pop(maxMsgNums=1)) == 1
