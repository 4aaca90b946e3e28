"""How long a fail-over takes with a million pending halves:
`python -m tests.failover.many_pending`.

Prints the time from kill -9 of the master to the first acknowledged send of each client, and how
long the new master took to open."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from escrowmq.base.command import Command
from tests.crash.link import Link, send_request
from tests.interop.process import until

from .clients import sending
from .group import Group, running
from .rounds import SERVED_S, TOPIC
from .verdict import NS

BATCH = 1_000
SETTINGS: dict[str, Any] = {
    "mappedFileSizeCommitLog": 1 << 28,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxHashSlotNum": 1_000_000,
    "maxIndexNum": 4_000_000,
    "transactionTimeOut": 3_600_000,
    "transactionCheckInterval": 3_600_000,
}


def fill(group: Group, count: int) -> None:
    """Store so many halves whose transactions never end."""
    link = Link(group.master().clients.address)
    for first in range(0, count, BATCH):
        halves: list[Command] = [
            send_request(TOPIC, n % 4, b"%d" % n, "PG-fill",
                         {"TRAN_MSG": "true", "PGROUP": "PG-fill", "UNIQ_KEY": f"F{n:031X}",
                          "WAIT": "true"})
            for n in range(first, min(first + BATCH, count))
        ]  # fmt: skip
        refused = [reply for reply in link.ask_all(halves) if reply.code]
        assert not refused, refused[0].remark
    link.close()


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pending-"))
    with running(folder, **SETTINGS) as group:
        group.make_topic(TOPIC)
        began_s = time.monotonic()
        fill(group, asked.count)
        print(f"{asked.count} halves in {time.monotonic() - began_s:.1f} s", flush=True)  # noqa: T201
        with sending(group, TOPIC, ("5.5.0",)) as clients:
            for _ in range(asked.rounds):
                clients.wait_for(50, within_s=SERVED_S)
                master = group.master()
                killed_ns = time.monotonic_ns()
                master.kill()
                clients.wait_since(killed_ns, within_s=120)
                waited = {
                    sender.name: next(
                        (sent.end_ns - killed_ns) / NS
                        for sent in sender.tail.acknowledged()
                        if sent.begin_ns > killed_ns
                    )
                    for sender in clients.senders
                }
                opened = re.findall(r"open as master ([\d.]+) s", group.master().log)
                print(waited, f"open {opened[-1]} s", flush=True)  # noqa: T201
                master.start()
                group.wait_whole()
                until("all run", lambda: all(member.is_up for member in group.members))
    return 0


if __name__ == "__main__":
    sys.exit(main())
