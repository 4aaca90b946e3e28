"""Which modules a program loads, without a clock."""

from __future__ import annotations

import subprocess
import sys


def loaded(program: str) -> set[str]:
    """The modules that are there when a bare interpreter has run a program, beside its own."""
    code = f"import sys; before = {{*sys.modules}}\n{program}\nprint(*({{*sys.modules}} - before))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def outsiders(modules: set[str]) -> set[str]:
    """Others' packages among them, those of the standard library aside."""
    tops = {name.partition(".")[0] for name in modules}
    return tops - {*sys.stdlib_module_names, "escrowmq"}
