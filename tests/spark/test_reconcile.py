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

from escrowmq.pipeline.reconcile import differences, records, sum_check
from escrowmq.pipeline.reconcile.fates import Fate, fates_of_halves
from escrowmq.pipeline.reconcile.live_messages import BEGIN_TIMES

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
    log.final(log.half(note("no op yet", Fate.COMMITTED)), age_s=20)
    log.final(log.half(note("op is gone", Fate.COMMITTED, "final-of-open-half")))
    for key, outcomes in (("rolled back first", "rc"), ("committed first", "cr")):
        told_twice = log.half(note(key, Fate.COMMITTED, "contradictory-ends"))
        log.final(told_twice)
        for outcome in outcomes:
            log.op(told_twice, outcomes=outcome)
    log.half(note("young", Fate.PENDING, "pending"), age_s=20)
    log.half(note("old", Fate.PENDING, "overdue"))
    for key, found, text in (
        ("immune", "pending", "3600"), ("no longer immune", "overdue", "900"),
        ("no number", "overdue", "an hour"), ("negative", "overdue", "-3600"),
        ("a week at most", "pending", "999999999999999999"),
    ):  # fmt: skip
        log.half(note(key, Fate.PENDING, found), CHECK_IMMUNITY_TIME_IN_SECONDS=text)
    log.half(note("alone", Fate.PARKED, "parked"))
    expired = log.half(note("expired", Fate.EXPIRED))
    log.put("TRANS_CHECK_MAX_TIME_TOPIC", UNIQ_KEY="expired")
    log.op(expired, outcomes="x")
    log.op(log.half(note("lost", Fate.COMMITTED, "committed-without-final")), outcomes="c")
    twice = log.half(note("twice", Fate.COMMITTED, "two-finals"))
    log.final(twice)
    log.final(twice)
    log.op(twice, outcomes="c")
    wrong = log.half(note("wrong", Fate.ROLLED_BACK, "final-after-rollback"))
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
    """A log of RocketMQ's: op records tell no outcome, halves are stored again with every check,
    and neither the copies before the newest one nor what is given up is named by an op record."""
    world = World(None)
    log, note = world.log, world.note
    halves = [
        log.half(note("committed", Fate.COMMITTED)),
        log.half(note("rolled", Fate.ROLLED_BACK)),
    ]
    keys = ("asked", "asked and committed", "ended by its first copy", "doubled", "resumed")
    halves += [log.half(key) for key in keys]
    log.final(halves[0])
    log.op(*halves[:2])
    log.half(note("expired", Fate.EXPIRED), age_s=1010, TRANSACTION_CHECK_TIMES="1")
    log.half(note("asked", Fate.PENDING, "overdue"), TRANSACTION_CHECK_TIMES="1")
    again = log.half(note("asked and committed", Fate.COMMITTED), TRANSACTION_CHECK_TIMES="1")
    log.final(again)
    log.op(again)
    log.half(note("ended by its first copy", Fate.COMMITTED), TRANSACTION_CHECK_TIMES="1")
    log.final(halves[4])
    log.op(halves[4])
    # The op record came too late for the check, whose copies go on until they are given up.
    log.op(log.half("ended and asked"))
    log.half(note("ended and asked", Fate.ROLLED_BACK), age_s=1010, TRANSACTION_CHECK_TIMES="1")
    log.put("TRANS_CHECK_MAX_TIME_TOPIC", age_s=1000, UNIQ_KEY="ended and asked")
    # The producer ends the first copy, the answer to the check the second one: RocketMQ does both.
    doubled = log.half(
        note("doubled", Fate.COMMITTED, "two-finals"), TRAN_PREPARED_QUEUE_OFFSET="5"
    )
    for half in (halves[5], doubled):
        log.final(half)
        log.op(half)
    log.put("TRANS_CHECK_MAX_TIME_TOPIC", age_s=1000, UNIQ_KEY="expired")
    log.put("TRANS_CHECK_MAX_TIME_TOPIC", age_s=1000, UNIQ_KEY="resumed")
    log.half(note("resumed", Fate.PENDING, "overdue"), age_s=900, TRANSACTION_CHECK_TIMES="0")
    return world


