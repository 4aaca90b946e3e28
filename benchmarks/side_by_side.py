"""Ours and the Java broker in one run, under the same Java load generator, on this machine.

    python benchmarks/side_by_side.py [--only send,batch,sync,drain,start,memory,crash,transaction]
                                      [--seconds 10] [--warm 5] [--messages 1000000]
                                      [--threads 1,16,64] [--rounds 1]

The two brokers are loaded in turn, each cell of one right after the same cell of the other. With
several rounds a figure is their median: on a machine that others use, a cell may be twice as fast
as the same one before.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peers import BUILD, Java, Load, Ours, Peer, TransactionProducer

CELLS = ("start", "send", "batch", "transaction", "drain", "memory", "crash", "sync")
Row = dict[str, Any]
_FIRST_WARM_S = 20


def measure(peer: Peer, **arguments: object) -> Row:
    """One cell of one broker."""
    load = Load(peer, **arguments)
    row: Row = json.loads(load.answer)
    row["cpu_us"] = load.cpu_s / max(1, row["messages"]) * 1e6
    return row


def theirs(peer: Peer, threads: int, options: argparse.Namespace) -> Row:
    """RocketMQ's own benchmark of transactions, which sends to a topic of 1024 queues."""
    found = TransactionProducer(
        peer, threads=threads, size=128, warm=options.warm + 4, seconds=options.seconds
    )
    return {"rate": found.rate, "cpu_us": found.cpu_us, "failed": found.unexpected}


def middle(found: list[Row], figure: str) -> float:
    """The median of a figure over some rounds; 0 where it is not measured."""
    return statistics.median(float(row.get(figure, 0)) for row in found)


def compare(
    title: str,
    pair: list[Peer],
    rows: list[Row],
    measured: Callable[[Peer], Row],
    rounds: int = 1,
) -> None:
    """The same cell of both, in turn, and the ratio."""
    found: dict[str, list[Row]] = {peer.name: [] for peer in pair}
    for _ in range(rounds):
        for peer in pair:
            found[peer.name].append(measured(peer))
    ours, java = (
        {figure: middle(found[name], figure) for figure in ("rate", "cpu_us", "p99")}
        for name in ("escrowmq", "java")
    )
    row = {
        "cell": title,
        "ours/s": f"{ours['rate']:.0f}",
        "java/s": f"{java['rate']:.0f}",
        "rate": f"{ours['rate'] / java['rate']:.2f}",
        "ours cpu us": f"{ours['cpu_us']:.1f}",
        "java cpu us": f"{java['cpu_us']:.1f}",
        "cpu": f"{ours['cpu_us'] / java['cpu_us']:.2f}",
        "ours p99 ms": f"{ours['p99']:.2f}",
        "java p99 ms": f"{java['p99']:.2f}",
        "failed": sum(row["failed"] for each in found.values() for row in each),
    }
    rows.append(row)
    print(json.dumps(row), flush=True)


def table(rows: list[Row]) -> str:
    """Markdown."""
    if not rows:
        return ""
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(str(row.get(name, "")) for name in names) + " |" for row in rows]
    return "\n".join(lines)


def run_loaded(options: argparse.Namespace, wanted: list[str]) -> tuple[list[Row], list[Row]]:
    """All cells of one pair of ASYNC_FLUSH brokers."""
    rows: list[Row] = []
    others: list[Row] = []
    pair: list[Peer] = [Ours(), Java()]
    try:
        for peer in pair:
            peer.start()
        if "start" in wanted:
            others.append(_row("start to first accepted send, s", pair, lambda p: p.start_s))
            others.append(_row("the same, CPU s", pair, lambda p: p.start_cpu_s))
        if "memory" in wanted:
            others.append(_row("idle, anonymous MiB", pair, lambda p: p.usage.memory_mib()[1]))
        if {"send", "batch", "transaction"} & set(wanted):
            for peer in pair:  # lets the Java broker compile what every cell needs
                measure(peer, topic="Warm", size=128, threads=64, seconds=_FIRST_WARM_S)
        run_sends(options, wanted, pair, rows)
        run_backlog(options, wanted, pair, rows)
        if "memory" in wanted:
            others.append(_row("loaded, anonymous MiB", pair, lambda p: p.usage.memory_mib()[1]))
        if "crash" in wanted:
            for peer in pair:
                peer.kill()
                peer.start()
            title = "kill -9, start to first accepted send, s"
            others.append(_row(title, pair, lambda p: p.start_s))
    finally:
        for peer in pair:
            peer.stop()
    return rows, others


