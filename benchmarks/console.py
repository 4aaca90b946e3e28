"""How fast and how heavy the console's pages are, before a broker with much in it.

    python benchmarks/console.py                       # 10,000 topics, 1,000,000 pending halves
    python benchmarks/console.py --topics 100 --halves 1000

Each page is fetched by a client on this machine: the first time after nothing was remembered, then
`--times` more. Prints one table, and the machine."""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

import escrowmq

PAGES = (
    "/", "/transactions", "/transactions?group=group-3", "/transactions?group=group-none",
    "/transactions?older_than=1", "/transactions?page=3", "/transactions/discarded", "/topics",
    "/topics?page=100", "/topics?part=77", "/topics/t-5", "/groups", "/groups/reader",
    "/messages", "/messages?text=k-5&topic=t-5", "/brokers", "/brokers/broker-a", "/replicas",
    "/accounts", "/jobs", "/help",
)  # fmt: skip
FRESH_S = 2.5
"""What the console remembers is forgotten after this."""


def fill(nameserver: str, *, topics: int, halves: int) -> str:
    """Make topics and pending transactions; the id of one."""
    with escrowmq.Admin(nameserver) as admin:
        for nth in range(topics):
            admin.topics.create(f"t-{nth}", queues=1)
            if nth % 1_000 == 999:
                print(f"{nth + 1} topics", file=sys.stderr)
    command = [sys.executable, __file__, "--halves-to", nameserver, "--halves"]
    parts = [halves // 2, halves - halves // 2]
    children = [
        subprocess.Popen([*command, str(part), "--first", str(nth)])
        for nth, part in enumerate(parts)
    ]
    for child in children:
        assert child.wait() == 0
    with escrowmq.Producer(nameserver, group="reader-of-all") as producer:
        for _ in range(100):
            producer.send("t-5", b"x" * 200, keys=["k-5"])
    with escrowmq.Consumer(nameserver, group="reader", topic="t-5") as consumer:
        for delivery in consumer:
            delivery.ack()
            break
    with escrowmq.Admin(nameserver) as admin:
        return next(iter(admin.transactions.pending())).id


def leave_halves(nameserver: str, count: int, first: int) -> None:
    """Send halves that nobody ends, many at a time."""
    import asyncio

    async def some(producer: escrowmq.aio.Producer, numbers: range) -> None:
        for nth in numbers:
            async with producer.transaction(f"t-{nth % 10}", b"x" * 100, keys=[f"h-{nth}"]) as tx:
                tx.detach()

    def unknown(_: escrowmq.ReceivedMessage) -> escrowmq.Outcome:
        return escrowmq.Outcome.UNKNOWN

    async def all_of_them() -> None:
        groups = [f"group-{nth}" for nth in range(first * 4, first * 4 + 4)]
        for nth, group in enumerate(groups):
            share = range(nth, count, len(groups))
            producer = escrowmq.aio.Producer(nameserver, group=group, check=unknown)
            async with producer:
                await asyncio.gather(*(some(producer, share[at::64]) for at in range(64)))

    asyncio.run(all_of_them())


class Browser:
    """Logged in, and with a stop watch."""

    def __init__(self, address: str, password: str) -> None:
        self._address = f"http://{address}"
        self._open = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(CookieJar())
        ).open
        form = urllib.parse.urlencode({"name": "admin", "password": password, "back": "/"})
        with self._open(f"{self._address}/login", form.encode()) as answer:
            assert answer.status == 200

    def fetch(self, path: str) -> tuple[float, int]:
        """Milliseconds until the whole page is there, and its bytes."""
        began_s = time.perf_counter()
        with self._open(self._address + path) as answer:
            size = len(answer.read())
        return (time.perf_counter() - began_s) * 1000, size


def measure(browser: Browser, pages: list[str], times: int) -> None:
    """The table."""
    print(f"| {'page':<34} | first ms | then ms | worst ms | KiB |")
    print("|---|---|---|---|---|")
    for path in pages:
        time.sleep(FRESH_S)
        first_ms, size = browser.fetch(path)
        then = [browser.fetch(path)[0] for _ in range(times)]
        print(
            f"| {path[:34]:<34} | {first_ms:.0f} | {statistics.median(then):.0f} | "
            f"{max(then):.0f} | {size / 1024:.1f} |"
        )


def main() -> int:
    """Fill a server, and look at it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--halves", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--data", help="a folder that was filled before, and is used again")
    parser.add_argument("--halves-to", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.halves_to:
        leave_halves(arguments.halves_to, arguments.halves, arguments.first)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        data = arguments.data or folder
        is_filled = (Path(data) / "commitlog").exists()
        command = [
            sys.executable, "-m", "escrowmq", "--log-level", "error", "serve", "--data", data,
            "--nameserver-port", "0", "--broker-port", "0", "--http-port", "0",
            "--set", "transactionTimeOut=86400000",
        ]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            try:
                assert child.stdout is not None
                doors = dict(re.findall(r"(\w+)=(\S+)", child.stdout.readline()))
                if is_filled:
                    with escrowmq.Admin(doors["nameserver"]) as admin:
                        one = next(iter(admin.transactions.pending())).id
                else:
                    one = fill(
                        doors["nameserver"], topics=arguments.topics, halves=arguments.halves
                    )
                password = (Path(data) / "config" / "consolePassword").read_text().strip()
                browser = Browser(doors["http"], password)
                measure(browser, [*PAGES, f"/transactions/{one}"], arguments.times)
            finally:
                child.terminate()
    return 0


if __name__ == "__main__":
    sys.exit(main())
