"""Examples in CI depend on nothing but the test that they are for (tests/harness/examples.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from tests.harness import examples

ROOT = Path(__file__).parents[3]

DRAW = f"""
import {{imported}}
from hypothesis import given, settings, strategies as st
from tests.harness import examples

examples.register_profiles()
settings.load_profile("{examples.CI}")
examples.forget_constants()

@given(st.integers(), st.text())
def draw(number, text):
    print(number, ascii(text))

draw()
"""


def output_of(program: str, variables: Mapping[str, str] = MappingProxyType({})) -> str:
    """What a Python process of its own prints."""
    command = [sys.executable, "-c", program]
    environment = {**os.environ, **variables}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def drawn(imported: str) -> str:
    """The examples of a process that has also imported something."""
    return output_of(DRAW.format(imported=imported))


def test_examples_in_ci_are_the_same_whatever_else_is_imported() -> None:
    found = drawn("sys")
    assert found.count("\n") >= 100
    assert drawn("escrowmq.base.codes") == found


IS_FIXED = f"""
from hypothesis import settings
from tests.harness import examples

examples.register_profiles()
for name in ("escrowmq", "quick", "search", "{examples.CI}"):
    print(name, settings.get_profile(name).derandomize)
"""


@pytest.mark.parametrize("variable", ["CI", "GITHUB_ACTIONS", "NOBODY_KNOWS_IT"])
def test_people_search_by_chance_wherever_they_are(variable: str) -> None:
    found = output_of(IS_FIXED, {variable: "true"})
    assert found == f"escrowmq False\nquick False\nsearch False\n{examples.CI} True\n"
