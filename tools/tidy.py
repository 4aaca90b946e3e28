"""House rules that no linter knows: file and function length, what must not stand in the project,
and that every source file has its tests where one finds them. Prints each breach; the exit code is
1 when there is one."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60

GENERATED = Path("proxy/gen")

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


def does_something(path: Path) -> bool:
    """Whether a file has a function with a body: what only names values and shapes has none."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not all(
            isinstance(part, ast.Pass)
            or (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
            for part in node.body
        ):
            return True
    return False


def misplaced_tests() -> Iterator[str]:
    """Source files whose tests nobody finds, and what is wrong in the list of those that have no
    test file of their own name. That what it names is so is seen by `make coverage`."""
    package, tests = ROOT / "src" / "escrowmq", ROOT / "tests"
    where = tomllib.loads((tests / "where.toml").read_text(encoding="utf-8"))
    for source in where["held"].keys() & where["elsewhere"].keys():
        yield f"tests/where.toml: {source} stands there twice"
    listed = where["held"] | where["elsewhere"]
    for source, names in listed.items():
        for name in names or [""]:
            if not (tests / name).is_file() or not Path(name).name.startswith("test_"):
                yield f"tests/where.toml: {source}: {name!r} is no test file"
    for path in package.rglob("*.py"):
        source = path.relative_to(package)
        if path.name.startswith("__") or GENERATED in source.parents:
            continue
        mirror = tests / "unit" / source.parent / f"test_{source.name}"
        is_listed = listed.pop(str(source), None) is not None
        if mirror.exists() == is_listed and (is_listed or does_something(path)):
            whose = "is listed, and needs not be:" if is_listed else "has no test file, and is not"
            yield f"tests/where.toml: {source} {whose} {mirror.relative_to(ROOT)}"
    for source in listed:
        yield f"tests/where.toml: there is no {source}"


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
    breaches += misplaced_tests()
    for breach in breaches:
        print(breach)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
