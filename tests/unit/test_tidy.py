"""tools/tidy.py sees wrong paths and class names, rows outside tables, and dialect."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

_TOOL = Path(__file__).resolve().parents[2] / "tools" / "tidy.py"
_SPEC = importlib.util.spec_from_file_location("tidy", _TOOL)
assert _SPEC is not None
assert _SPEC.loader is not None
tidy = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(tidy)


@pytest.mark.parametrize(
    "text",
    [
        "`store/record_run`, codec/frame.py and store/record_run.QueueTail",
        "the broker/on_... files, `broker/on_*`, tests/unit/<room>/test_<name>.py",
        "base.core.Core, `acl.request_needs.Need`, docs/formats.md, tests/golden",
        "CN:name=a/b, spiffe://store/nowhere, /data/store/nowhere",
    ],
)
def test_names_of_what_exists_are_let_be(text: str) -> None:
    assert list(tidy.missing_paths(text)) == []


@pytest.mark.parametrize(
    "name",
    ["store/nowhere", "broker/nothing.py", "store/store.Nobody", "base.ports.Core", "docs/no.md"],
)
def test_a_name_of_nothing_is_found(name: str) -> None:
    ((at, fault),) = tidy.missing_paths(f"see {name}, please")
    assert at == len("see ")
    assert name in fault


def test_a_row_outside_its_table_is_found() -> None:
    table = "| a | b |\n|---|---|\n| 1 | 2 |\n"
    assert list(tidy.loose_rows(f"text\n\n{table}\n```\n| no table |\n```\n")) == []
    assert list(tidy.loose_rows(f"{table}\n| 3 | 4 |\n\ntext")) == [len(table) + 1]


@pytest.mark.parametrize(
    "text",
    [
        "Whoever asks comes again",
        "all but for one",
        "it waits in vain",
        "a broker that is away",
        "The same, later.",
        "One of them.",
        "See above.",
        "Whose it is.",
    ],
)
def test_dialect_is_found(text: str) -> None:
    assert tidy.DIALECT.search(text)


@pytest.mark.parametrize(
    "text",
    ["The same statement for one schema.", "far away from the disk", "all but one"],
)
def test_plain_words_are_let_be(text: str) -> None:
    assert not tidy.DIALECT.search(text)


def test_docstrings_of_attributes_count() -> None:
    source = '"""Module."""\nA = 1\n"""Attribute."""\n\n\ndef f():\n    """Function."""\n'
    assert [text for _, text in tidy.docstrings(ast.parse(source))] == [
        "Module.",
        "Attribute.",
        "Function.",
    ]


@pytest.mark.parametrize(
    "line",
    [
        'log.info("nothing")', 'log.info("%s of %d, 100 %%", a, 2)', 'log.log(level, "%s", a)',
        'log.warning("%s and %s", *both)', "log.error(text)", "log.exception()",
    ],
)  # fmt: skip
def test_a_log_line_that_can_be_written_is_let_be(line: str) -> None:
    assert list(tidy.odd_logs(ast.parse(line))) == []


@pytest.mark.parametrize(
    "line", ['log.info("%s", a, b)', 'log.info("%s of %d", a)', 'log.log(level, "none", a)']
)
def test_a_log_line_with_other_arguments_than_places_is_found(line: str) -> None:
    ((number, _),) = tidy.odd_logs(ast.parse(f"\n{line}"))
    assert number == 2
