"""Run simulated worlds: `python -m tests.sim --seeds 0:1000 [--hours H] [--jobs N]`.

Prints what was run and which faults were fired; a world that breaks a promise is told with its
seed and the end of its trace, and the exit code is 1."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from tests.sim.world import Result, World

_BROKEN_MAX = 10


class Outcome(msgspec.Struct):
    """What one seed came to."""

    seed: int
    result: Result | None
    broken: str = ""


def play(seed: int, minutes: int | None = None) -> Outcome:
    """Run one world to its end, or to its first broken promise."""
    try:
        return Outcome(seed, World(seed, minutes=minutes).run())
    except Exception as error:  # noqa: BLE001 - told with its trace; the other seeds go on
        notes = "\n".join(getattr(error, "__notes__", ()))
        return Outcome(seed, None, f"{type(error).__name__}: {error}\n{notes}")


def _outcomes(seeds: Iterable[int], minutes: int | None, jobs: int) -> Iterator[Outcome]:
    if jobs == 1:
        yield from (play(seed, minutes) for seed in seeds)
        return
    with multiprocessing.Pool(jobs) as pool:
        yield from pool.imap_unordered(_Player(minutes), seeds)


class _Player:
    """`play` with its minutes, as a pool can carry it."""

    def __init__(self, minutes: int | None) -> None:
        self._minutes = minutes

    def __call__(self, seed: int) -> Outcome:
        return play(seed, self._minutes)


def _report(results: list[Result], seconds: float) -> None:
    hours = sum(result.simulated_ms for result in results) / 3_600_000
    events = sum(result.events_count for result in results)
    faults: Counter[str] = Counter()
    done: Counter[str] = Counter()
    for result in results:
        faults.update(result.faults)
        done.update(result.done)
    speed = f"{len(results) / max(seconds, 1e-9):.1f} seeds a second"
    times = f"{hours * 3_600 / max(seconds, 1e-9):.0f} times real time"
    lines = [
        f"seeds run         {len(results)}",
        f"simulated hours   {hours:.1f}",
        f"events            {events}",
        f"seconds           {seconds:.1f} ({speed}, {times})",
        "what was done",
        *(f"  {count:9d}  {kind}" for kind, count in sorted(done.items())),
        "faults fired",
        *(f"  {count:9d}  {kind}" for kind, count in sorted(faults.items())),
    ]
    print("\n".join(lines))  # noqa: T201 - this is a command


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", default="0:200", help="first:behind the last, or one seed")
    parser.add_argument("--hours", type=float, help="simulated hours of faults in each world")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    found = parser.parse_args(arguments)
    first, _, last = str(found.seeds).partition(":")
    seeds = range(int(first), int(last) if last else int(first) + 1)
    minutes = None if found.hours is None else max(1, int(found.hours * 60))
    started = time.monotonic()
    results: list[Result] = []
    broken: list[Outcome] = []
    for outcome in _outcomes(seeds, minutes, found.jobs):
        if outcome.result is not None:
            results.append(outcome.result)
        else:
            broken.append(outcome)
            if len(broken) <= _BROKEN_MAX:
                print(f"SEED {outcome.seed} BROKE A PROMISE: {outcome.broken}")  # noqa: T201
    _report(results, time.monotonic() - started)
    print(f"broken: {sorted(outcome.seed for outcome in broken) or 'none'}")  # noqa: T201
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
