"""What pending transactions cost: a million of them, their checks, and their ends under overload.

python benchmarks/transactions.py [--pending 1000000] [--only bytes,pending,checks,overload]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pipe
from peers import BUILD, Java, Ours, Peer
from pipe import Half, Pipe

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.codec.record import decode_record

ROWS: list[dict[str, Any]] = []


def note(**row: Any) -> None:
    """One line of the table."""
    ROWS.append(row)
    print(json.dumps(row), flush=True)


async def log_end(link: Pipe) -> int:
    """Bytes of log, as either broker tells it."""
    reply = await link.call(Request.GET_BROKER_RUNTIME_INFO, {})
    return int(json.loads(reply.body)["table"]["commitLogMaxOffset"])


# -- bytes of a transaction that is checked 15 times ---------------------------------------------

_CHECKS = 15


async def checked_bytes(peer: Peer) -> float:
    """Bytes of log and side files that one half costs until its last check."""
    link = await pipe.connect(peer.broker)
    asked: list[Command] = []
    link.on_request = asked.append
    await link.call(*pipe.heartbeat())
    await link.call(*pipe.half("Bytes", 0))  # makes the topics
    await asyncio.sleep(0.5)
    before = await log_end(link)
    reply = await link.call(*pipe.half("Bytes", 1))
    key = Half(reply).unique_key

    def checks() -> int:
        return sum(request.ext is not None and request.ext["msgId"] == key for request in asked)

    deadline = time.monotonic() + 240
    while checks() < _CHECKS and time.monotonic() < deadline:
        await link.call(*pipe.heartbeat())
        await asyncio.sleep(0.2)
    after = await log_end(link)
    assert checks() >= _CHECKS, f"{checks()} checks only"
    side = sum(1 for _ in range(_CHECKS)) if peer.name == "escrowmq" else 0
    # The first half, which made the topics, is checked as well: half of what came is the other's.
    return (after - before + side) / (1 if peer.name == "escrowmq" else 2)


def run_bytes() -> None:
    """The same of both brokers."""
    settings = {"transactionTimeOut": "1000", "transactionCheckMax": "100"}
    settings["transactionCheckInterval"] = "3000"
    found = {}
    for peer in (Ours(**settings), Java(**settings)):
        try:
            peer.start()
            found[peer.name] = asyncio.run(checked_bytes(peer))
        finally:
            peer.stop()
    note(
        what=f"bytes of a 128 B transaction over {_CHECKS} checks",
        ours=round(found["escrowmq"]),
        java=round(found["java"]),
        ratio=round(found["escrowmq"] / found["java"], 3),
    )


# -- a million pending ---------------------------------------------------------------------------


async def prepare(peer: Peer, count: int, *, wait_s: Callable[[int], int]) -> float:
    """So many halves; `wait_s` gives each the time for which it does not want to be asked."""
    link = await pipe.connect(peer.broker)
    begin = time.monotonic()
    requests = (
        pipe.half("Tx", n, more=f"CHECK_IMMUNITY_TIME_IN_SECONDS\x01{wait_s(n)}\x02")
        for n in range(count)
    )
    answers = await link.flood(requests, window=512)
    assert len(answers) == count, len(answers)
    failed = [answer for answer in answers if answer.code]
    assert not failed, failed[0]
    return time.monotonic() - begin


def run_pending(count: int) -> None:
    """Memory, and a restart with them."""
    peer = Ours()
    try:
        peer.start()
        idle = peer.usage.memory_mib()[1]
        taken_s = asyncio.run(prepare(peer, count, wait_s=lambda _: 86_400))
        loaded = peer.usage.memory_mib()[1]
        note(what=f"{count} pending halves, anonymous MiB", ours=round(loaded, 1))
        note(what="of which before them", ours=round(idle, 1))
        note(what="halves a second while they came", ours=round(count / taken_s))
        peer.kill()
        peer.start()
        note(what="kill -9, start to first accepted send, s", ours=round(peer.start_s, 2))
        note(what="anonymous MiB after it", ours=round(peer.usage.memory_mib()[1], 1))
    finally:
        peer.stop()


# -- checks in time ------------------------------------------------------------------------------


async def check_errors(peer: Peer, count: int, due_count: int) -> list[float]:
    """How late checks come, in ms, for halves that become due one after another while many more
    are pending."""
    span_s = 20
    filled_s = await prepare(peer, count - due_count, wait_s=lambda _: 86_400)
    print(f"filled in {filled_s:.0f} s", flush=True)
    link = await pipe.connect(peer.broker)
    await link.call(*pipe.heartbeat())
    late: list[float] = []

    def asked(request: Command) -> None:
        now_ms = time.time() * 1000
        record = decode_record(request.body)
        wait_ms = int(record.properties["CHECK_IMMUNITY_TIME_IN_SECONDS"]) * 1000
        late.append(now_ms - record.stored_ms - wait_ms)
        ext = request.ext or {}
        found = Half.__new__(Half)
        found.queue_offset = int(ext["tranStateTableOffset"])
        found.log_offset = int(ext["commitLogOffset"])
        found.unique_key = ext["msgId"]
        link.ask(*pipe.end(found, 8, is_from_check=True), lambda _: None)

    link.on_request = asked
    requests = (
        pipe.half("Due", n, more=f"CHECK_IMMUNITY_TIME_IN_SECONDS\x01{5 + n % span_s}\x02")
        for n in range(10**9, 10**9 + due_count)
    )
    sender = await pipe.connect(peer.broker)
    await sender.flood(requests, window=64)
    deadline = time.monotonic() + span_s + 60
    while len(late) < due_count and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    assert len(late) == due_count, f"{len(late)} of {due_count} checks came"
    return sorted(late)


def run_checks(count: int) -> None:
    """The error of the check-back with a million pending."""
    peer = Ours()
    try:
        peer.start()
        late = asyncio.run(check_errors(peer, count, due_count=20_000))
    finally:
        peer.stop()
    note(what=f"check after its due time with {count} pending, ms, median", ours=_at(late, 50))
    note(what="the same, p99", ours=_at(late, 99))
    note(what="the same, highest", ours=_at(late, 100))
    note(what="the same, lowest", ours=_at(late, 0))


def _at(values: list[float], percent: int) -> float:
    return round(values[min(len(values) - 1, len(values) * percent // 100)], 1)


# -- ends under overload -------------------------------------------------------------------------


async def end_times(link: Pipe, halves: list[Half], *, pause_s: float) -> list[float]:
    """How long each END takes, one at a time, in ms."""
    taken = []
    for found in halves:
        begin = time.perf_counter()
        reply = await link.call(*pipe.end(found, 8))
        taken.append((time.perf_counter() - begin) * 1000)
        assert reply.code == 0, reply.remark
        await asyncio.sleep(pause_s)
    return sorted(taken)


class Flood:
    """Halves at a pace that does not wait for answers, from a process of its own."""

    def __init__(self, address: str, rate: float, seconds: float) -> None:
        here = Path(__file__).parent / "flood.py"
        self._child = subprocess.Popen(
            [sys.executable, str(here), address, str(rate), str(seconds)],
            stdout=subprocess.PIPE,
            text=True,
        )

    def result(self) -> dict[str, int]:
        """What became of them, once it is over."""
        text, _ = self._child.communicate(timeout=120)
        found: dict[str, int] = json.loads(text)
        return found


async def overload(peer: Peer) -> None:
    """ENDs alone, and beside twice as many halves as the broker can take."""
    link, loader = await pipe.connect(peer.broker), await pipe.connect(peer.broker)
    replies = await link.flood((pipe.half("Ends", n) for n in range(4_000)), window=64)
    halves = [Half(reply) for reply in replies]
    begin = time.monotonic()
    count = 40_000
    await loader.flood((pipe.half("Cap", 10**9 + n) for n in range(count)), window=256)
    capacity = count / (time.monotonic() - begin)
    alone = await end_times(link, halves[:2_000], pause_s=0.002)
    flood = Flood(peer.broker, 2 * capacity, 20)
    await asyncio.sleep(3)
    loaded = await end_times(link, halves[2_000:], pause_s=0.002)
    result = await asyncio.to_thread(flood.result)
    note(what="halves a second that the broker takes", ours=round(capacity))
    note(what="halves a second offered meanwhile", ours=round(result["offered"] / 20))
    note(what="of which accepted / shed", ours=f"{result['accepted']} / {result['shed']}")
    note(what="END alone, ms, p50 / p99", ours=f"{_at(alone, 50)} / {_at(alone, 99)}")
    note(what="END beside them, ms, p50 / p99", ours=f"{_at(loaded, 50)} / {_at(loaded, 99)}")


def run_overload() -> None:
    """Halves are shed, ENDs are not."""
    peer = Ours()
    try:
        peer.start()
        asyncio.run(overload(peer))
    finally:
        peer.stop()


def main() -> None:
    """Run what was asked for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="bytes,pending,checks,overload")
    parser.add_argument("--pending", type=int, default=1_000_000)
    options = parser.parse_args()
    wanted = options.only.split(",")
    if "bytes" in wanted:
        run_bytes()
    if "pending" in wanted:
        run_pending(options.pending)
    if "checks" in wanted:
        run_checks(options.pending)
    if "overload" in wanted:
        run_overload()
    names = ("what", "ours", "java", "ratio")
    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    lines += ["| " + " | ".join(str(row.get(name, "")) for name in names) + " |" for row in ROWS]
    Path(BUILD / "transactions.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
