"""Spark and Redis find the same lost commits, and both are redone by the same compensator."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

import escrowmq
from escrowmq.errors import NotFound, NotSupported
from tests.compensation.services import RedisServer, missing

from .messages import START

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
pytest.importorskip("redis")

from escrowmq.compensation import Compensator, Fate, Member, RedisSets
from escrowmq.pipeline.reconcile.lost_commits import ComputedSets, announced, consumed, lost_commits

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"not on this machine: {missing()}")
COUNT = 5_000


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis")
    yield server
    server.kill()


def test_both_find_the_same(spark: SparkSession, redis_server: RedisServer) -> None:
    chance = random.Random(5)
    members = [Member(f"{number:032X}", chance.choice(("paid", "a@b"))) for number in range(COUNT)]
    told = [str(m) for m in members] + [str(m) for m in chance.sample(members, 100)]
    done = [m for m in members if chance.random() > 0.01] + [Member("F" * 32, "paid")]
    sets = RedisSets(redis_server.url)
    sets.announce(told)
    sets.consume(str(m) for m in done)
    by_redis = sorted(one for some in sets.compare() for one in some.lost)
    sets.close()
    bodies = [*told, "", "no member", "@paid", "id@"]
    messages = spark.createDataFrame(
        [(body.encode(), START) for body in bodies], "body binary, storeTimestamp timestamp"
    )
    rows = spark.createDataFrame([tuple(m) for m in done], "messageId string, topic string")
    lost = lost_commits(announced(messages), consumed(rows))
    found = lost.collect()
    assert sorted(row["member"] for row in found) == by_redis
    assert by_redis
    assert {(row["messageId"], row["topic"]) for row in found} == {
        (m.message_id, m.topic) for m in members if str(m) in set(by_redis)
    }

    shop = Shop()
    report = Compensator(
        Admin(gone=found[0]["messageId"]),
        ComputedSets(announced(messages), consumed(rows)),
        shop,
        now_ms=lambda: 1_000_000,
    ).run(is_dry=False)
    assert report.counts[Fate.REDONE.value] == len(found) - 1
    assert report.counts[Fate.MISSING.value] == 1
    assert len(shop.done) == len(found) - 1


class Messages:
    def __init__(self, gone: str) -> None:
        self._gone = gone

    def prepared(self, message_id: str, *, topic: str) -> escrowmq.ReceivedMessage:
        if message_id == self._gone:
            raise NotFound("no broker keeps it")
        return escrowmq.ReceivedMessage(topic, b"x", message_id=message_id)


class Transactions:
    def show(self, message_id: str, *, topic: str, broker: str) -> NoReturn:
        raise NotSupported("as RocketMQ's brokers do")


class Brokers:
    def runtime(self, broker: str) -> dict[str, str]:
        return {}


class Admin(escrowmq.Admin):
    """Answers about every message but one."""

    def __init__(self, gone: str) -> None:
        self.messages = Messages(gone)  # type: ignore[assignment]
        self.transactions = Transactions()  # type: ignore[assignment]
        self.brokers = Brokers()  # type: ignore[assignment]


class Shop:
    def __init__(self) -> None:
        self.done: set[str] = set()

    def apply(self, message: escrowmq.ReceivedMessage) -> bool:
        self.done.add(message.message_id)
        return True

    def done_since(self, mark: str | None) -> tuple[list[Member], str]:
        return [], ""
