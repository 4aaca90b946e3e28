"""Takes conditions out of the code, one at a time, and runs the tests that should notice.

`make mutants ARGS="--count 50 --seed 7"` makes 50 of all mutants of the files that
`tools/mutants.toml` names; `--only broker/fast/fast_path.py` makes those of one file, `--list`
prints them. A mutant is a copy of `src` in `build/mutants` with one change: an operand of `and` or
`or` does not count, an `if` is never entered, or a comparison is off by one. The tests are those of
the file itself (its test file, or what tests/where.toml names), those that import it, and those
that `mutants.toml` adds, until the first one fails.

A mutant that lives is a gap in the tests, or means the same as the code. In the latter case it is
entered into `mutants.toml` with the reason. The exit code is 1 when one lives that is not there.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import os
import random
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "src" / "escrowmq"
TESTS: Final = ROOT / "tests"
WORK: Final = ROOT / "build" / "mutants"
CONFIG: Final = ROOT / "tools" / "mutants.toml"

TIMEOUT_S: Final = 300
"""A mutant whose tests take longer goes on for ever somewhere: it was noticed."""

PROGRESS_EACH: Final = 10
FAILED: Final = (1, 2)
"""Exit codes of pytest: a test failed, or a file could not be imported."""

NEXT_TO: Final[dict[type[ast.cmpop], str]] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.NotEq: "<", ast.Eq: "<=",
}  # fmt: skip
"""What stands in place of a comparison."""


class Mutant(NamedTuple):
    """One change of one file."""

    file: str
    where: str
    """The function."""

    kind: str
    text: str
    """What is changed, on one line."""

    begin: int
    end: int
    """Bytes of the source that are replaced."""

    by: str
    line: int

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What names it in `mutants.toml`: no line number, which the next change moves."""
        return self.file, self.where, self.kind, self.text

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.where}: {self.kind}: {self.text}"


