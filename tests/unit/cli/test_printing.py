"""What the command line prints (cli/printing.py)."""

from __future__ import annotations

import ast
import io
import json
import sys
from pathlib import Path

import pytest

from escrowmq import cli
from escrowmq.cli.cluster_verbs import print_items
from escrowmq.cli.printing import print_error_line, print_json, print_line

HOSTILE = "a\tb\nc\x1b[2J\u202ed\x9b\ud800"
SHOWN = "a\\tb\\nc\\x1b[2J\\u202ed\\x9b\\ud800"


def test_cells_have_no_tabs_and_no_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_line("topic", HOSTILE, 7)
    assert capsys.readouterr().out == f"topic\t{SHOWN}\t7\n"
    print_error_line(f"no topic {HOSTILE}")
    assert capsys.readouterr().err == f"no topic {SHOWN}\n"


@pytest.mark.parametrize("is_json", [False, True])
def test_tables_are_a_line_an_item(capsys: pytest.CaptureFixture[str], is_json: bool) -> None:
    name = HOSTILE[:-1]
    print_items([name, ""], is_json=is_json, columns=["NAME"], row=lambda one: (one,))
    lines = capsys.readouterr().out.splitlines()
    assert all(line.isprintable() for line in lines)
    if is_json:
        assert [json.loads(line) for line in lines] == [name, ""]
    else:
        assert lines == ["NAME", SHOWN.removesuffix("\\ud800"), "-"]


def test_a_terminal_of_another_alphabet_is_shown_what_it_can_show(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1"))
    print_line("é订")
    print_json("订")
    assert raw.getvalue().decode("latin-1") == 'é\\u8ba2\n"\\u8ba2"\n'


@pytest.mark.parametrize("path", sorted(Path(cli.__path__[0]).glob("*.py")), ids=lambda p: p.name)
def test_no_verb_prints_otherwise(path: Path) -> None:
    """But for JSON of ASCII alone, and the version."""
    calls = [
        ast.unparse(node)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "sys.stdout.write")
    ]
    allowed = {"printing.py": ["print"], "store.py": ["print(json.dumps(found, indent=2))"]}
    left = [call for call in calls if not call.startswith(tuple(allowed.get(path.name, ["#"])))]
    assert left == []