def subtle() -> World:
    """What only a look at topics, contents, times and other halves tells."""
    world = World()
    log, note = world.log, world.note
    same = log.half(note("same", Fate.COMMITTED), tags="card", KEYS="o-1")
    log.final(same, tags="card")
    changes: tuple[dict[str, Any], ...] = ({"tags": "cash"}, {"KEYS": "o-2"}, {"body": b"other"})
    for nth, more in enumerate(changes):
        half = log.half(note(f"changed {nth}", Fate.COMMITTED, "final-changed"), tags="card")
        log.final(half, **({"tags": "card"} | more))
        log.op(half, outcomes="c")
    stray = log.half(note("elsewhere", Fate.COMMITTED, "committed-without-final"))
    log.final(stray, topic="shipped")
    gone = log.half(note("late elsewhere", Fate.COMMITTED, "committed-without-final"), **DELAYED)
    log.put("shipped", UNIQ_KEY="late elsewhere", **DELAYED)
    two = [log.half(note("two", Fate.COMMITTED, "committed-twice")) for _ in range(2)]
    for half in two:
        log.final(half)
    log.op(same, stray, gone, *two, outcomes="ccccc")
    wishes: tuple[tuple[str, dict[str, Any], float, str], ...] = (
        ("hours early", {"DELAY": "18"}, 990, "delivered-early"),
        ("a moment early", {"DELAY": "1"}, 1000, ""),
        ("in time", {"TIMER_DELAY_SEC": "100"}, 900, ""),
        ("before its moment", {"TIMER_DELIVER_MS": MOMENT_MS}, 990, "delivered-early"),
        # Any sender chooses these. Brokers take a level first, then seconds, milliseconds, a time.
        ("a level and a time", {"DELAY": "1", "TIMER_DELIVER_MS": LONG_MAX}, 990, ""),
        ("long before", {"TIMER_DELAY_SEC": "-999999999999999999"}, 990, ""),
        ("never", {"TIMER_DELIVER_MS": LONG_MAX}, 990, "delivered-early"),
        ("hardly ever", {"TIMER_DELAY_SEC": LONG_MAX}, 990, "delivered-early"),
        ("as late", {"TIMER_DELAY_MS": LONG_MAX}, 990, "delivered-early"),
    )
    for key, more, age_s, found in wishes:
        half = log.half(note(key, Fate.COMMITTED, found), **DELAYED, **more)
        log.put("paid", age_s=age_s, UNIQ_KEY=key, **DELAYED, **more)
        log.op(half, outcomes="c")
    for key, due_s, found in (("due", 300, "committed-without-final"), ("not due", -60, "")):
        half = log.half(note(key, Fate.COMMITTED, found), **DELAYED)
        due_ms = int((NOW.timestamp() - due_s) * 1000)
        log.put(
            "rmq_sys_wheel_timer", sys_flag=8, UNIQ_KEY=key, REAL_TOPIC="paid",
            TIMER_OUT_MS=str(due_ms), **DELAYED,
        )  # fmt: skip
        log.op(half, outcomes="c")
    return world


DELAYED: dict[str, Any] = {"escrowDelay": "true"}
LONG_MAX = str((1 << 63) - 1)
MOMENT_MS = str(int(NOW.timestamp() * 1000) - 500_000)


def sent_twice() -> World:
    """No answer came, so the producer sent its half again: two halves of one message."""
    world = World()
    log = world.log
    first, second = log.half("k"), log.half(world.note("k", Fate.COMMITTED))
    log.final(second)
    log.op(first, second, outcomes="rc")
    return world


