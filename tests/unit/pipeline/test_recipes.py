"""The recipes of docs/pipeline.md: what is code compiles, and every command is understood."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from escrowmq.cli.main import build_parser

PAGE = Path(__file__).parents[3] / "docs" / "pipeline.md"


def test_code_compiles() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        compile(block, PAGE.name, "exec")


def test_commands_are_understood() -> None:
    text = re.sub(r"\\\n\s+", "", PAGE.read_text())
    found = re.findall(
        r"(?:escrowmq|job\.py) (pipeline (?:reconcile|funnel|export|replay) -n .*)", text
    )
    assert len(found) >= 9
    for line in found:
        command = re.split(r" >/dev/null|\"$", line)[0]
        words = shlex.split(command)
        chosen = build_parser().parse_args(words)
        assert chosen.verb == "pipeline"
