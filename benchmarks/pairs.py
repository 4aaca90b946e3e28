"""What a second copy costs: one broker and two, ours and RocketMQ's, in one run under the same Java
load; and how fast a copy that was away catches up.

    python benchmarks/pairs.py [--only send,transaction,catchup] [--seconds 10] [--warm 5]
                               [--rounds 1] [--threads 1,16,64] [--backlog-mib 1024]
                               [--copy-folder DIR]

Ours are a group of two over a real etcd; RocketMQ's are SYNC_MASTER and SLAVE with
`inSyncReplicas=2`. CPU is that of both brokers together. A rate is also given in parts of the same
system's single broker. A copy that catches up writes as fast as its disk takes it: on the master's
disk it is in the way of the master's syncs, so `--copy-folder` names a folder on another one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable
from pathlib import Path

import msgspec
from peers import BUILD, DISK, ROOT, Java, Ours, Peer, Usage, is_open, wait_until
from side_by_side import Row, measure, middle, table

sys.path.insert(0, str(ROOT))

from escrowmq.aio import Producer
from escrowmq.base.codes import Request
from escrowmq.base.group_report import GroupReport
from interop import wire
from interop.ports import free_port

COPY_S = 60


class Together:
    """What several processes use."""

    def __init__(self, *pids: int) -> None:
        self._each = [Usage(pid) for pid in pids]

    def cpu_s(self) -> float:
        """User and system time of all of them."""
        return sum(one.cpu_s() for one in self._each)

    def memory_mib(self) -> tuple[float, float]:
        """Resident memory of all of them."""
        both = [one.memory_mib() for one in self._each]
        return sum(one[0] for one in both), sum(one[1] for one in both)


class OurGroup(Peer):
    """Two members of a group, with an etcd and a name server."""

    name = "escrowmq"

    def __init__(self, *, copy_folder: str = "", **settings: str) -> None:
        super().__init__(**settings)
        self._folders = {"a": self.folder / "a", "b": Path(copy_folder or self.folder) / "b"}

    def _launch(self) -> subprocess.Popen[str]:
        self.etcd = f"127.0.0.1:{free_port()}"
        peers = f"http://127.0.0.1:{free_port()}"
        client = f"http://{self.etcd}"
        self._spawn(
            ["etcd", "--data-dir", str(self.folder / "etcd"), "--listen-client-urls", client,
             "--advertise-client-urls", client, "--listen-peer-urls", peers,
             "--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}",
             "--logger", "zap", "--log-level", "error"]
        )  # fmt: skip
        port = self.nameserver.split(":")[1]
        self._spawn([sys.executable, "-m", "escrowmq", "nameserver", "--port", port])
        wait_until("etcd listens", lambda: is_open(self.etcd))
        self.others = f"127.0.0.1:{free_port()}"
        first = self.member("a", self.broker)
        wait_until("the first member serves", self._accepts)
        self.copy = self.member("b", self.others)
        wait_until("two members are in sync", lambda: len(self.status().in_sync) == 2, COPY_S)
        return first

    def member(self, name: str, address: str) -> subprocess.Popen[str]:
        """Start a member."""
        return self._spawn(
            [sys.executable, "-m", "escrowmq", "broker", "--data", str(self._folders[name]),
             "--port", address.split(":")[1], "-n", self.nameserver,
             "--authority", f"etcd://{self.etcd}", f"--set=escrowMember={name}",
             "--set=brokerName=b", "--set=slaveTimeout=10000", *DISK,
             *[f"--set={key}={value}" for key, value in self.settings.items()]]
        )  # fmt: skip

    def status(self) -> GroupReport:
        """What the first member says of the group."""
        reply = wire.ask(self.broker, Request.ESCROW_GROUP_STATUS)
        return msgspec.json.decode(reply.body, type=GroupReport)

    def start(self) -> None:
        """Start all of it; both brokers are counted."""
        super().start()
        self.usage = Together(self.process.pid, self.copy.pid)  # type: ignore[assignment]

    def stop(self, *, keep: bool = False) -> None:
        """End all of it, and remove both folders."""
        super().stop(keep=keep)
        if not keep:
            shutil.rmtree(self._folders["b"], ignore_errors=True)


class JavaPair(Java):
    """RocketMQ's master and slave, each message on both before it is answered."""

    def __init__(self) -> None:
        super().__init__(brokerRole="SYNC_MASTER", inSyncReplicas="2", slaveTimeout="10000")

    def start(self) -> None:
        """Start master and slave; both are counted."""
        # It finds its master by the name server, whatever haMasterAddress says.
        self._slave = Java(brokerRole="SLAVE", brokerId="1", registerNameServerPeriod="10000")
        self._slave.nameserver = self.nameserver
        self._follower: subprocess.Popen[str] | None = None
        super().start()
        assert self._follower is not None
        pids = self.process.pid, self._follower.pid
        self.usage = Together(*pids)  # type: ignore[assignment]

    def _accepts(self) -> bool:
        """The first send is accepted once there is a slave."""
        if self._follower is None and is_open(self.broker):
            self._follower = self._slave.launch_broker()
        return super()._accepts()

    def stop(self, *, keep: bool = False) -> None:
        """End both."""
        super().stop(keep=keep)
        self._slave.stop(keep=keep)


