"""How long it takes to find what is missing, and how much memory.

    python benchmarks/reconcile.py [--counts 1000000,10000000] [--only job,join,redis,python]

`job` is the whole comparison of `pipeline.reconcile` (fates, sums, differences) over halves, op
records and final messages that lie in Parquet with the source's columns. `join` is the difference
of two sets of ids alone, in Spark; `redis` the same in a Redis server (loading, then MULTI over 256
buckets, as compensation does, then SDIFF over whole sets); `python` the same with plain sets. One
in a thousand is missing. Memory is the highest resident size of the processes that do it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

sys.path.insert(0, str(Path(__file__).parents[1]))

import redis
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.compensation.services import RedisServer
from tests.spark.sessions import build_session
from tests.spark.victims import descendants

from escrowmq.compensation import RedisSets
from escrowmq.pipeline.reconcile import differences, records, sum_check
from escrowmq.pipeline.reconcile.fates import fates_of_halves
from escrowmq.pipeline.reconcile.lost_commits import lost_commits

RESET = "5"
"""Lets the kernel forget the highest size so far."""

BASE_S = 1_795_000_000
OPS_PER_RECORD = 20


class Peak:
    """The highest resident sizes of some processes, added up. The kernel keeps them: whoever looks
    now and then from a thread of a busy process looks too late."""

    def __init__(self, pids: Callable[[], list[int]]) -> None:
        self._pids = pids
        self.size = 0

    def __enter__(self) -> Self:
        for pid in self._pids():
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text(RESET)
        return self

    def __exit__(self, *_: object) -> None:
        self.size = sum(map(_highest, self._pids()))


def _highest(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)


def own() -> list[int]:
    """This process and all below it."""
    return [os.getpid(), *descendants(os.getpid())]


def measure(name: str, count: int, work: Callable[[], int], pids: Callable[[], list[int]]) -> None:
    """One line of the table."""
    with Peak(pids) as peak:
        started = time.monotonic()
        found = work()
        taken = time.monotonic() - started
    print(
        f"| {name} | {count:,} | {taken:.1f} | {peak.size / (1 << 20):,.0f} | {found:,} |",
        flush=True,
    )


def messages(spark: SparkSession, count: int) -> DataFrame:
    """Halves, op records and final messages; every thousandth final message is missing."""
    ids = spark.range(count)
    at = F.timestamp_seconds(F.lit(BASE_S) + F.col("id") / 1000)
    key = F.upper(F.lpad(F.hex("id"), 32, "0"))
    own = F.create_map(
        *[F.lit("UNIQ_KEY"), key, F.lit("REAL_TOPIC"), F.lit("paid"), F.lit("PGROUP"), F.lit("g")]
    )

    def rows(frame: DataFrame, topic: str, **cells: Any) -> DataFrame:
        blank = {
            "brokerName": F.lit("broker-a"), "queueId": F.lit(0), "queueOffset": F.col("id"),
            "msgId": key, "tags": F.lit(None).cast("string"), "properties": own,
            "bornTimestamp": at, "storeTimestamp": at, "sysFlag": F.lit(0),
            "physicalOffset": F.col("id") * 1000,
            "preparedTransactionOffset": F.lit(0).cast("long"),
            "body": F.lit(None).cast("binary"),
        }  # fmt: skip
        chosen = {**blank, **cells}
        return frame.select(
            F.lit(topic).alias("topic"), *[cell.alias(name) for name, cell in chosen.items()]
        )

    halves = rows(ids, "RMQ_SYS_TRANS_HALF_TOPIC")
    finals = rows(
        ids.where("id % 1000 <> 7"), "paid", sysFlag=F.lit(8),
        preparedTransactionOffset=F.col("id") * 1000, physicalOffset=F.col("id") * 1000 + 300,
    )  # fmt: skip
    first = F.col("id") * OPS_PER_RECORD
    body = F.concat_ws(
        ",",
        F.sequence(first, F.least(first + OPS_PER_RECORD, F.lit(count)) - 1).cast("array<string>"),
    )
    letters = F.create_map(F.lit("escrowOutcomes"), F.repeat(F.lit("c"), OPS_PER_RECORD))
    ops = rows(
        spark.range(count // OPS_PER_RECORD), "RMQ_SYS_TRANS_OP_HALF_TOPIC", tags=F.lit("d"),
        properties=letters, body=body.cast("binary"),
    )  # fmt: skip
    return halves.unionByName(finals).unionByName(ops)


def job(spark: SparkSession, place: str) -> int:
    """The whole comparison; how many differences."""
    import datetime as dt

    table = spark.read.parquet(place)
    halves, finals = records.halves(table), records.finals(table)
    judged = fates_of_halves(halves, records.ops(table), finals, records.discards(table)).persist()
    sum_check.check_balance(halves, judged)
    now = dt.datetime.fromtimestamp(BASE_S + 100_000_000, dt.UTC)
    found = differences.transaction_differences(judged, now=now, overdue_s=600).count()
    judged.unpersist()
    return found


def ids_of(count: int, *, is_consumed: bool) -> Iterator[str]:
    """Members as compensation has them."""
    return (
        f"{number:032X}@paid" for number in range(count) if not (is_consumed and number % 1000 == 7)
    )


def in_python(count: int) -> int:
    """Two sets of one process."""
    return len(set(ids_of(count, is_consumed=False)) - set(ids_of(count, is_consumed=True)))


def in_redis(server: RedisServer, count: int) -> None:
    """Loading, comparing by buckets, SDIFF over whole sets."""
    sets = RedisSets(server.url)
    with redis.Redis.from_url(server.url, socket_timeout=600) as client:
        pid = int(client.info()["process_id"])

        def load() -> int:
            sets.announce(ids_of(count, is_consumed=False))
            sets.consume(ids_of(count, is_consumed=True))
            return 2 * count

        def whole() -> int:
            for name, is_consumed in (("a", False), ("b", True)):
                pipe = client.pipeline(transaction=False)
                for at, one in enumerate(ids_of(count, is_consumed=is_consumed)):
                    pipe.sadd(name, one)
                    if at % 10_000 == 9_999:
                        pipe.execute()
                pipe.execute()
            return 0

        measure("Redis, load both sets", count, load, lambda: [pid])
        measure(
            "Redis, MULTI by bucket",
            count,
            lambda: sum(len(some.lost) for some in sets.compare()),
            lambda: [pid],
        )
        client.flushall()
        whole()
        measure("Redis, SDIFF whole", count, lambda: len(client.sdiff(["a", "b"])), lambda: [pid])
        client.flushall()
    sets.close()


def in_spark(spark: SparkSession, folder: Path, count: int, wanted: list[str]) -> None:
    """The job, and the difference alone."""
    if "job" in wanted:
        place = str(folder / f"messages-{count}")
        messages(spark, count).write.parquet(place)
        measure("reconciliation of halves", count, lambda: job(spark, place), own)
    if "join" in wanted:
        key = F.concat(F.lpad(F.hex("id"), 32, "0"), F.lit("@paid")).alias("member")
        told = spark.range(count).select(key, F.current_timestamp().alias("announcedAt"))
        told.write.parquet(str(folder / f"announced-{count}"))
        done = spark.range(count).where("id % 1000 <> 7").select(key)
        done.write.parquet(str(folder / f"consumed-{count}"))
        read = spark.read.parquet
        sides = [str(folder / f"{name}-{count}") for name in ("announced", "consumed")]
        measure(
            "Spark anti-join", count,
            lambda: lost_commits(read(sides[0]), read(sides[1])).count(), own,
        )  # fmt: skip


def main() -> None:
    """Run the cells that the command line wants."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", default="1000000,10000000")
    parser.add_argument("--only", default="job,join,redis,python")
    chosen = parser.parse_args()
    counts = [int(count) for count in chosen.counts.split(",")]
    wanted = chosen.only.split(",")
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    print("| what | ids | s | MiB | found |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "python" in wanted:
            for count in counts:
                measure("Python sets", count, lambda count=count: in_python(count), own)
        if "redis" in wanted:
            server = RedisServer(folder / "redis")
            for count in counts:
                in_redis(server, count)
            server.kill()
        if "job" in wanted or "join" in wanted:
            settings = {"spark.driver.memory": "4g", "spark.sql.shuffle.partitions": "8"}
            spark = build_session("local[2]", folder, settings)
            for count in counts:
                in_spark(spark, folder, count, wanted)
            spark.stop()


if __name__ == "__main__":
    main()
