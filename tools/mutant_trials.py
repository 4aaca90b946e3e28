"""Tries mutants for `tools/mutants.py`: one process imports all tests, each mutant gets a fork.

In the fork the code object of the changed function takes the place of the old one, so that everyone
who has imported the function calls the mutant. Then those tests run that evaluate what is changed:
first those that noticed other mutants of the function or the file, that are the nearest, and the
quickest.

To know which these are, all tests run once with a probe around each condition.

What runs while modules are imported is no more to be changed then. Such mutants get an interpreter
of their own, which loads the changed module instead of the file.
"""

from __future__ import annotations

import builtins
import functools
import gc
import importlib.abc
import importlib.machinery
import inspect
import itertools
import json
import math
import os
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import _lru_cache_wrapper as _Cache  # noqa: N812 - it is a class
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple

import pytest
from coverage import Coverage
from tools.mutant_finder import PACKAGE, PROBE, ROOT, Mutant, mutated, probed, source_of

WORK: Final = ROOT / "build" / "mutants"
PROFILE: Final = "ci"
OPTIONS: Final = (
    "-q", "-s", "-c", str(ROOT / "pyproject.toml"), "-n", "0", "-p", "no:cacheprovider",
    "-m", "not long", "--no-header", "--no-summary", "-o", "tmp_path_retention_policy=none",
    f"--hypothesis-profile={PROFILE}",
)  # fmt: skip

LIMIT_S: Final = 2.0
LIMIT_TIMES: Final = 10
"""A test goes on for ever if it takes longer than 2 s and ten times as long as without a mutant."""
FRESH_S: Final = 300
MEMORY_MAX: Final = 4 << 30
_NEAREST_IS_WORTH: Final = 5
FAILED: Final = 1
BROKEN: Final = (70, pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED)
"""Exit codes: a test failed, as pytest says it; no mutant can make these."""


class Trial(NamedTuple):
    """What became of one mutant."""

    mutant: Mutant
    is_noticed: bool
    by: str
    """The test that failed; empty where none did, or it did not end."""


class Effort(NamedTuple):
    """How much is done."""

    jobs: int
    """Processes at a time."""

    seconds_max: float = math.inf
    """For one mutant: it lives if no test has failed by then."""


Nearest = Callable[[str], list[str]]
"""The test files for a source file, those that are nearest first."""


def path_of(file: str) -> str:
    """Where a source file is."""
    return str(PACKAGE / file)


def try_all(
    mutants: Sequence[Mutant], nearest: Nearest, effort: Effort, told: Callable[[Trial], None]
) -> None:
    """Try each, and tell what became of it as it is known."""
    files = sorted({mutant.file for mutant in mutants})
    WORK.mkdir(parents=True, exist_ok=True)
    tests = dict.fromkeys(test for file in files for test in nearest(file))
    coverage = Coverage(data_file=None, config_file=False, include=list(map(path_of, files)))
    coverage.start()
    trials = _Trials(coverage, mutants, nearest, effort, told)
    code = pytest.main([*OPTIONS, *tests], plugins=[trials])
    if not trials.is_done:
        raise SystemExit(f"pytest ended with {code}; run {' '.join(tests)} first")


