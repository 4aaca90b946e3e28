"""House rules that no linter knows: file and function length, and what must not stand in the
project. Prints each breach; the exit code is 1 when there is one."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60

LONGER: dict[str, str] = {}
"""Files that may be longer, each with its reason."""

HOSTS = ("pypi", "files.pythonhosted", "proxy.golang", "repo1.maven", "registry.npmjs")
"""Hosts of package registries without their end: not even this file may name one."""

FORBIDDEN = re.compile(
    r"(?<![A-Za-z0-9_.])/(work|farm)/[a-z]|^--(index[-]url|find[-]links)|"
    + "|".join(re.escape(name) + r"\.org\b" for name in HOSTS),
    re.MULTILINE,
)


def tracked() -> list[Path]:
    """The project's files, those that are not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [path for line in listed.splitlines() if (path := ROOT / line).is_file()]


def long_parts(path: Path, text: str) -> Iterator[str]:
    """Files and functions over their bound."""
    name = str(path.relative_to(ROOT))
    count = text.count("\n")
    if count > FILE_LINES_MAX and name not in LONGER:
        yield f"{name}: {count} lines, {FILE_LINES_MAX} allowed"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{name}:{node.lineno}: {node.name} has {lines} lines"


def main() -> int:
    """Check every file."""
    breaches: list[str] = []
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if path != Path(__file__).resolve():
            for match in FORBIDDEN.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                breaches.append(
                    f"{path.relative_to(ROOT)}:{line}: {match[0]!r} must not stand here"
                )
        if path.suffix == ".py":
            breaches += long_parts(path, text)
        if path.suffix == ".py" and re.search(r"#\s*TODO(?!\(#\d+\))", text):
            breaches.append(f"{path.relative_to(ROOT)}: a TODO without an issue, TODO(#7)")
    for breach in breaches:
        print(breach)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
