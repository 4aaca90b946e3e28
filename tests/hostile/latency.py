"""How long an honest client waits while others attack: `python -m tests.hostile.latency`.

One account sends and pulls, one request after another, for some seconds without anybody else, and
for as long beside each attack, which another process makes again and again. Prints a table for
SECURITY.md. Some minutes; on a machine that does nothing else."""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from escrowmq.base.codes import Request

from .attacks import CASES, SETTINGS, prepare, pull
from .place import B, Place, sending

_FORK = multiprocessing.get_context("fork")
END_S = 60.0
_QUICK_MS, _QUICK_COUNT = 50.0, 10


def honest(place: Place, span_s: float) -> list[float]:
    """Milliseconds of each request."""
    found: list[float] = []
    end_s = time.monotonic() + span_s
    with place.line(B) as b:
        while time.monotonic() < end_s:
            began_s = time.monotonic()
            reply = b.ask(Request.SEND_MESSAGE_V2, sending("TB", "PGB", 0, {}), b"honest")
            assert reply.code == 0, reply
            found.append((time.monotonic() - began_s) * 1000)
            began_s = time.monotonic()
            b.ask(Request.PULL_MESSAGE, pull("TB", 0, group="GB"))
            found.append((time.monotonic() - began_s) * 1000)
    return found


def settle(place: Place) -> None:
    """Wait until what the last attack has left behind is worked off."""
    quick, end_s = 0, time.monotonic() + END_S
    while quick < _QUICK_COUNT and time.monotonic() < end_s:
        quick = quick + 1 if max(honest(place, 0.05), default=_QUICK_MS) < _QUICK_MS else 0


def _again_and_again(place: Place, attack: Callable[[Place], None], until_s: float) -> None:
    while time.monotonic() < until_s:
        try:
            attack(place)
        except OSError:
            continue


def beside(place: Place, attack: Callable[[Place], None] | None, span_s: float) -> list[float]:
    """What the honest one waits for while somebody attacks, or nobody."""
    if attack is None:
        return honest(place, span_s)
    until_s = time.monotonic() + span_s
    attacker = _FORK.Process(target=_again_and_again, args=(place, attack, until_s))
    attacker.start()
    found = honest(place, span_s)
    attacker.join(END_S)
    if attacker.is_alive():
        attacker.kill()
    return found


def main(words: list[str]) -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.latency", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each attack")
    span_s = parser.parse_args(words).seconds
    sys.stdout.write(
        "| beside | requests | p50 ms | p99 ms | longest ms |\n|---|---|---|---|---|\n"
    )
    with tempfile.TemporaryDirectory() as folder, Place(Path(folder), settings=SETTINGS) as place:
        prepare(place)
        for attack in (None, *CASES):
            settle(place)
            found = beside(place, attack, span_s)
            cuts = statistics.quantiles(found, n=100, method="inclusive")
            name = "nobody" if attack is None else attack.__name__.replace("_", " ")
            sys.stdout.write(
                f"| {name} | {len(found)} | {cuts[49]:.1f} | {cuts[98]:.1f} | {max(found):.0f} |\n"
            )
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
