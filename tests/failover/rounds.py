"""Fail-overs of each kind with clients at work: `python -m tests.failover.rounds --rounds 50`.

Prints a row for each kind, and exits with 1 if anything acknowledged was lost, doubled, moved or
wrongly visible. It ends by itself, and ends all that it has started."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.interop.process import ProcessError

from .clients import Clients, sending
from .disks import is_mountable
from .faults import ENGINES, FAULTS, WITH_DISKS, suffer
from .group import Group, running
from .verdict import Verdict, look

TOPIC: Final = "failover"
SERVED_S: Final = 45.0
JAVA: Final = ("5.5.0", "4.9.8")
LESS_S: Final = 60
"""A kind of fault is given up when less than that is left of the time."""


def run(
    folder: Path, fault: str, *, rounds: int, least: int, java: tuple[str, ...], until_s: float
) -> Verdict:
    """Rounds of one fault on one group, with at least so many acknowledgements of each client
    before each."""
    has_disks = fault in WITH_DISKS and is_mountable(folder)
    # A broker makes room by deleting messages; they are read at the end here.
    keeping = {"cleanFileForciblyEnable": "false"} if has_disks else {}
    engines = ENGINES.get(fault, 1)
    with running(folder, engines=engines, has_disks=has_disks, **keeping) as group:
        group.make_topic(TOPIC)
        with sending(group, TOPIC, java) as clients:
            spans: list[tuple[int, int]] = []
            clients.wait_for(least, within_s=SERVED_S)
            while len(spans) < rounds and time.monotonic() < until_s:
                spans.append(_round(group, fault, clients, least))
            return look(fault, group, TOPIC, clients, spans)


def _round(group: Group, fault: str, clients: Clients, least: int) -> tuple[int, int]:
    begun_ns = time.monotonic_ns()

    def served() -> None:
        clients.wait_since(max(begun_ns, time.monotonic_ns()), within_s=SERVED_S)

    span = suffer(group, fault, served)
    clients.wait_for(least, within_s=SERVED_S)
    return span


HEAD: Final = (
    "fault", "rounds", "acknowledged", "ENDs", "wrong", "client", "p50 s", "p99 s", "max s",
)  # fmt: skip


def rows(verdict: Verdict) -> list[tuple[str, ...]]:
    """Lines of the table."""
    return [
        (
            verdict.fault, str(verdict.rounds), str(verdict.acknowledged), str(verdict.ends),
            str(len(verdict.findings)), client,
            *(f"{verdict.pause_s(client, share):.2f}" for share in (0.5, 0.99, 1)),
        )
        for client in verdict.pauses_s
    ]  # fmt: skip


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--least", type=int, default=100)
    parser.add_argument("--only", default="", help="faults whose names match this expression")
    parser.add_argument("--keep", type=Path, help="where histories and logs stay")
    asked = parser.parse_args()
    until_s = time.monotonic() + asked.minutes * 60
    root = asked.keep or Path(tempfile.mkdtemp(prefix="failover-"))
    is_wrong = False
    print(" | ".join(HEAD), flush=True)  # noqa: T201
    chosen = [name for name in FAULTS if re.search(asked.only, name)]
    for number, fault in enumerate(chosen):
        if time.monotonic() > until_s - LESS_S:
            print("the time is over", flush=True)  # noqa: T201
            break
        folder = root / str(number)
        try:
            verdict = run(
                folder, fault, rounds=asked.rounds, least=asked.least, java=JAVA, until_s=until_s
            )
        except (AssertionError, ProcessError) as error:
            print(f"{fault}: {error}; see {folder}", flush=True)  # noqa: T201
            is_wrong = True
            continue
        for row in rows(verdict):
            print(" | ".join(row), flush=True)  # noqa: T201
        for finding in verdict.findings[:20]:
            print(f"  {finding}", flush=True)  # noqa: T201
        if verdict.findings:
            is_wrong = True
        elif asked.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if is_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
