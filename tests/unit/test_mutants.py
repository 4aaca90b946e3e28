"""tools/mutants.py: which changes it makes, that each leaves a program, and what notices it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from tools import mutant_finder, mutants

ROOT: Final = Path(__file__).resolve().parents[2]

SOURCE = """
def judge(given: int, name: str, kind: object) -> bool:
    assert given > 7
    if given > 3 and (name == "ä" or
                      given != 5):
        return True
    return kind == Kind.ONE and given == 2
"""


@pytest.fixture(name="package")
def make_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(mutant_finder, "PACKAGE", tmp_path)
    (tmp_path / "one.py").write_text(SOURCE, encoding="utf-8")
    return tmp_path


def test_conditions_are_taken_out_and_comparisons_are_off_by_one(package: Path) -> None:
    assert [(one.kind, one.text) for one in mutant_finder.mutants_of("one.py")] == [
        ("never", 'given > 3 and (name == "ä" or given != 5)'),
        ("operand out", "given > 3"),
        ("operand out", 'name == "ä" or given != 5'),
        ("compared by >=", "given > 3"),
        ("operand out", 'name == "ä"'),
        ("operand out", "given != 5"),
        ("compared by <", "given != 5"),
        ("operand out", "kind == Kind.ONE"),
        ("operand out", "given == 2"),
        ("compared by <=", "given == 2"),
    ]


def test_each_mutant_is_another_program_of_as_many_lines(package: Path) -> None:
    source = (package / "one.py").read_bytes()
    seen = {mutant_finder.mutated(source, one) for one in mutant_finder.mutants_of("one.py")}
    assert len(seen) == 10
    for data in seen:
        ast.parse(data)
        assert data.count(b"\n") == source.count(b"\n")


def test_tests_of_a_file_are_its_own_first_then_those_that_name_it() -> None:
    plan = mutants.Plan()
    found = [Path(one).name for one in plan.tests_of("broker/fast/fast_ends.py")]
    assert found[0] == "test_fast_ends.py"
    assert "test_rules.py" in found
    assert len(found) == len(set(found))


def test_every_mutant_that_is_accepted_is_one_and_has_a_reason() -> None:
    plan = mutants.Plan()
    known = {one.key for file in plan.files for one in mutant_finder.mutants_of(file)}
    assert plan.accepted.keys() <= known
    assert all(plan.accepted.values())


TRIED = """
def is_small(number):
    if number < 0:
        return False
    return number < 10

def above_three(number):
    while True:
        if number > 3:
            return number
        number += 1

def never_called(number):
    return number or 5

def _limit(number):
    if number > 5:
        return 5
    return number

LIMIT = _limit(9)
"""

TESTS = """
import escrowmq
escrowmq.__path__.append({folder!r})
from escrowmq.tried import LIMIT, above_three, is_small

def test_small_numbers_are_small():
    assert is_small(3)
    assert not is_small(10)

def test_three_is_reached():
    assert above_three(0) == 4

def test_limit():
    assert LIMIT == 5
"""

TRY = """
import json, sys
from pathlib import Path
from tools import mutant_finder, mutant_trials

folder = Path(sys.argv[1])
mutant_finder.PACKAGE = mutant_trials.PACKAGE = folder
mutant_trials.WORK = folder / "work"
trials = []
mutants = mutant_finder.mutants_of("tried.py")
tests, effort = [str(folder / "test_tried.py")], mutant_trials.Effort(2)
mutant_trials.try_all(mutants, lambda file: tests, effort, trials.append)
found = [(str(one.mutant), one.is_noticed, one.by.partition("::")[2]) for one in trials]
(folder / "found.json").write_text(json.dumps(found))
"""


def test_mutant_is_noticed_by_a_test_that_fails_or_does_not_end(tmp_path: Path) -> None:
    (tmp_path / "tried.py").write_text(TRIED)
    (tmp_path / "test_tried.py").write_text(TESTS.format(folder=str(tmp_path)))
    command = [sys.executable, "-c", TRY, str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    found = json.loads((tmp_path / "found.json").read_text())
    assert sorted(found) == [
        ["tried.py:14 never_called: operand out: 5", False, ""],
        ["tried.py:14 never_called: operand out: number", False, ""],
        ["tried.py:17 _limit: compared by >=: number > 5", False, ""],
        ["tried.py:17 _limit: never: number > 5", True, ""],
        ["tried.py:3 is_small: compared by <=: number < 0", False, ""],
        ["tried.py:3 is_small: never: number < 0", False, ""],
        ["tried.py:5 is_small: compared by <=: number < 10", True, "test_small_numbers_are_small"],
        ["tried.py:9 above_three: compared by >=: number > 3", True, "test_three_is_reached"],
        ["tried.py:9 above_three: never: number > 3", True, ""],
    ]
