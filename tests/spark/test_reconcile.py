"""What became of every half, and each class of difference, on tables written by hand."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from .messages import START, Log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

from escrowmq.pipeline.reconcile import differences, records, sums
from escrowmq.pipeline.reconcile.fates import Fate, fates

NOW = START


class World:
    """A log with everything that can happen, and what is to be found in it."""

    def __init__(self, broker: str | None = "broker-a") -> None:
        self.log = Log(broker)
        self.fates: dict[str, str] = {}
        self.classes: dict[str, str] = {}

    def note(self, key: str, fate: Fate, found: str = "") -> str:
        self.fates[key] = fate.value
        if found:
            self.classes[key] = found
        return key


def ours() -> World:
    """A log of EscrowMQ's broker."""
    world = World()
    log, note = world.log, world.note
    first, second = (
        log.half(note("committed", Fate.COMMITTED)), log.half(note("rolled", Fate.ROLLED_BACK)),
    )  # fmt: skip
    log.final(first)
    log.op(first, second, outcomes="cr")
    log.final(log.half(note("no op yet", Fate.COMMITTED)))
    log.half(note("young", Fate.PENDING, "pending"), age_s=20)
    log.half(note("old", Fate.PENDING, "overdue"))
    log.half(note("alone", Fate.PARKED, "parked"))
    expired = log.half(note("expired", Fate.EXPIRED))
    log.put("TRANS_CHECK_MAX_TIME_TOPIC", UNIQ_KEY="expired")
    log.op(expired, outcomes="x")
    log.op(log.half(note("lost", Fate.COMMITTED, "committed without final")), outcomes="c")
    twice = log.half(note("twice", Fate.COMMITTED, "two finals"))
    log.final(twice)
    log.final(twice)
    log.op(twice, outcomes="c")
    wrong = log.half(note("wrong", Fate.ROLLED_BACK, "final after rollback"))
    log.final(wrong)
    log.op(wrong, outcomes="r")
    delayed = log.half(note("delayed", Fate.COMMITTED), escrowDelay="true")
    log.put(
        "SCHEDULE_TOPIC_XXXX", sys_flag=8, UNIQ_KEY="delayed", REAL_TOPIC="paid", escrowDelay="true"
    )
    log.put("paid", UNIQ_KEY="delayed", escrowDelay="true")
    log.op(delayed, outcomes="c")
    waits = log.half(note("waits", Fate.COMMITTED), escrowDelay="true")
    log.put(
        "rmq_sys_wheel_timer", sys_flag=8, UNIQ_KEY="waits", REAL_TOPIC="paid", escrowDelay="true"
    )
    log.op(waits, outcomes="c")
    log.put("paid", sys_flag=8, prepared=log.rows[0]["physicalOffset"] + 50, UNIQ_KEY="nobody's")
    log.put("paid", UNIQ_KEY="plain")
    return world


def theirs() -> World:
    """A log of RocketMQ's: op records tell no outcome, halves are stored again with every check."""
    world = World(None)
    log, note = world.log, world.note
    halves = [
        log.half(note("committed", Fate.COMMITTED)),
        log.half(note("rolled", Fate.ROLLED_BACK)),
        log.half("asked"),
        log.half("asked and committed"),
        log.half(note("expired", Fate.EXPIRED)),
    ]
    log.final(halves[0])
    log.op(*halves[:2])
    log.half(note("asked", Fate.PENDING, "overdue"), TRANSACTION_CHECK_TIMES="1")
    again = log.half(note("asked and committed", Fate.COMMITTED), TRANSACTION_CHECK_TIMES="1")
    log.op(halves[2])
    log.op(halves[3])
    log.final(again)
    log.op(again)
    log.put("TRANS_CHECK_MAX_TIME_TOPIC", UNIQ_KEY="expired")
    log.op(halves[4])
    return world