def run_sends(
    options: argparse.Namespace, wanted: list[str], pair: list[Peer], rows: list[Row]
) -> None:
    """Sends, batches and transactions."""

    def cell(title: str, **named: object) -> None:
        named |= {"seconds": options.seconds, "warm": options.warm}
        compare(title, pair, rows, lambda peer: measure(peer, **named), options.rounds)

    all_threads = [int(threads) for threads in options.threads.split(",")]
    if "send" in wanted:
        for size in (128, 1024):
            for threads in all_threads:
                title = f"send {size} B, {threads} threads"
                cell(title, topic=f"Send{size}", size=size, threads=threads)
    if "batch" in wanted:
        title = "batches of 16, 128 B, 16 threads"
        cell(title, topic="Batch", size=128, threads=16, batch=16)
    if "transaction" in wanted:
        few = [threads for threads in all_threads if threads != 16]
        for threads in few:
            title = f"transactions 128 B, {threads} threads"
            cell(title, mode="transaction", topic="Tx", size=128, threads=threads)
        for threads in few:
            title, one = f"TransactionProducer 128 B, {threads} threads", threads
            compare(
                title, pair, rows, lambda peer, one=one: theirs(peer, one, options), options.rounds
            )


def run_backlog(
    options: argparse.Namespace, wanted: list[str], pair: list[Peer], rows: list[Row]
) -> None:
    """A backlog, and its drain."""
    if {"drain", "crash"} & set(wanted):
        for peer in pair:
            measure(peer, topic="Backlog", size=128, threads=16, count=options.messages)
    if "drain" in wanted:
        named = {"mode": "drain", "topic": "Backlog", "count": options.messages}
        title = f"drain of {options.messages}"
        compare(title, pair, rows, lambda peer: measure(peer, **named))


def _row(title: str, pair: list[Peer], figure: Any) -> Row:
    ours, java = (figure(peer) for peer in pair)
    row = {
        "figure": title,
        "ours": f"{ours:.2f}",
        "java": f"{java:.2f}",
        "ratio": f"{ours / java:.2f}",
    }
    print(json.dumps(row), flush=True)
    return row


def run_sync(options: argparse.Namespace, rows: list[Row]) -> None:
    """SYNC_FLUSH brokers are brokers of their own."""
    pair: list[Peer] = [Ours(flushDiskType="SYNC_FLUSH"), Java(flushDiskType="SYNC_FLUSH")]
    try:
        for peer in pair:
            peer.start()
        named = {"seconds": options.seconds, "warm": options.warm, "size": 128, "threads": 64}
        compare(
            "send 128 B, 64 threads, SYNC_FLUSH", pair, rows,
            lambda peer: measure(peer, topic="Sync", **named), options.rounds,
        )  # fmt: skip
    finally:
        for peer in pair:
            peer.stop()


def main() -> None:
    """Run what was asked for and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(CELLS))
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--warm", type=int, default=5, help="seconds before each cell counts")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--threads", default="1,16,64")
    parser.add_argument("--rounds", type=int, default=1, help="of each cell, for the median")
    options = parser.parse_args()
    wanted = options.only.split(",")
    rows: list[Row] = []
    others: list[Row] = []
    if set(wanted) - {"sync"}:
        rows, others = run_loaded(options, wanted)
    if "sync" in wanted:
        run_sync(options, rows)
    machine = f"{platform.machine()}, {platform.python_version()}, {platform.release()}"
    text = f"Machine: {machine}\n\n{table(rows)}\n\n{table(others)}\n"
    (BUILD / "side_by_side.md").write_text(text)
    print(text)
    print(f"written to {Path('build/benchmarks/side_by_side.md')}")


if __name__ == "__main__":
    main()
