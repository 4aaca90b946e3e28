"""Which test holds which source file: `python tools/held.py build/coverage.data`.

A source file has a test file of its own name, or `tests/where.toml` names some. That list is
believed when what it says is seen: of the lines in a file's functions that any test runs, those
that are named for it must run most. Prints the files of which they do not; the exit code is 1 when
there is one. With `--propose` it prints lines for `tests/where.toml` instead, for what is missing
there."""

from __future__ import annotations

import ast
import json
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from coverage import Coverage, CoverageData

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "src" / "escrowmq"
TESTS: Final = ROOT / "tests"
LEAST_SHARE: Final = 0.6
"""Of a file's lines that any test runs, those that are named for it run so many."""
NAMED_MAX: Final = 3
GOOD_SHARE: Final = 0.8
"""A test file that runs so much of what the best one runs may be named instead of it."""


def lines_in_functions(path: Path, statements: Iterable[int]) -> set[int]:
    """Lines that run when something is called, not when the file is imported."""
    inside: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside |= set(range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1))
    return inside & set(statements)


def by_test_file(data: CoverageData, path: Path, statements: set[int]) -> dict[str, set[int]]:
    """For each test file, the lines that it runs."""
    found: dict[str, set[int]] = defaultdict(set)
    for line, contexts in data.contexts_by_lineno(str(path)).items():
        if line in statements:
            for context in contexts:
                if "::" in context:
                    found[context.partition("::")[0].removeprefix("tests/")].add(line)
    return found


def has_mirror(source: str) -> bool:
    """Whether a test file of the same name stands in the same room."""
    path = Path(source)
    return (TESTS / "unit" / path.parent / f"test_{path.name}").exists()


def chosen(ran: dict[str, set[int]], room: str, breadth: dict[str, int]) -> list[str]:
    """A few test files that run nearly all of what any of them runs: near ones first, then those
    that run little else."""
    rest, names = set().union(*ran.values()), list[str]()
    enough = len(rest) * (1 - LEAST_SHARE) / 2
    while len(rest) > enough and len(names) < NAMED_MAX:
        most = max(len(lines & rest) for lines in ran.values())
        good = [name for name in ran if len(ran[name] & rest) >= most * GOOD_SHARE]
        near = [name for name in good if name.startswith(f"unit/{room}/")]
        names.append(min(near or good, key=lambda name: (breadth[name], name)))
        rest -= ran[names[-1]]
    return names


def measured(data: CoverageData) -> dict[str, dict[str, set[int]]]:
    """For each source file that some test runs, its lines in functions by test file."""
    coverage = Coverage(data_file=None)
    found = {}
    for name in sorted(data.measured_files()):
        path = Path(name)
        if path.is_relative_to(PACKAGE) and not path.name.startswith("__"):
            _, statements, _, _, _ = coverage.analysis2(name)
            ran = by_test_file(data, path, lines_in_functions(path, statements))
            if ran:
                found[str(path.relative_to(PACKAGE))] = ran
    return found


def main(data_file: str, *words: str) -> int:
    """Judge the list by what was measured."""
    where = tomllib.loads((TESTS / "where.toml").read_text(encoding="utf-8"))
    data = CoverageData(data_file)
    data.read()
    found = measured(data)
    breadth = Counter(test for ran in found.values() for test in ran)
    wrong = 0
    for source, ran in found.items():
        if has_mirror(source) or source in where["elsewhere"]:
            continue
        reached = set().union(*ran.values())
        own = set().union(*(ran.get(test, set()) for test in where["held"].get(source, [])))
        names = chosen(ran, str(Path(source).parent), breadth)
        if "--propose" in words and not own:
            print(f"{json.dumps(source)} = {json.dumps(names)}")
        elif "--propose" not in words and len(own) / len(reached) < LEAST_SHARE:
            share = f"{len(own) / len(reached):.0%}"
            print(f"{source}: the tests named for it run {share} of what is run of it; {names}?")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
