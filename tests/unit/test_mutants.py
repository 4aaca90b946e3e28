"""tools/mutants.py: which changes it makes, and that each leaves a program."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tools import mutants

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
    monkeypatch.setattr(mutants, "PACKAGE", tmp_path)
    (tmp_path / "one.py").write_text(SOURCE, encoding="utf-8")
    return tmp_path


def test_conditions_are_taken_out_and_comparisons_are_off_by_one(package: Path) -> None:
    assert [(one.kind, one.text) for one in mutants.mutants_of("one.py")] == [
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
    seen = {mutants.mutated(source, one) for one in mutants.mutants_of("one.py")}
    assert len(seen) == 10
    for data in seen:
        ast.parse(data)
        assert data.count(b"\n") == source.count(b"\n")


def test_tests_of_a_file_are_its_own_first_then_those_that_name_it() -> None:
    plan = mutants.Plan()
    found = [Path(one).name for one in plan.tests_of("broker/fast/short_ends.py")]
    assert found[0] == "test_short_ends.py"
    assert "test_rules.py" in found
    assert len(found) == len(set(found))


def test_every_mutant_that_is_accepted_is_one_and_has_a_reason() -> None:
    plan = mutants.Plan()
    known = {one.key for file in plan.files for one in mutants.mutants_of(file)}
    assert plan.accepted.keys() <= known
    assert all(plan.accepted.values())