class Tables:
    def __init__(self, spark: SparkSession, world: World) -> None:
        messages = world.log.table(spark).cache()
        self.halves = records.halves(messages)
        self.finals = records.finals(messages)
        alone = self.halves.where(F.col("messageId") == "alone")
        self.fates = fates_of_halves(
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
    balanced = sum_check.check_balance(tables.halves, tables.fates)
    assert balanced.halves == len(world.fates)
    assert str(balanced).startswith(f"{len(world.fates)} halves = ")
    with pytest.raises(sum_check.UnbalancedError, match="read the same range again"):
        sum_check.check_balance(tables.halves.limit(2), tables.fates)


def test_a_half_that_was_sent_twice_is_two_of_them(spark: SparkSession) -> None:
    tables = Tables(spark, sent_twice())
    rows = tables.fates.orderBy("halfOffset").collect()
    assert [(row["fate"], row["finalsCount"]) for row in rows] == [
        (Fate.ROLLED_BACK, 0),
        (Fate.COMMITTED, 1),
    ]


def test_copies_that_consumers_gave_back_are_no_finals(spark: SparkSession) -> None:
    log = Log()
    half = log.half("k")
    log.final(half)
    log.op(half, outcomes="c")
    log.put("%RETRY%mailer", sys_flag=8, UNIQ_KEY="k", REAL_TOPIC="paid")
    log.put("SCHEDULE_TOPIC_XXXX", sys_flag=8, UNIQ_KEY="k", REAL_TOPIC="%RETRY%mailer")
    tables = Tables(spark, _of(log))
    assert tables.finals.count() == 1
    assert tables.fates.head()["finalsCount"] == 1


def test_what_is_not_understood_is_counted(spark: SparkSession) -> None:
    log = Log()
    half = log.half("k")
    log.put("RMQ_SYS_TRANS_OP_HALF_TOPIC", body=b"x,0,-1,", tags="d", escrowOutcomes="cc")
    log.put("RMQ_SYS_TRANS_OP_HALF_TOPIC", body=b"0", tags="z")
    log.put("RMQ_SYS_TRANS_HALF_TOPIC", UNIQ_KEY="homeless")
    messages = log.table(spark)
    assert records.malformed_counts(messages).head().asDict() == {
        "namelessCount": 2,
        "strangeCount": 1,
        "homelessCount": 1,
    }
    named = records.ops(messages).collect()
    assert [(row["halfOffset"], row["outcome"]) for row in named] == [(half["queueOffset"], None)]


@pytest.mark.versions
@pytest.mark.parametrize("make", [ours, theirs, subtle])
def test_exactly_the_differences_are_found(spark: SparkSession, make: Callable[[], World]) -> None:
    world = make()
    tables = Tables(spark, world)
    found = differences.transaction_differences(tables.fates, now=NOW, overdue_s=120, grace_s=60)
    assert classes(found) == world.classes
    rows = {row["class"]: row for row in found.collect()}
    if make is subtle:
        assert rows["final-changed"]["evidence"]["changed"] in ("tag", "keys", "body")
        return
    assert rows["overdue"]["repair"] == "ask the producers"
    later = differences.transaction_differences(
        tables.fates, now=NOW + dt.timedelta(hours=1), overdue_s=120, grace_s=60
    )
    evidence = {row["messageId"]: row["evidence"] for row in found.collect()}
    assert evidence.items() <= {r["messageId"]: r["evidence"] for r in later.collect()}.items()
    assert rows["two-finals"]["evidence"]["finalLogOffsets"].count(",") == 1
    if make is ours:
        assert rows["committed-without-final"]["repair"] == "store the final message again"


def test_a_final_message_without_its_half_is_found_where_halves_were_read(
    spark: SparkSession,
) -> None:
    tables = Tables(spark, ours())
    for begin, end, expected in ((0, 9999, {"nobody's": "final-without-half"}), (51, 9999, {}),
                                 (0, 49, {})):  # fmt: skip
        schema = "broker string, logBegin long, logEnd long"
        read = spark.createDataFrame([("broker-a", begin, end)], schema)
        found = differences.finals_without_half(tables.halves, tables.finals, read=read)
        assert classes(found) == expected


def test_a_final_message_in_another_topic_than_its_half_names_is_found(
    spark: SparkSession,
) -> None:
    tables = Tables(spark, subtle())
    found = differences.finals_elsewhere(tables.halves, tables.finals)
    assert classes(found) == {
        "elsewhere": "final-elsewhere",
        "late elsewhere": "final-elsewhere",
    }
    assert found.head()["evidence"]["wanted"] == "paid"


def test_a_half_that_was_committed_on_two_brokers_is_found(spark: SparkSession) -> None:
    one, other = Log("broker-a"), Log("broker-b")
    for log in (one, other):
        half = log.half("k")
        log.final(half)
        log.op(half, outcomes="c")
    one.rows += other.rows
    tables = Tables(spark, _of(one))
    found = differences.transaction_differences(
        tables.fates, now=NOW, overdue_s=120, grace_s=60
    ).collect()
    assert {(row["broker"], row["class"]) for row in found} == {
        ("broker-a", "committed-twice"),
        ("broker-b", "committed-twice"),
    }


def test_an_op_record_of_a_half_that_never_was_is_found(spark: SparkSession) -> None:
    log = Log()
    log.half("before what was read")
    halves = [log.half("k"), log.half("k2")]
    log.op(*halves, {"queueOffset": 0}, {"queueOffset": 77}, outcomes="crcc")
    messages = log.table(spark)
    read = records.halves(messages).where("halfOffset > 0")
    for until, found in ((NOW, {"#77": "op-without-half"}), (START - dt.timedelta(days=1), {})):
        named = differences.ops_without_half(records.ops(messages), read, until=until)
        assert classes(named) == found


def test_what_was_committed_before_its_topic_began_was_deleted_with_it(
    spark: SparkSession,
) -> None:
    log = Log()
    for key, topic in (("old", "anew"), ("lost", "kept"), ("empty", "empty"), ("other", "unknown")):
        log.op(log.half(key, topic=topic), outcomes="c")
    began = START - dt.timedelta(seconds=900)
    begin_times = spark.createDataFrame(
        [
            ("broker-a", "anew", began),
            ("broker-a", "kept", began - dt.timedelta(days=1)),
            ("broker-a", "empty", None),
            ("broker-b", "unknown", began),
        ],
        BEGIN_TIMES,
    )
    found = differences.transaction_differences(
        Tables(spark, _of(log)).fates, now=NOW, overdue_s=120, begin_times=begin_times
    )
    assert classes(found) == {
        "old": "purged",
        "lost": "committed-without-final",
        "empty": "purged",
        "other": "committed-without-final",
    }


def test_rows_that_are_there_twice_and_rows_under_another_topic(spark: SparkSession) -> None:
    log = Log()
    for key in ("once", "twice", "astray", "any"):
        log.final(log.half(key), age_s=300)
    log.final(log.half("spaced", topic="ns%paid"), age_s=300)
    tables = Tables(spark, _of(log))
    at = START - dt.timedelta(seconds=300)
    written: list[tuple[Any, ...]] = [
        ("once", "paid", at), ("twice", "paid", at), ("twice", "paid", at),
        ("astray", "shipped", at), ("any", None, at), ("spaced", "paid", at),
    ]  # fmt: skip
    rows = spark.createDataFrame(written, "messageId string, topic string, at timestamp")
    assert classes(differences.duplicate_rows(rows)) == {"twice": "row-twice"}
    found = differences.messages_without_row(tables.finals, rows, now=NOW, grace_s=60)
    assert classes(found) == {"astray": "message-without-row"}
    found = differences.rows_without_message(rows, tables.finals, now=NOW, grace_s=60)
    assert classes(found) == {"astray": "row-without-message"}


def test_a_stranger_in_the_place_of_a_final_message_is_found(spark: SparkSession) -> None:
    log = Log()
    half = log.half("k")
    log.put("paid", sys_flag=8, prepared=half["physicalOffset"], UNIQ_KEY="stranger")
    tables = Tables(spark, _of(log))
    read = spark.createDataFrame(
        [("broker-a", 0, 9999)], "broker string, logBegin long, logEnd long"
    )
    found = differences.finals_without_half(tables.halves, tables.finals, read=read)
    assert classes(found) == {"stranger": "final-without-half"}


def test_later_runs_name_final_messages_whose_half_cannot_be_open(spark: SparkSession) -> None:
    log = Log()
    at = [log.half(key)["physicalOffset"] for key in ("k", "known")]
    for key, prepared in (("nowhere", 0), ("inside", at[0] + 1), ("behind", at[1] + 1)):
        log.put("paid", sys_flag=8, age_s=30, prepared=prepared, UNIQ_KEY=key)
    log.put("paid", sys_flag=8, age_s=30, prepared=at[0] + 2, UNIQ_KEY="known")
    log.put("paid", sys_flag=8, age_s=300, prepared=0, UNIQ_KEY="of the last run")
    log.put("paid", sys_flag=8, age_s=5, prepared=at[1] + 1, UNIQ_KEY="young")
    tables = Tables(spark, _of(log))
    read = spark.createDataFrame(
        [("broker-a", at[1], at[1])], "broker string, logBegin long, logEnd long"
    )
    until, since = (START - dt.timedelta(seconds=age_s) for age_s in (10, 60))

    def found(since: dt.datetime | None) -> set[str]:
        return set(
            classes(
                differences.finals_without_half(
                    tables.halves, tables.finals, read=read, until=until, new_since=since
                )
            )
        )

    assert found(since) == {"nowhere", "inside", "behind"}
    assert found(None) == {"behind"}
    read = read.where("false")  # no half came lately, and so all of them are older
    log.put("paid", age_s=30, UNIQ_KEY="redone", escrowRedone="true")
    tables = Tables(spark, _of(log))
    assert found(since) == {"nowhere", "inside", "behind"}
    assert found(None) == set()


def test_what_a_group_has_not_consumed(spark: SparkSession) -> None:
    log = Log()
    for number in range(4):
        log.final(log.half(f"k{number}"), age_s=300 - 100 * number)
    tables = Tables(spark, _of(log))
    offsets = spark.createDataFrame(
        [("mailer", "broker-a", "paid", 0, 1)],
        "consumerGroup string, broker string, topic string, queueId int, committed long",
    )
    found = differences.unconsumed_finals(tables.finals, offsets, now=NOW, grace_s=60)
    assert classes(found) == {"k1": "not-consumed", "k2": "not-consumed"}
    assert found.head()["evidence"]["consumerGroup"] == "mailer"


def test_a_queue_that_a_group_has_never_come_to_is_not_consumed(spark: SparkSession) -> None:
    log = Log("broker-b")
    log.final(log.half("unreachable"), age_s=300)
    log.final(log.half("of nobody", topic="shipped"), age_s=300)
    tables = Tables(spark, _of(log))
    offsets = spark.createDataFrame(
        [("mailer", "broker-a", "paid", 0, 7), ("other", "broker-b", "paid", 0, 1)],
        "consumerGroup string, broker string, topic string, queueId int, committed long",
    )
    found = differences.unconsumed_finals(tables.finals, offsets, now=NOW, grace_s=60).collect()
    assert [row["messageId"] for row in found] == ["unreachable"]
    assert found[0]["evidence"] == {"consumerGroup": "mailer", "queueId": "0", "queueOffset": "0"}


def test_the_business_and_the_messages(spark: SparkSession) -> None:
    log = Log()
    for key, age_s in (("both", 300), ("message only", 300), ("on its way", 10)):
        log.final(log.half(key), age_s=age_s)
    tables = Tables(spark, _of(log))
    long_ago, now = START - dt.timedelta(seconds=300), START - dt.timedelta(seconds=10)
    written: list[tuple[Any, ...]] = [("both", long_ago), ("row only", long_ago), ("young", now)]
    rows = spark.createDataFrame(written, "messageId string, at timestamp")
    found = differences.combine(
        differences.messages_without_row(tables.finals, rows, now=NOW, grace_s=60),
        differences.rows_without_message(rows, tables.finals, now=NOW, grace_s=60),
    )
    assert classes(found) == {
        "message only": "message-without-row",
        "row only": "row-without-message",
    }


def _of(log: Log) -> World:
    world = World()
    world.log = log
    return world
