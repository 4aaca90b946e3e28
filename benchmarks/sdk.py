"""Clients of RocketMQ side by side in one run: EscrowMQ's for plain code and for asyncio, the
official one for Python (gRPC, through RocketMQ's proxy), and the Java client.

    python benchmarks/sdk.py [--only send,linger,transaction,drain,import] [--brokers java,escrowmq]
                             [--seconds 5] [--warm 3] [--messages 200000]

Needs Java and Maven. The official client gets an environment of its own under build/. It speaks
gRPC alone, so it is measured at the Java broker only, and a tenth of the messages is drained by it.
CPU is that of the client's process between the marks "go" and "end", a message. With `linger` our
own clients let messages wait for others, 5 ms at most. `unconfirmed` is confirms_commits=False: a
commit is told in the background, which is what Java's client does.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers import BUILD, ROOT, Ours, Peer, Proxied, Usage, load_classes
from side_by_side import table

sys.path.insert(0, str(ROOT / "tests"))

import escrowmq
from interop import jars

CLIENTS = Path(__file__).parent / "clients"
CELLS = ("send", "linger", "transaction", "drain", "import")
IMPORT_RUNS = 9
Row = dict[str, Any]


@dataclass
class Client:
    """How one client is run."""

    name: str
    command: list[str]
    words: tuple[str, ...] = ()
    drains: float = 1.0
    """The part of the backlog that it is given."""

    statement: str = ""
    """What a program imports."""

    def run(self, address: str, **arguments: object) -> Row:
        """One cell."""
        words = [f"nameserver={address}", *self.words]
        words += [f"{key}={value}" for key, value in arguments.items()]
        child = subprocess.Popen(
            [*self.command, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "HOME": str(BUILD)},
        )  # fmt: skip
        killer = threading.Timer(600, child.kill)
        killer.start()
        usage, begin, end = Usage(child.pid), 0.0, 0.0
        row: Row = {}
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("go"):
                begin = usage.cpu_s()
            elif line.startswith("end"):
                end = usage.cpu_s()
            elif line.startswith("{"):
                row = json.loads(line)
        child.wait()
        killer.cancel()
        if not row:
            raise RuntimeError(f"{self.name} said nothing; run {' '.join([*self.command, *words])}")
        row["cpu_us"] = (end - begin) / max(1, row["messages"]) * 1e6
        return row


def official_python() -> str:
    """The interpreter of an environment that has the official client."""
    wanted = CLIENTS / "official.txt"
    folder = BUILD / f"official-{jars.digest(wanted)}"
    python = folder / "bin" / "python"
    if not python.exists():
        made = folder.with_suffix(".new")
        shutil.rmtree(made, ignore_errors=True)
        jars.run([sys.executable, "-m", "venv", str(made)])
        jars.run([str(made / "bin" / "python"), "-m", "pip", "install", "-q", "-r", str(wanted)])
        made.rename(folder)
    return str(python)


def clients(peer: Peer) -> list[Client]:
    """Those that can be measured at a broker."""
    python, library = sys.executable, jars.jars(jars.BROKER_RELEASE)
    ours = [python, str(CLIENTS / "ours.py")]
    java = ["java", "-Xms512m", "-Xmx512m", "-XX:+UseG1GC", "-cp", f"{load_classes()}:{library}/*"]
    found = [
        Client("escrowmq", ours, statement="import escrowmq; escrowmq.Producer; escrowmq.Consumer"),
        Client("escrowmq.aio", ours, ("face=aio",), statement="import escrowmq.aio"),
        Client("escrowmq, unconfirmed", ours, ("confirm=no",)),
        Client("escrowmq.aio, unconfirmed", ours, ("face=aio", "confirm=no")),
        Client("java", [*java, "Load"]),
    ]
    if isinstance(peer, Proxied):
        official = [official_python(), str(CLIENTS / "official.py")]
        statement = "import rocketmq.v5.producer, rocketmq.v5.consumer"
        found.append(Client("official", official, drains=0.1, statement=statement))
    return found


def address_of(client: Client, peer: Peer) -> str:
    """Where a client begins."""
    if client.name == "official":
        assert isinstance(peer, Proxied)
        return peer.proxy
    return peer.nameserver


def prepare(peer: Peer, options: argparse.Namespace, wanted: list[str]) -> None:
    """Topics, and a backlog to drain."""
    with escrowmq.Admin(peer.nameserver) as admin:
        kinds = {"Send": "NORMAL", "Tx": "TRANSACTION", "Backlog": "NORMAL"}
        for topic, kind in kinds.items():
            admin.topics.create(topic, queues=8, attributes={"message.type": kind})
    if "drain" in wanted:
        with escrowmq.Producer(peer.nameserver, group="fill") as producer:
            bodies = [escrowmq.Message("Backlog", b"x" * 128) for _ in range(1_000)]
            for _ in range(options.messages // len(bodies)):
                producer.send_many(bodies)


def measure(peer: Peer, options: argparse.Namespace, wanted: list[str]) -> list[Row]:
    """All cells at one broker, the clients of a cell one right after the other."""
    rows: list[Row] = []
    timed = {"size": 128, "seconds": options.seconds, "warm": options.warm}
    cells: list[tuple[str, dict[str, object]]] = []
    for mode, topic in (("send", "Send"), ("transaction", "Tx")):
        if mode in wanted:
            for callers in (1, 16, 64):
                words = {"mode": mode, "topic": topic, "threads": callers, **timed}
                cells.append((f"{mode}, {callers} callers", words))
    for callers in (64, 512) if "linger" in wanted else ():
        words = {"mode": "send", "topic": "Send", "threads": callers, "linger": 5, **timed}
        cells.append((f"send, {callers} callers, lingering", words))
    if "drain" in wanted:
        words = {"mode": "drain", "topic": "Backlog", "count": options.messages}
        cells.append(("consumption", words))
    for title, words in cells:
        for client in clients(peer):
            given = dict(words)
            if "confirm=no" in client.words and given["mode"] != "transaction":
                continue
            if "linger" in given and not client.name.startswith("escrowmq"):
                continue
            if "count" in given:
                given["count"] = int(options.messages * client.drains)
            found = client.run(address_of(client, peer), **given)
            rows.append(row_of(peer, title, client, found))
            print(json.dumps(rows[-1]), flush=True)
    return rows


def row_of(peer: Peer, title: str, client: Client, found: Row) -> Row:
    """One line of the table."""
    return {
        "broker": peer.name,
        "cell": title,
        "client": client.name,
        "a second": f"{found['rate']:.0f}",
        "cpu us": f"{found['cpu_us']:.1f}",
        "p50 ms": f"{found.get('p50', 0):.2f}",
        "p99 ms": f"{found.get('p99', 0):.2f}",
        "failed": found["failed"],
    }


def ratios(rows: list[Row]) -> list[Row]:
    """Ours beside the others: how many times as fast, and which part of their CPU."""
    by_cell = {(row["broker"], row["cell"], row["client"]): row for row in rows}
    found: list[Row] = []
    for (broker, cell, client), row in by_cell.items():
        if not client.startswith("escrowmq"):
            continue
        line: Row = {"broker": broker, "cell": cell, "client": client}
        for other in ("official", "java"):
            theirs = by_cell.get((broker, cell, other))
            for name, key in (("rate", "a second"), ("cpu", "cpu us")):
                text = ""
                if theirs is not None and float(theirs[key]):
                    text = f"{float(row[key]) / float(theirs[key]):.2f}"
                line[f"{name} / {other}"] = text
        found.append(line)
    return found


def imports(peer: Peer) -> list[Row]:
    """CPU that an import takes, the best of several, above that of a bare interpreter."""
    rows: list[Row] = []
    for client in clients(peer):
        if client.statement:
            python = client.command[0]
            took_ms = _import_ms(python, client.statement) - _import_ms(python, "pass")
            rows.append({"client": client.name, "import, CPU ms": f"{took_ms:.0f}"})
            print(json.dumps(rows[-1]), flush=True)
    return rows


def _import_ms(python: str, statement: str) -> float:
    best = float("inf")
    # Compiled modules, as an installed package has them.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPYCACHEPREFIX": str(BUILD / "pycache"), "HOME": str(BUILD)}
    for _ in range(IMPORT_RUNS):
        child = os.posix_spawn(python, [python, "-c", statement], environment)
        _, code, usage = os.wait4(child, 0)
        assert code == 0, f"{python} -c {statement!r} ended with {code}"
        best = min(best, usage.ru_utime + usage.ru_stime)
    return best * 1000


def main() -> None:
    """Run what was asked for and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(CELLS))
    parser.add_argument("--brokers", default="java,escrowmq")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--warm", type=int, default=3, help="seconds before each cell counts")
    parser.add_argument("--messages", type=int, default=200_000, help="to be drained")
    options = parser.parse_args()
    wanted = options.only.split(",")
    kinds: dict[str, type[Peer]] = {"java": Proxied, "escrowmq": Ours}
    rows: list[Row] = []
    imported: list[Row] = []
    for name in options.brokers.split(","):
        peer = kinds[name]()
        try:
            peer.start()
            prepare(peer, options, wanted)
            rows += measure(peer, options, wanted)
            if "import" in wanted and not imported:
                imported = imports(peer)
        finally:
            peer.stop()
    machine = f"{platform.machine()}, {platform.python_version()}, {platform.release()}"
    parts = [f"Machine: {machine}", table(rows), table(ratios(rows)), table(imported)]
    text = "\n\n".join(part for part in parts if part) + "\n"
    (BUILD / "sdk.md").write_text(text)
    print(text)
    print(f"written to {Path('build/benchmarks/sdk.md')}")


if __name__ == "__main__":
    main()