class Tables:
    def __init__(self, spark: SparkSession, world: World) -> None:
        messages = world.log.table(spark).cache()
        self.halves = records.halves(messages)
        self.finals = records.finals(messages)
        alone = self.halves.where(F.col("messageId") == "alone")
        self.fates = fates(
            self.halves, records.ops(messages), self.finals, records.discards(messages),
            parked=alone.select("broker", "halfOffset"),
        )  # fmt: skip


def classes(found: DataFrame) -> dict[str, str]:
    return {row["messageId"]: row["class"] for row in found.collect()}


@pytest.mark.parametrize("make", [ours, theirs])
def test_every_half_has_its_fate_and_the_sums_balance(
    spark: SparkSession, make: Callable[[], World]
) -> None:
    world = make()
    tables = Tables(spark, world)
    rows = tables.fates.where(F.col("fate") != Fate.STORED_AGAIN).collect()
    assert {row["messageId"]: row["fate"] for row in rows} == world.fates
    balance = sums.balance(tables.halves, tables.fates)
    assert balance.halves == len(world.fates)
    assert str(balance).startswith(f"{len(world.fates)} halves = ")
    with pytest.raises(sums.Unbalanced, match="read the same range again"):
        sums.balance(tables.halves.limit(2), tables.fates)


@pytest.mark.parametrize("make", [ours, theirs])
def test_exactly_the_differences_are_found(spark: SparkSession, make: Callable[[], World]) -> None:
    world = make()
    tables = Tables(spark, world)
    found = differences.transactions(tables.fates, now=NOW, overdue_s=120)
    assert classes(found) == world.classes
    rows = {row["class"]: row for row in found.collect()}
    assert rows["overdue"]["repair"] == "ask the producers"
    assert rows["overdue"]["evidence"]["ageSeconds"] == "1000"
    if make is ours:
        assert rows["two finals"]["evidence"]["finalLogOffsets"].count(",") == 1
        assert rows["committed without final"]["repair"] == "store the final message again"


def test_a_final_message_without_its_half_is_found_where_halves_were_read(
    spark: SparkSession,
) -> None:
    tables = Tables(spark, ours())
    since = spark.createDataFrame([("broker-a", 0)], "broker string, logBegin long")
    found = differences.orphans(tables.halves, tables.finals, since=since)
    assert classes(found) == {"nobody's": "final without half"}
    later = spark.createDataFrame([("broker-a", 51)], "broker string, logBegin long")
    assert classes(differences.orphans(tables.halves, tables.finals, since=later)) == {}


def test_what_a_group_has_not_consumed(spark: SparkSession) -> None:
    log = Log()
    for number in range(4):
        log.final(log.half(f"k{number}"), age_s=300 - 100 * number)
    tables = Tables(spark, _of(log))
    offsets = spark.createDataFrame(
        [("mailer", "broker-a", "paid", 0, 1)],
        "consumerGroup string, broker string, topic string, queueId int, committed long",
    )
    found = differences.not_consumed(tables.finals, offsets, now=NOW, grace_s=60)
    assert classes(found) == {"k1": "not consumed", "k2": "not consumed"}
    assert found.head()["evidence"]["consumerGroup"] == "mailer"


def test_the_business_and_the_messages(spark: SparkSession) -> None:
    log = Log()
    for key, age_s in (("both", 300), ("message only", 300), ("on its way", 10)):
        log.final(log.half(key), age_s=age_s)
    tables = Tables(spark, _of(log))
    long_ago, now = START - dt.timedelta(seconds=300), START - dt.timedelta(seconds=10)
    written: list[tuple[Any, ...]] = [("both", long_ago), ("row only", long_ago), ("young", now)]
    rows = spark.createDataFrame(written, "messageId string, at timestamp")
    found = differences.together(
        differences.messages_without_row(tables.finals, rows, now=NOW, grace_s=60),
        differences.rows_without_message(rows, tables.finals, now=NOW, grace_s=60),
    )
    assert classes(found) == {
        "message only": "message without row",
        "row only": "row without message",
    }


def _of(log: Log) -> World:
    world = World()
    world.log = log
    return world