class _Trials:
    """A plugin of pytest that runs the chosen tests once for each mutant."""

    def __init__(
        self, coverage: Coverage, mutants: Sequence[Mutant], nearest: Nearest, effort: Effort,
        told: Callable[[Trial], None],
    ) -> None:  # fmt: skip
        self._coverage, self._mutants, self._told = coverage, mutants, told
        self._jobs, self._seconds_max = effort
        self._ranks: dict[str, dict[str, int]] = {
            file: {test: rank for rank, test in enumerate(nearest(file))}
            for file in {mutant.file for mutant in mutants}
        }
        self._items: dict[str, pytest.Item] = {}
        self._seconds: dict[str, float] = {}
        self._reaching: dict[str, set[str]] = defaultdict(set)
        self._bites: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        """By file, and by file and function, how many of its mutants a test has noticed."""
        self._failed: str | None = None
        self._functions: dict[tuple[str, str], list[FunctionType]] = {}
        self._caches: list[_Cache[Any]] = []
        self.is_done = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Smaller examples of what fails are not looked for."""
        from hypothesis import Phase, settings  # pytest loads it

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile(PROFILE, settings.get_profile(PROFILE), phases=phases)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep which test failed."""
        if report.failed:
            self._failed = report.nodeid

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests once as they are, then for each mutant."""
        self._coverage.stop()
        at_import = {
            (file, line)
            for file in self._ranks
            for line in self._coverage.get_data().lines(path_of(file)) or ()
        }
        self._items = {item.nodeid: item for item in session.items}
        gc.unfreeze()  # tests/conftest.py has hidden what was imported
        self._functions = functions_of_package()
        # What an earlier test has left there keeps a test from reaching what it tests.
        self._caches = [one for one in gc.get_objects() if type(one) is _Cache]
        gc.collect()
        gc.freeze()
        self._measure()
        waiting = list(self._mutants)
        running: dict[int, tuple[Mutant, int]] = {}
        while waiting or running:
            while waiting and len(running) < self._jobs:
                mutant = waiting.pop(0)
                has_run = any((mutant.file, line) in at_import for line in mutant.lines)
                pid, said = self._begin(mutant, is_fresh=has_run)
                running[pid] = mutant, said
            pid, status = os.wait()
            self._ended(*running.pop(pid), status)
        self.is_done = True
        return True

    def _ended(self, mutant: Mutant, said: int, status: int) -> None:
        with os.fdopen(said, encoding="utf-8") as pipe:
            by = pipe.read()
        if os.waitstatus_to_exitcode(status) in BROKEN:
            raise SystemExit(f"the tool itself cannot try {mutant}")
        if by:
            self._bites[mutant.file, mutant.where][by] += 1
            self._bites[mutant.file, ""][by] += 1
        self._told(Trial(mutant, status != 0, by))

    def _chosen(self, mutant: Mutant) -> list[str]:
        """The tests that reach a mutant, in the order in which they are tried."""
        here, near = self._bites[mutant.file, mutant.where], self._bites[mutant.file, ""]
        ranks = self._ranks[mutant.file]

        def worth(test: str) -> float:
            """How likely it notices one, for its time."""
            rank = ranks.get(str(ROOT / test.partition("::")[0]), len(ranks))
            bites = 1 + near[test] + 9 * here[test]
            return bites * (_NEAREST_IS_WORTH if rank == 0 else 1) / (self._seconds[test] + 0.01)

        found = sorted(self._reaching[mutant.place], key=worth, reverse=True)
        ends = itertools.accumulate(self._seconds[test] for test in found)
        within = [test for test, end in zip(found, ends, strict=True) if end <= self._seconds_max]
        return within or found[:1]

    def _measure(self) -> None:
        """What each test reaches, and how long it takes. One that fails in a fork is left out."""
        tests = list(self._items)
        parts = [WORK / f"reached-{number}.json" for number in range(self._jobs)]
        for number, into in enumerate(parts):
            _in_fork(functools.partial(self._measure_part, tests[number :: self._jobs], into))
        if any(os.wait()[1] for _ in parts):
            raise SystemExit("tests do not end well in a fork")
        for part in parts:
            for test, seconds, reached in json.loads(part.read_text(encoding="utf-8")):
                self._seconds[test] = seconds
                for place in reached:
                    self._reaching[place].add(test)
        if not self._reaching:
            raise SystemExit("no test reaches any condition, which cannot be")

    def _measure_part(self, tests: list[str], into: Path) -> int:
        reached: set[str] = set()
        setattr(builtins, PROBE, reached.add)
        for file in self._ranks:
            change(file, probed(file), self._functions)
        found = []
        for test in tests:
            self._failed, began = None, time.monotonic()
            reached.clear()
            self._run(test)
            if self._failed is None:
                found.append((test, time.monotonic() - began, list(reached)))
        into.write_text(json.dumps(found), encoding="utf-8")
        return 0

    def _run(self, test: str, following: str = "") -> None:
        for cache in self._caches:
            cache.cache_clear()
        item = self._items[test]
        after = self._items[following] if following else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)

    def _begin(self, mutant: Mutant, *, is_fresh: bool) -> tuple[int, int]:
        """The process that tries one, and where it says which test failed."""
        said, says = os.pipe()
        try_it = self._try_fresh if is_fresh else self._try
        pid = _in_fork(functools.partial(try_it, mutant, says))
        os.close(says)
        return pid, said

    def _try(self, mutant: Mutant, says: int) -> int:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
        tests = self._chosen(mutant)
        change(mutant.file, changed(mutant), self._functions)
        for test, following in itertools.pairwise([*tests, ""]):
            limit = max(LIMIT_S, self._seconds[test] * LIMIT_TIMES)
            signal.setitimer(signal.ITIMER_REAL, limit)
            try:
                self._run(test, following)
            except BaseException:  # noqa: BLE001 - whatever ends pytest is a notice too
                self._failed = test
            if self._failed:
                os.write(says, self._failed.encode())
                return FAILED
        return 0

    def _try_fresh(self, mutant: Mutant, says: int) -> int:
        """In an interpreter that imports the changed module."""
        tests = self._chosen(mutant) or list(self._ranks[mutant.file])
        source = changed(mutant).decode()
        task = WORK / f"fresh-{os.getpid()}.json"
        task.write_text(json.dumps([mutant.module, path_of(mutant.file), source, tests]))
        signal.alarm(FRESH_S)
        os.chdir(ROOT)
        os.execv(sys.executable, [sys.executable, "-m", "tools.mutant_trials", str(task)])


def _in_fork(work: Callable[[], int]) -> int:
    """Start a process that does it, without output, and ends with what it returns."""
    pid = os.fork()
    if pid:
        return pid
    code = BROKEN[0]
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nothing, stream)
        code = work()
    finally:
        os._exit(code)


def functions_of_package() -> dict[tuple[str, str], list[FunctionType]]:
    """All functions of EscrowMQ that are loaded, by file and by what names their code."""
    found: dict[tuple[str, str], list[FunctionType]] = defaultdict(list)
    for one in gc.get_objects():
        if type(one) is FunctionType and one.__code__.co_filename.startswith(str(PACKAGE)):
            found[one.__code__.co_filename, _name(one.__code__)].append(one)
    return found


def _name(code: CodeType) -> str:
    return f"{code.co_qualname}:{code.co_firstlineno}"


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Of the functions of a module and of its classes; each has its inner functions with it."""
    for one in code.co_consts:
        if isinstance(one, CodeType):
            if one.co_flags & inspect.CO_OPTIMIZED:
                yield one
            else:
                yield from _codes(one)


