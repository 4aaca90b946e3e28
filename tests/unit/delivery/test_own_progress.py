from __future__ import annotations

import pytest

from escrowmq.base.codes import Request
from escrowmq.broker.reads.pull_rules import PullFlag
from escrowmq.delivery.own_progress import is_own_progress
from escrowmq.delivery.revive_records import MARK_GROUP, REVIVE_GROUP
from tests.unit.broker.consumer import PopConsumer
from tests.unit.broker.world import World

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"


@pytest.mark.parametrize(
    ("group", "topic", "is_own"),
    [
        ("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", True),
        ("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_OP_HALF_TOPIC", True),
        ("CID_RMQ_SYS_TRANS", "T", False),
        (REVIVE_GROUP, REVIVE, True),
        (MARK_GROUP, "rmq_sys_REVIVE_LOG_former", True),
        (MARK_GROUP, "T", False),
        ("readers", REVIVE, False),
    ],
)
def test_progress_is_the_brokers_own_in_its_own_topics(
    group: str, topic: str, *, is_own: bool
) -> None:
    assert is_own_progress(group, topic) is is_own


@pytest.mark.parametrize("group", [REVIVE_GROUP, MARK_GROUP])
def test_no_client_can_set_how_far_the_broker_has_read_its_own_records(group: str) -> None:
    """Otherwise the next start would skip check points, and their messages would be lost."""
    world = World()
    world.topic()
    for body in "ab":
        world.send(body)
    consumer = PopConsumer(world)
    consumer.pop()
    place = {"consumerGroup": group, "topic": REVIVE, "queueId": 0}
    commit = world.ask(Request.UPDATE_CONSUMER_OFFSET, place | {"commitOffset": 1_000}, peer=7)
    assert commit.code == 16
    flags = PullFlag.COMMIT_OFFSET | PullFlag.SUBSCRIPTION
    pull = {"queueOffset": 0, "maxMsgNums": 32, "subscription": "*", "sysFlag": flags}
    for _ in range(3):  # the fast path serves a repeated pull
        world.tell(Request.PULL_MESSAGE, place | pull | {"commitOffset": 1_000}, peer=7)
        assert [reply.code for reply in world.take_replies(7)] == [0]
    assert PopConsumer(world, group=group, topic=REVIVE, peer=7).ask().code == 16
    assert world.core.broker.offsets.get(group, REVIVE, 0) == -1
    world.core.broker.offsets.commit(group, REVIVE, 0, 1_000, world.now_ms)  # by an older release
    world.run(20_000)
    world.crash()
    world.run(20_000)
    assert [got.body for got in consumer.pop()] == list("ab")
