"""Random kills of a query that copies one topic to another exactly once, and the count after.

    python -m tests.spark.faults [--kills 20] [--seed 1] [--rows 4000]

It prints each kill, and ends with 0 when every row is visible exactly once.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from escrowmq.client.core.subscription import parse_subscription
from escrowmq.codec.record import decode_records
from escrowmq.pipeline.brokers.cluster import Cluster
from escrowmq.pipeline.brokers.ranges import ranges_between
from escrowmq.pipeline.source.options import parse_source_options
from escrowmq.pipeline.source.pulling import Puller
from tests.interop import servers
from tests.interop.drivers import unique
from tests.interop.process import Process, ProcessError
from tests.interop.servers import Server

from . import victims
from .topics import send_numbers

ROOT = Path(__file__).parents[2]
START_S = 120.0
END_S = 300.0


def bodies_of(nameserver: str, topic: str) -> list[bytes]:
    """Everything that is visible in a topic."""
    options = parse_source_options({"nameServer": nameserver, "subscribe": topic}, is_stream=False)
    cluster = Cluster(options.access, tries=3, try_again_ms=100)
    queues = cluster.queues(topic)
    ranges = ranges_between(cluster.first_offsets(queues), cluster.end_offsets(queues))
    cluster.close()
    puller = Puller(options.access, options.pulling)
    wanted = parse_subscription(topic, version=0, wire_topic=topic)
    found = [
        message.body
        for each in ranges
        for data in puller.pull(each, wanted)
        for message in decode_records(data)
        if message.queue_offset < each.high
    ]
    puller.close()
    return found


class Run:
    """A query that is started again and again until it is done."""

    def __init__(
        self,
        server: Server,
        folder: Path,
        *,
        master: str,
        per_batch: int,
        settings: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.source = servers.new_topic(server, unique("faults-source"), queues=4)
        self.sink = servers.new_topic(server, unique("faults-sink"), queues=3)
        self.server = server
        self.kills: collections.Counter[str] = collections.Counter()
        self.starts_count = 0
        self._task: dict[str, Any] = {
            "folder": str(folder),
            "master": master,
            "settings": settings or {},
            "source": {
                "nameServer": server.nameserver,
                "subscribe": self.source,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(per_batch),
            },
            "sink": {
                "nameServer": server.nameserver,
                "topic": self.sink,
                "transactional": "true",
                "producerGroup": "faults",
            },
        }

    def start(self) -> Process:
        """Start the query; it stands when this returns."""
        self.starts_count += 1
        command = [sys.executable, "-m", "tests.spark.queries", json.dumps(self._task)]
        environment = {"PYTHONPATH": str(ROOT)}
        name = f"query{self.starts_count}"
        query = Process(command, folder=self.folder, name=name, environment=environment)
        query.wait_line("STARTED", within_s=START_S)
        return query

    def torment(self, query: Process, chance: random.Random, kinds: tuple[str, ...]) -> str:
        """Kill one of its processes at a random moment; which kind, or nothing."""
        kind = chance.choice(kinds)
        threading.Event().wait(chance.uniform(0.0, 5.0))
        # Before it has written down its first batch, it may leave a checkpoint that Spark refuses
        # (docs/spark.md).
        if kind == "driver" and not (self.folder / "checkpoint" / "offsets" / "0").exists():
            return ""
        found = victims.find(query.pid, kind)
        if query.exit_code is not None or not found or not victims.kill(chance.choice(found)):
            return ""
        self.kills[kind] += 1
        return kind

    def drive(self, *, kills: int, chance: random.Random, kinds: tuple[str, ...]) -> None:
        """Kill so many times, then let it come to its end."""
        query = self.start()
        while self.kills.total() < kills:
            kind = self.torment(query, chance, kinds)
            if kind:
                print(f"kill {self.kills.total()}: {kind}", flush=True)
            if kind == "driver" or query.exit_code is not None:
                query.kill()
                if self._is_done(query):
                    break
                query = self.start()
        while not self._is_done(query):
            query.kill()
            assert self.starts_count < 3 * kills + 10, query.last_errors()
            query = self.start()
        query.kill()

    def _is_done(self, query: Process) -> bool:
        try:
            query.wait_line("DONE", within_s=END_S)
        except ProcessError:
            return False
        return True


def differences(run: Run) -> list[str]:
    """What is not as it must be: empty when every row is visible once."""
    source = collections.Counter(bodies_of(run.server.nameserver, run.source))
    sink = collections.Counter(bodies_of(run.server.nameserver, run.sink))
    lost, doubled = source - sink, sink - source
    found = []
    if lost:
        found.append(f"{lost.total()} rows are lost, as {sorted(lost)[:5]}")
    if doubled:
        found.append(f"{doubled.total()} rows are there twice, as {sorted(doubled)[:5]}")
    return found


def main() -> int:
    """Run it with what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--rows", type=int, default=4_000)
    parser.add_argument("--per-batch", type=int, default=50)
    parser.add_argument("--master", default="local-cluster[2,1,1024]")
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    kinds = victims.KINDS if chosen.master.startswith("local-cluster") else victims.KINDS[:2]
    with tempfile.TemporaryDirectory() as folder:
        server = Server("escrow", Path(folder) / "server").start()
        try:
            run = Run(server, Path(folder), master=chosen.master, per_batch=chosen.per_batch)
            send_numbers(server, run.source, range(chosen.rows))
            run.drive(kills=chosen.kills, chance=random.Random(chosen.seed), kinds=kinds)
            wrong = differences(run)
        finally:
            server.kill()
    print(f"{run.starts_count} starts, kills: {dict(run.kills)}", flush=True)
    print("; ".join(wrong) or f"all {chosen.rows} rows are visible exactly once", flush=True)
    return 1 if wrong or run.kills.total() < chosen.kills else 0


if __name__ == "__main__":
    sys.exit(main())
