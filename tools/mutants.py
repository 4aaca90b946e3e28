"""Takes conditions out of the code, one at a time, and runs the tests that should notice.

`make mutants` tries all mutants of the files that `tools/mutants.toml` names, `ARGS="--count 50
--seed 7"` 50 of them, `ARGS="--only broker/fast/"` those of one room or file; `--list` prints them.
A mutant is one change: an operand of `and` or `or` does not count, an `if` is never entered, or a
comparison is off by one. The tests that reach it run until one fails, of those of the file itself
(its test file, or what tests/where.toml names), those that import it, and those that `mutants.toml`
adds (tools/mutant_trials.py).

A mutant that lives is a gap in the tests, or means the same as the code. In the latter case it is
entered into `mutants.toml` with the reason. The exit code is 1 when one lives that is not there.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools import mutant_finder
from tools.mutant_finder import ROOT, Mutant, mutants_of
from tools.mutant_trials import Effort, Trial, try_all

TESTS: Final = ROOT / "tests"
CONFIG: Final = ROOT / "tools" / "mutants.toml"
PROGRESS_EACH: Final = 50


class Plan:
    """What `mutants.toml` says, and which tests hold which file."""

    def __init__(self) -> None:
        config = tomllib.loads(CONFIG.read_text(encoding="utf-8"))
        where = tomllib.loads((TESTS / "where.toml").read_text(encoding="utf-8"))
        self._listed: dict[str, list[str]] = where["held"] | where["elsewhere"]
        self._more: dict[str, list[str]] = config["tests"]
        self.files = sorted({str(file) for glob in config["files"] for file in _matching(glob)})
        self.accepted: dict[tuple[str, str, str, str], str] = {
            (one["file"], one["where"], one["kind"], one["text"]): one["reason"]
            for one in config.get("accepted", ())
        }
        self._texts = {
            path: path.read_text(encoding="utf-8") for path in (TESTS / "unit").rglob("test_*.py")
        }

    def tests_of(self, file: str) -> list[str]:
        """The test files for a source file, those that are nearest first."""
        path = Path(file)
        mirror = TESTS / "unit" / path.parent / f"test_{path.name}"
        found = [mirror] if mirror.exists() else []
        found += [TESTS / name for name in self._listed.get(file, ())]
        for glob, names in self._more.items():
            if path.match(glob):
                found += [one for name in names for one in sorted(TESTS.glob(name))]
        module = "escrowmq." + ".".join(path.with_suffix("").parts)
        found += sorted(one for one, text in self._texts.items() if module in text)
        return [str(one) for one in dict.fromkeys(found)]


def _matching(glob: str) -> Iterator[Path]:
    files = sorted(mutant_finder.PACKAGE.glob(glob))
    if not files:
        raise SystemExit(f"{CONFIG.name}: no file matches {glob!r}; name files of src/escrowmq")
    return (
        file.relative_to(mutant_finder.PACKAGE) for file in files if not file.name.startswith("__")
    )


def _chosen(plan: Plan, given: argparse.Namespace) -> list[Mutant]:
    known = [mutant for file in plan.files for mutant in mutants_of(file)]
    for key in plan.accepted.keys() - {mutant.key for mutant in known}:
        raise SystemExit(f"{CONFIG.name}: there is no such mutant any more: {' | '.join(key)}")
    found = [
        mutant
        for mutant in known
        if mutant.file.startswith(tuple(given.only or [""]))
        and given.match in str(mutant)
        and mutant.key not in plan.accepted
    ]
    if not found:
        raise SystemExit(f"no mutants of {given.only}; {CONFIG.name} names the files")
    if given.count and given.count < len(found):
        found = random.Random(given.seed).sample(found, given.count)
    return found


class _Report:
    """Says which mutants live as they are known, and counts them by room."""

    def __init__(self, count: int, plan: Plan, *, is_wordy: bool) -> None:
        self._count, self._plan, self._is_wordy = count, plan, is_wordy
        self.noticed: Counter[str] = Counter()
        self.lives: Counter[str] = Counter()

    def tell(self, trial: Trial) -> None:
        """Count one."""
        room = str(Path(trial.mutant.file).parent)
        (self.noticed if trial.is_noticed else self.lives)[room] += 1
        if not trial.is_noticed:
            print(f"lives: {trial.mutant}", flush=True)
        elif self._is_wordy:
            print(f"noticed: {trial.mutant}: {trial.by or 'it does not end'}", flush=True)
        done = self.noticed.total() + self.lives.total()
        if done % PROGRESS_EACH == 0:
            print(f"{done} of {self._count}", file=sys.stderr, flush=True)

    def print_rooms(self) -> None:
        """One line for each room."""
        same = Counter(str(Path(file).parent) for file, *_ in self._plan.accepted)
        print(f"{'room':20} {'noticed':>8} {'live':>8} {'mean the same':>14}")
        for room in sorted(self.noticed | self.lives):
            print(f"{room:20} {self.noticed[room]:8} {self.lives[room]:8} {same[room]:14}")


def main() -> int:
    """Try some mutants, and print those that live."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="chooses which")
    parser.add_argument("--count", type=int, default=0, help="how many; 0 for all")
    parser.add_argument("--only", action="append", help="a file or room below src/escrowmq")
    parser.add_argument("--match", default="", help="those whose line in --list has this text")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--seconds", type=float, default=math.inf, help="most tests of a mutant")
    parser.add_argument("--list", action="store_true", help="print them, and try none")
    parser.add_argument("--wordy", action="store_true", help="print which test notices which")
    given = parser.parse_args()
    plan = Plan()
    mutants = _chosen(plan, given)
    if given.list:
        print("\n".join(map(str, mutants)))
        return 0
    began = time.monotonic()
    report = _Report(len(mutants), plan, is_wordy=given.wordy)
    try_all(mutants, plan.tests_of, Effort(given.jobs, given.seconds), report.tell)
    report.print_rooms()
    print(f"{len(mutants)} mutants, {time.monotonic() - began:.0f} s")
    return 1 if report.lives else 0


if __name__ == "__main__":
    sys.exit(main())