def changed(mutant: Mutant) -> bytes:
    """The source of its file with a mutant."""
    return mutated(source_of(path_of(mutant.file)), mutant)


def change(file: str, source: bytes, functions: dict[tuple[str, str], list[FunctionType]]) -> None:
    """Let all calls of a file's functions run what another source says."""
    path = path_of(file)
    old = {_name(code): code for code in _codes(compile(source_of(path), path, "exec"))}
    for code in _codes(compile(source, path, "exec")):
        if code != old[_name(code)]:
            for function in functions.get((path, _name(code)), ()):
                function.__code__ = code


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module from a text."""

    def __init__(self, module: str, path: str, source: str) -> None:
        self._module, self._path, self._source = module, path, source

    def pytest_configure(self) -> None:
        """Come before what rewrites assertions, which finds the file."""
        assert self._module not in sys.modules
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._module:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, origin=self._path)

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = self._path
        exec(compile(self._source, self._path, "exec"), module.__dict__)


def _fresh(task: str) -> int:
    module, path, source, tests = json.loads(Path(task).read_text(encoding="utf-8"))
    Path(task).unlink()
    return pytest.main([*OPTIONS, "-x", *tests], plugins=[_Changed(module, path, source)])


if __name__ == "__main__":
    sys.exit(_fresh(sys.argv[1]))