def cells(options: argparse.Namespace, wanted: list[str]) -> list[Row]:
    """Each cell of all four, one right after the other."""
    systems: dict[str, Peer] = {
        "ours, one": Ours(), "ours, group of 2": OurGroup(),
        "java, one": Java(), "java, pair": JavaPair(),
    }  # fmt: skip
    rows: list[Row] = []
    try:
        for peer in systems.values():
            peer.start()
            measure(peer, topic="Warm", size=128, threads=64, seconds=10)
        for kind in ("send", "transaction"):
            if kind not in wanted:
                continue
            for threads in map(int, options.threads.split(",")):
                named = {"mode": kind, "topic": kind, "size": 128, "threads": threads,
                         "seconds": options.seconds, "warm": options.warm}  # fmt: skip
                row = compared(f"{kind} 128 B, {threads} threads", systems, named, options.rounds)
                rows.append(row)
                print(json.dumps(row), flush=True)
    finally:
        for peer in systems.values():
            peer.stop()
    return rows


def compared(title: str, systems: dict[str, Peer], named: Row, rounds: int) -> Row:
    """One cell of all systems; medians of some rounds."""
    found: dict[str, list[Row]] = {name: [] for name in systems}
    for _ in range(rounds):
        for name, peer in systems.items():
            found[name].append(measure(peer, **named))
    row: Row = {"cell": title}
    rates = {name: middle(each, "rate") for name, each in found.items()}
    cpus = {name: middle(each, "cpu_us") for name, each in found.items()}
    for name in systems:
        row[name] = f"{rates[name]:.0f}/s, {cpus[name]:.1f} us"
    row["ours: 2 of 1"] = f"{rates['ours, group of 2'] / rates['ours, one']:.2f}"
    row["java: 2 of 1"] = f"{rates['java, pair'] / rates['java, one']:.2f}"
    row["rate, ours of java's"] = f"{rates['ours, group of 2'] / rates['java, pair']:.2f}"
    row["CPU, ours of java's"] = f"{cpus['ours, group of 2'] / cpus['java, pair']:.2f}"
    row["failed"] = sum(each["failed"] for one in found.values() for each in one)
    return row


async def paced(nameserver: str, rate: int, size: int, until: Awaitable[None]) -> float:
    """Send at a steady rate until something has happened; the 99th percentile of the times from
    when each was due, in ms."""
    took: list[float] = []
    body = b"x" * size
    async with Producer(nameserver, group="paced", timeout_ms=30_000) as producer:

        async def one(due: float) -> None:
            await producer.send("Paced", body)
            took.append(loop.time() - due)

        loop = asyncio.get_running_loop()
        begin, count = loop.time(), 0
        under_way: set[asyncio.Task[None]] = set()
        ending = asyncio.ensure_future(until)
        while not ending.done():
            due = begin + count / rate
            await asyncio.sleep(max(0, due - loop.time()))
            task = loop.create_task(one(due))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            count += 1
        await asyncio.gather(ending, *under_way)
    return statistics.quantiles(took, n=100)[98] * 1000


async def whole(group: OurGroup) -> None:
    """Wait until both members are in sync."""
    while len((await asyncio.to_thread(group.status)).in_sync) < 2:
        await asyncio.sleep(0.2)


def catch_up(options: argparse.Namespace) -> Row:
    """A copy comes back while others send, and lacks so much of the log."""
    size, rate = 1024, options.rate
    group = OurGroup(copy_folder=options.copy_folder, mappedFileSizeCommitLog=str(256 << 20))
    try:
        group.start()
        asyncio.run(paced(group.nameserver, rate, size, asyncio.sleep(options.warm)))
        group.copy.kill()
        group.copy.wait()
        wait_until("the copy has left", lambda: len(group.status().in_sync) == 1, COPY_S)
        each = 4096
        count = (options.backlog_mib << 20) // (each + 200)
        group.usage = Usage(group.process.pid)
        measure(group, topic="Backlog", size=each, threads=16, count=count)
        calm_ms = asyncio.run(paced(group.nameserver, rate, size, asyncio.sleep(options.seconds)))
        before = group.status().end
        group.copy = group.member("b", group.others)
        began = time.monotonic()
        busy_ms = asyncio.run(paced(group.nameserver, rate, size, whole(group)))
        took_s = time.monotonic() - began
        grown = group.status().end - before
    finally:
        group.stop()
    backlog = options.backlog_mib << 20
    row = {
        "figure": f"a copy that lacks {options.backlog_mib} MiB, beside {rate} sends/s of 1 KiB",
        "in sync after, s": f"{took_s:.1f}",
        "copied, MiB/s": f"{(backlog + grown) / took_s / (1 << 20):.1f}",
        "written meanwhile, MiB/s": f"{grown / took_s / (1 << 20):.2f}",
        "p99 before, ms": f"{calm_ms:.1f}",
        "p99 meanwhile, ms": f"{busy_ms:.1f}",
    }
    print(json.dumps(row), flush=True)
    return row


def main() -> None:
    """Run what was asked for and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="send,transaction,catchup")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--warm", type=int, default=5, help="seconds before each cell counts")
    parser.add_argument("--threads", default="1,16,64")
    parser.add_argument("--rounds", type=int, default=1, help="of each cell, for the median")
    parser.add_argument("--rate", type=int, default=500, help="sends a second beside a catch-up")
    parser.add_argument("--backlog-mib", type=int, default=1024)
    parser.add_argument("--copy-folder", default="", help="where the copy that catches up writes")
    options = parser.parse_args()
    wanted = options.only.split(",")
    text = ""
    if {"send", "transaction"} & set(wanted):
        text += table(cells(options, wanted)) + "\n\n"
    if "catchup" in wanted:
        text += table([catch_up(options)]) + "\n"
    (BUILD / "pairs.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
