"""Finds modules that import one another in a circle, types and late imports among them: each of
them can only be understood with all the others. Prints each circle; the exit code is 1 when there
is one that is not known."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).resolve().parent.parent / "src"

KNOWN: dict[frozenset[str], str] = {}
"""Circles that may be there, each with its reason. One that is gone must be taken out."""


def imported(module: str, path: Path, modules: set[str]) -> set[str]:
    """The modules of ours that a module names in imports, wherever they stand in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                found.add(inner if inner in modules else node.module)
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
    return (found & modules) - {module}


def circles(graph: dict[str, set[str]]) -> Iterator[set[str]]:
    """The sets of modules that reach one another."""
    reached = {module: _reach(graph, module) for module in graph}
    seen: set[str] = set()
    for module, others in reached.items():
        circle = {other for other in others if module in reached[other]}
        if len(circle) > 1 and module not in seen:
            seen |= circle
            yield circle


def _reach(graph: dict[str, set[str]], start: str) -> set[str]:
    found, open_ends = {start}, [start]
    while open_ends:
        for other in graph[open_ends.pop()] - found:
            found.add(other)
            open_ends.append(other)
    return found


def main() -> int:
    """Look at every module that ships."""
    paths = {
        ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"): path
        for path in (SRC / "escrowmq").rglob("*.py")
    }
    graph = {module: imported(module, path, set(paths)) for module, path in paths.items()}
    found = {frozenset(name.removeprefix("escrowmq.") for name in c) for c in circles(graph)}
    for circle in found - KNOWN.keys():
        print(f"these import one another: {', '.join(sorted(circle))}")
    for circle in KNOWN.keys() - found:
        print(f"no circle any more, take it out of the list: {', '.join(sorted(circle))}")
    return 1 if found != KNOWN.keys() else 0


if __name__ == "__main__":
    sys.exit(main())