class _Finder(ast.NodeVisitor):
    """Finds the mutants of one file."""

    def __init__(self, file: str, source: bytes) -> None:
        self._file, self._source = file, source
        self._names: list[str] = []
        self.found: list[Mutant] = []
        lines = source.splitlines(keepends=True)
        self._begins = [0]
        for line in lines:
            self._begins.append(self._begins[-1] + len(line))

    def _span(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begin = self._begins[node.lineno - 1] + node.col_offset
        return begin, self._begins[node.end_lineno - 1] + node.end_col_offset

    def _add(self, kind: str, node: ast.expr, by: str) -> None:
        begin, end = self._span(node)
        text = " ".join(self._source[begin:end].decode().split())
        where = ".".join(self._names)
        mutant = Mutant(self._file, where, kind, text, begin, end, by, node.lineno)
        self.found.append(mutant)

    def _visit_named(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._names.append(node.name)
        self.generic_visit(node)
        self._names.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_named(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_named(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_named(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        """What is asserted cannot be otherwise."""

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        neutral = "True" if isinstance(node.op, ast.And) else "False"
        for operand in node.values:
            self._add("operand out", operand, neutral)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self._add("never", node.test, "False")
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        (first, *more), op = node.ops, node.ops[0]
        by = NEXT_TO.get(type(first))
        is_number = not any(
            isinstance(side, ast.Constant) and isinstance(side.value, str | bytes)
            for side in (node.left, *node.comparators)
        )
        if by is not None and is_number and not more:
            left, right = node.left, node.comparators[0]
            said = [self._source[slice(*self._span(side))].decode() for side in (left, right)]
            if not isinstance(op, ast.Eq | ast.NotEq) or not _is_enum(right):
                self._add(f"compared by {by}", node, f"({said[0]}) {by} ({said[1]})")
        self.generic_visit(node)


def _is_enum(node: ast.expr) -> bool:
    """Whether it names one of several values, of which none is more than another."""
    return isinstance(node, ast.Attribute) and node.attr.isupper()


def mutants_of(file: str) -> list[Mutant]:
    """All of one source file."""
    source = (PACKAGE / file).read_bytes()
    finder = _Finder(file, source)
    finder.visit(ast.parse(source))
    return finder.found


def mutated(source: bytes, mutant: Mutant) -> bytes:
    """The source with the change. Line numbers stay: what is replaced keeps its line ends."""
    line_ends = source[mutant.begin : mutant.end].count(b"\n")
    by = f"({mutant.by}{chr(10) * line_ends})" if line_ends else mutant.by
    return source[: mutant.begin] + by.encode() + source[mutant.end :]


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
    files = sorted(PACKAGE.glob(glob))
    if not files:
        raise SystemExit(f"{CONFIG.name}: no file matches {glob!r}; name files of src/escrowmq")
    return (file.relative_to(PACKAGE) for file in files if not file.name.startswith("__"))


class Copy:
    """A copy of `src`, in which one mutant after the other is tried."""

    def __init__(self, number: int) -> None:
        self._src = WORK / str(number) / "src"
        shutil.rmtree(self._src.parent, ignore_errors=True)
        shutil.copytree(ROOT / "src", self._src)

    def notices(self, mutant: Mutant, tests: list[str]) -> bool:
        """Whether one of the tests fails."""
        path = self._src / "escrowmq" / mutant.file
        source = path.read_bytes()
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()  # it may be of the same size and second
        path.write_bytes(mutated(source, mutant))
        try:
            return self._run(tests) in FAILED
        finally:
            path.write_bytes(source)

    def _run(self, tests: list[str]) -> int:
        command = [
            sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider",
            "-m", "not long", "-o", f"pythonpath={self._src}", "--no-header", "--tb=no", *tests,
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, timeout=TIMEOUT_S,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return FAILED[0]
        if done.returncode not in (0, *FAILED):
            raise SystemExit(f"pytest ended with {done.returncode}: {done.stdout.decode()[-2000:]}")
        return done.returncode


def _try_all(mutants: list[Mutant], plan: Plan, jobs: int) -> Iterator[tuple[Mutant, bool]]:
    """Each with whether it was noticed, as they are done."""
    copies = [Copy(number) for number in range(jobs)]
    free = list(copies)

    def one(mutant: Mutant) -> tuple[Mutant, bool]:
        copy = free.pop()
        try:
            return mutant, copy.notices(mutant, plan.tests_of(mutant.file))
        finally:
            free.append(copy)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(one, mutants)


def _chosen(plan: Plan, given: argparse.Namespace) -> list[Mutant]:
    files = given.only or plan.files
    found = [mutant for file in files for mutant in mutants_of(file)]
    if given.match:
        found = [mutant for mutant in found if given.match in str(mutant)]
    known = {mutant.key for file in plan.files for mutant in mutants_of(file)}
    for key in plan.accepted.keys() - known:
        raise SystemExit(f"{CONFIG.name}: there is no such mutant any more: {' | '.join(key)}")
    found = [mutant for mutant in found if mutant.key not in plan.accepted]
    if given.count and given.count < len(found):
        found = random.Random(given.seed).sample(found, given.count)
    return found


def main() -> int:
    """Try some mutants, and print those that live."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="chooses which")
    parser.add_argument("--count", type=int, default=0, help="how many; 0 for all")
    parser.add_argument("--only", action="append", help="a file below src/escrowmq")
    parser.add_argument("--match", default="", help="those whose line in --list has this text")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--list", action="store_true", help="print them, and try none")
    given = parser.parse_args()
    plan = Plan()
    mutants = _chosen(plan, given)
    if given.list:
        print("\n".join(map(str, mutants)))
        return 0
    began = time.monotonic()
    figures: Counter[bool] = Counter()
    for mutant, is_noticed in _try_all(mutants, plan, given.jobs):
        figures[is_noticed] += 1
        if figures.total() % PROGRESS_EACH == 0:
            print(f"{figures.total()} of {len(mutants)}", file=sys.stderr, flush=True)
        if not is_noticed:
            print(f"lives: {mutant}", flush=True)
    print(
        f"{len(mutants)} mutants (seed {given.seed}): {figures[True]} noticed, {figures[False]} "
        f"live; {len(plan.accepted)} more mean the same; {time.monotonic() - began:.0f} s"
    )
    return 1 if figures[False] else 0


if __name__ == "__main__":
    sys.exit(main())
