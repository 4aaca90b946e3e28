"""How fast Spark reads a topic, beside the same rows in Parquet.

    python benchmarks/spark_source.py [--rows 1000000] [--sizes 128,1024] [--java] [--rounds 3]
    build/spark-4.1/bin/python benchmarks/spark_source.py --kafka ...

Each cell reads all rows into Spark's `noop` sink on local[2], so that nothing but reading is
measured. CPU is that of Spark (JVM and Python workers) and that of the broker, a row, in the best
of the rounds. `few columns` are topic, queueId, queueOffset, msgId, tags, storeTimestamp and body;
`all columns` are the twenty of the source, with the properties as a map. `large pulls` is a broker
that gives 1024 messages and 4 MiB a pull, instead of RocketMQ's default of 32 and 256 KiB. With
--kafka, the same rows are read from a Kafka broker too, through Spark's own connector: body as
value, unique key as key, tags, keys and the property as headers, which one of its cells shows. The
cells of Kafka and those of ours are read in turn, so that their ratio is one of the same minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import pyspark
from kafka_peer import Kafka, connector_settings
from tests.interop import servers
from tests.interop.servers import Server
from tests.spark.sessions import build_session
from tests.spark.victims import descendants

import escrowmq
import escrowmq.aio

TICKS = os.sysconf("SC_CLK_TCK")
FEW = (
    "topic string, queueId int, queueOffset bigint, msgId string, tags string, "
    "storeTimestamp timestamp, body binary"
)
LARGE = {
    "maxTransferCountOnMessageInMemory": 1_024,
    "maxTransferBytesOnMessageInMemory": 4 << 20,
    "maxTransferCountOnMessageInDisk": 1_024,
    "maxTransferBytesOnMessageInDisk": 4 << 20,
}
QUEUES = 4
AT_ONCE = 256
IN_FLIGHT = 160 * AT_ONCE
"""Messages in flight: whole batches, else some would be sent twice."""


def cpu_s(pid: int) -> float:
    """What a process and all below it have computed, with what has ended."""
    total = 0.0
    for each in [pid, *descendants(pid)]:
        try:
            words = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, words[11:15])) / TICKS
    return total


async def fill(server: Server, topic: str, *, rows: int, size: int) -> None:
    """Send rows with random bodies, in batches."""
    async with escrowmq.aio.Producer(server.nameserver, group="bench", timeout_ms=60_000) as sender:
        for first in range(0, rows, IN_FLIGHT):
            async with asyncio.TaskGroup() as group:
                for at in range(first, min(first + IN_FLIGHT, rows), AT_ONCE):
                    count = min(AT_ONCE, rows - at)
                    messages = [
                        escrowmq.Message(
                            topic, os.urandom(size), tag="tag", keys=[f"k{at + n}"],
                            properties={"number": str(at + n)},
                        )
                        for n in range(count)
                    ]  # fmt: skip
                    group.create_task(sender.send_many(messages))


Cell = tuple[str, Callable[[], Any], int]
"""What it is called, what makes the frame, and the process of the broker; 0 for none."""


class Bench:
    """Cells of one session."""

    def __init__(self, folder: Path, *, rows: int, rounds: int, settings: dict[str, str]) -> None:
        self.folder = folder
        self.rows = rows
        self.rounds = rounds
        self.spark = build_session("local[2]", folder, {"spark.driver.memory": "2g"} | settings)
        print("| what | body | rows/s | Spark cpu us/row | broker cpu us/row |")
        print("|---|---|---|---|---|", flush=True)

    def source(self, server: Server, topic: str, schema: str = "") -> Any:
        """The topic as a frame."""
        reader = self.spark.read.format("escrowmq")
        if schema:
            reader = reader.schema(schema)
        reader = reader.option("nameServer", server.nameserver).option("pullTimeoutMs", "120s")
        return reader.option("subscribe", topic).load()

    def in_turn(self, size: int, cells: list[Cell]) -> None:
        """Read them one after the other, some times; the best of each is told. What else the
        machine does, and how warm the JVM is, falls on all of them alike."""
        best: dict[str, tuple[float, float, float]] = {}
        for _ in range(self.rounds):
            for name, frame, broker_pid in cells:
                best[name] = max(best.get(name, (0.0, 0.0, 0.0)), self._read(frame, broker_pid))
        for name, (rate, spark, broker) in best.items():
            print(f"| {name} | {size} B | {rate:,.0f} | {spark:.2f} | {broker:.2f} |", flush=True)

    def _read(self, frame: Callable[[], Any], broker_pid: int) -> tuple[float, float, float]:
        """Rows a second, and CPU a row of Spark and of the broker."""
        spark_before, broker_before = cpu_s(os.getpid()), cpu_s(broker_pid) if broker_pid else 0
        started = time.monotonic()
        frame().write.format("noop").mode("overwrite").save()
        rate = self.rows / (time.monotonic() - started)
        broker = (cpu_s(broker_pid) if broker_pid else 0) - broker_before
        spark = cpu_s(os.getpid()) - spark_before - broker
        return rate, spark / self.rows * 1e6, broker / self.rows * 1e6

    def server_cells(self, server: Server, name: str, topic: str) -> list[Cell]:
        """The cells of one broker."""
        pid = server._parts[0].process.pid  # noqa: SLF001 - it tells no other way
        return [
            (f"{name}, few columns", lambda: self.source(server, topic, FEW), pid),
            (f"{name}, all columns", lambda: self.source(server, topic), pid),
        ]

    def beside_kafka(self, server: Server, topic: str, size: int, cells: list[Cell]) -> None:
        """Those cells, and the same rows in Kafka."""
        kafka = Kafka(self.folder / f"kafka-{size}", queues=QUEUES)
        try:
            kafka.fill(self.source(server, topic), topic)
            pid = kafka.process.pid
            for name, has_headers in (("without headers", False), ("with headers", True)):

                def read(has_headers: bool = has_headers) -> Any:
                    return kafka.source(self.spark, topic, has_headers=has_headers)

                count = read().count()
                assert count == self.rows, f"Kafka has {count} rows, {self.rows} were sent"
                cells.append((f"Kafka, {name}", read, pid))
            self.in_turn(size, cells)
        finally:
            kafka.kill()

    def parquet_cells(self, server: Server, topic: str, size: int) -> None:
        """The same rows in files."""
        for name, schema in (("few", FEW), ("all", "")):
            path = str(self.folder / f"{name}-{size}")
            self.source(server, topic, schema).write.parquet(path)
            read = self.spark.read.parquet
            cell = (f"Parquet, {name} columns", lambda path=path, read=read: read(path), 0)
            self.in_turn(size, [cell])


def main() -> None:
    """Run the cells that the command line wants."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--sizes", default="128,1024")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--java", action="store_true", help="RocketMQ's own broker too")
    parser.add_argument("--kafka", action="store_true", help="Kafka too; needs PySpark 4.1")
    chosen = parser.parse_args()
    settings = connector_settings() if chosen.kafka else {}
    sizes = [int(size) for size in chosen.sizes.split(",")]
    releases = f"Python {platform.python_version()}, PySpark {pyspark.__version__}"
    print(f"{platform.machine()}, {os.cpu_count()} cores, {releases}")
    print(f"{chosen.rows:,} rows in {QUEUES} queues, local[2]\n")
    kinds = [("escrow", "EscrowMQ, large pulls", LARGE), ("escrow", "EscrowMQ", {})]
    kinds += [("java", "RocketMQ 5.3.3", {})] if chosen.java else []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), rows=chosen.rows, rounds=chosen.rounds, settings=settings)
        for size in sizes:
            for kind, name, limits in kinds:
                server = Server(kind, Path(folder) / f"{name}-{size}", dict(limits)).start()
                try:
                    topic = servers.new_topic(server, f"bench-{size}", queues=QUEUES)
                    asyncio.run(fill(server, topic, rows=chosen.rows, size=size))
                    cells = bench.server_cells(server, name, topic)
                    if limits and chosen.kafka:
                        bench.beside_kafka(server, topic, size, cells)
                    else:
                        bench.in_turn(size, cells)
                    if limits:
                        bench.parquet_cells(server, topic, size)
                finally:
                    server.kill()
        bench.spark.stop()


if __name__ == "__main__":
    main()
