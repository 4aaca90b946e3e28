"""A folder of ours that RocketMQ has served for a time: what we noted before may be void."""

from __future__ import annotations

import json
import random

import pytest

from escrowmq.base.message import Message
from escrowmq.testing.disk import CrashLoss, SimDisk
from tests.harness.exchange import Exchange

from .test_start_checks import BODIES, OFFSETS, TOPICS, kept, without


def without_topic(disk: SimDisk, *, is_new: bool) -> None:
    """RocketMQ serves the folder, deletes the topic, perhaps makes it again, and stops."""
    without("consumequeue/T/", "abort")(disk)
    topics, offsets = (json.loads(disk.small[path]) for path in (TOPICS, OFFSETS))
    if not is_new:
        del topics["topicConfigTable"]["T"]
    del offsets["escrowLogEnd"], offsets["offsetTable"]["T@G"]
    disk.small[TOPICS], disk.small[OFFSETS] = (
        json.dumps(table).encode() for table in (topics, offsets)
    )


@pytest.mark.parametrize(("is_new", "is_clean"), [(False, True), (False, False), (True, True)])
def test_messages_of_a_topic_that_rocketmq_has_deleted_do_not_come_back(
    *, is_new: bool, is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    disk = kept(is_clean=is_clean)
    without_topic(disk, is_new=is_new)
    caplog.clear()
    exchange = Exchange(disk=disk)
    assert "the whole log is read" not in caplog.text
    if not is_new:
        exchange.create_topic("T")
    assert exchange.connect().bodies("T") == []
    assert exchange.connect().send("T", b"new").code == 0
    disk.crash(random.Random(0), CrashLoss.NOTHING)
    exchange = Exchange(disk=disk)
    assert exchange.connect().bodies("T") == [b"new"]


def test_messages_sent_back_survive_a_power_failure_just_after_rocketmq_has_served() -> None:
    """The broker makes their topic by itself, and may not have saved it; nor is its queue there."""
    exchange = Exchange()
    exchange.create_topic("T")
    exchange.core.close(exchange.now_ms)
    disk = exchange.disk
    offsets = json.loads(disk.small[OFFSETS])
    del offsets["escrowLogEnd"]
    disk.small[OFFSETS] = json.dumps(offsets).encode()
    disk.restart()
    exchange = Exchange(disk=disk)
    message = Message(topic="%RETRY%G", body=b"again")
    exchange.core.broker.store.put(message, exchange.now_ms)
    disk.crash(random.Random(0), CrashLoss.NOTHING)
    without("consumequeue/%RETRY%G/")(disk)
    exchange = Exchange(disk=disk)
    assert exchange.core.broker.store.bounds("%RETRY%G", 0) == (0, 1)


def test_the_next_start_knows_at_once_that_rocketmq_has_not_served_since() -> None:
    disk = kept(is_clean=True)
    without_topic(disk, is_new=False)
    Exchange(disk=disk)
    disk.crash(random.Random(0), CrashLoss.NOTHING)
    assert "escrowLogEnd" in json.loads(disk.small[OFFSETS])


def test_queues_that_are_lost_after_rocketmq_has_served_are_missed_again() -> None:
    disk = kept(is_clean=True)
    offsets = json.loads(disk.small[OFFSETS])
    del offsets["escrowLogEnd"], offsets["offsetTable"]["T@G"]
    disk.small[OFFSETS] = json.dumps(offsets).encode()
    exchange = Exchange(disk=disk)
    exchange.core.close(exchange.now_ms)
    disk.restart()
    without("consumequeue/T/")(disk)
    assert Exchange(disk=disk).connect().bodies("T") == BODIES
