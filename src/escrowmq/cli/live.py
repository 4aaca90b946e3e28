"""Tables that are redrawn periodically: `tx top`, `group top`."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from escrowmq.cli.cluster_verbs import OK
from escrowmq.cli.printing import clear_screen, print_line
from escrowmq.cli.times import parse_count, parse_seconds

Row = Sequence[object]
ROWS_MAX: Final = 30
_TOP: Final = 20


def add_live_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a live table."""
    parser.add_argument(
        "--interval",
        type=parse_seconds,
        default=2.0,
        metavar="SECONDS",
        help="seconds between two tables (default 2)",
    )
    parser.add_argument(
        "--count", type=parse_count, metavar="N", help="stop after N tables (default: at Ctrl-C)"
    )


def show_live(arguments: argparse.Namespace, draw: Callable[[], Iterator[Row]]) -> int:
    """Redraw a table as often as requested, or until Ctrl-C; return the exit code."""
    left = arguments.count
    pause = threading.Event()
    try:
        while left is None or left > 0:
            rows = list(draw())
            if sys.stdout.isatty():
                clear_screen()
            for row in rows[:ROWS_MAX]:
                print_line(*row)
            if left is not None:
                left -= 1
            if left != 0:
                pause.wait(max(0.1, arguments.interval))
    except KeyboardInterrupt:
        pass
    return OK


class ChangeRates:
    """Computes how fast numbers change from one drawing of a live table to the next."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._before: dict[str, tuple[int, int]] = {}

    def rate(self, name: str, value: int) -> str:
        """Return the change per second since the last call for this name; `-` at the first call."""
        now_ms, before = self._now_ms(), self._before.get(name)
        self._before[name] = (now_ms, value)
        if before is None or now_ms <= before[0]:
            return "-"
        return f"{(value - before[1]) * 1000 / (now_ms - before[0]):+.1f}/s"


def largest_counts(counts: dict[str, int]) -> list[tuple[str, int]]:
    """Return the largest counts, in descending order."""
    return sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:_TOP]
