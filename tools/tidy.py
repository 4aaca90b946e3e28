"""Rules that no linter knows: length of files and functions, what must not be in the project, tests
where one finds them, existing paths and plain words in docs and docstrings (docs/writing.md).

Prints each breach; the exit code is 1 if there is one."""

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


ROOMS = sorted(path.parent.name for path in ROOT.glob("src/escrowmq/*/__init__.py"))
FOLDERS = ("benchmarks", "docs", "examples", "tests", "tools")

NAMED_PATH = re.compile(
    r"(?<![\w./:@-])((?:" + "|".join([*ROOMS, *FOLDERS]) + r")/[\w./-]*\w)(?![\w@:]|\.\.|/?[*<{])"
)
"""A path below a room or a folder of the project. One followed by `...` or `*` names several."""

NAMED_OBJECT = re.compile(r"(?<![\w./])((?:" + "|".join(ROOMS) + r")(?:\.[a-z_0-9]+)+)\.([A-Z]\w*)")
"""A class by its module, as `base.core.Core`."""

DIALECT = re.compile(
    r"\bcomes? again\b|\bcame again\b|\bbut for\b|\bin vain\b|\(see there\)|\bwhom?ever\b"
    r"|\bgoes before\b|\b(?:is|are) away\b"
    r"|\A(?:The same\b(?! \w)|One of them\b|See above\b|Whom\b|Whose\b)"
)
"""Phrases of docs/writing.md that hardly ever mean anything else. The last line is for the start of
a docstring, which must stand alone in a tooltip."""

PAGES = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "docs/*.md")
SHOWS_DIALECT = "docs/writing.md"


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


def missing_paths(text: str) -> Iterator[tuple[int, str]]:
    """Files and classes that a text names and that do not exist, each with its position."""
    for match in NAMED_PATH.finditer(text):
        stem, _, name = match[1].rpartition(".")
        places = [ROOT / match[1], *(ROOT / part / match[1] for part in ("src/escrowmq", "docs"))]
        files = [place.with_name(f"{place.name}.py") for place in places]
        module = ROOT / "src" / "escrowmq" / f"{stem}.py"
        is_member = bool(stem) and module.is_file() and name in module.read_text(encoding="utf-8")
        if not is_member and not any(place.exists() for place in places + files):
            yield match.start(), f"{match[1]!r} names no file"
    for match in NAMED_OBJECT.finditer(text):
        module = ROOT / "src" / "escrowmq" / (match[1].replace(".", "/") + ".py")
        if not module.is_file() or f"class {match[2]}" not in module.read_text(encoding="utf-8"):
            yield match.start(), f"{match[0]!r} names no class"


def loose_rows(text: str) -> Iterator[int]:
    """Positions of table rows that stand outside a table, in Markdown."""
    prose = re.sub(r"(?ms)^ *```.*?^ *```", lambda code: " " * len(code[0]), text)
    for block in re.finditer(r"(?m)(?:^\|.*\n?)+", prose):
        if not re.match(r".*\n\|[-:| ]+\|$", block[0], re.MULTILINE):
            yield block.start()


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring, those of attributes among them."""
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value.lineno, value.value


LOGS = frozenset({"debug", "info", "warning", "error", "critical", "exception", "log"})
PLACE = re.compile(r"%(?:%|[-+ #0]*\d*(?:\.\d+)?[sdrfxigeoc])")


def odd_logs(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of each log line with more arguments than places, or fewer. Such a line is an
    error only once it is written."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr not in LOGS:
            continue
        said = node.args[node.func.attr == "log" :]
        if not said:
            continue
        first, given = said[0], said[1:]
        if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
            continue
        wanted = sum(found != "%%" for found in PLACE.findall(first.value))
        if wanted != len(given) and not any(isinstance(one, ast.Starred) for one in given):
            yield node.lineno, first.value


def untrue_words() -> Iterator[str]:
    """What is wrong in the words of docs and docstrings."""
    for page in sorted(path for pattern in PAGES for path in ROOT.glob(pattern)):
        name, text = str(page.relative_to(ROOT)), page.read_text(encoding="utf-8")
        found = [
            *missing_paths(text),
            *((at, "a row outside its table") for at in loose_rows(text)),
        ]
        if name != SHOWS_DIALECT:
            found += [(match.start(), f"{match[0]!r}") for match in DIALECT.finditer(text)]
        for at, fault in found:
            yield f"{name}:{text.count(chr(10), 0, at) + 1}: {fault}"
    for source in sorted((ROOT / "src" / "escrowmq").rglob("*.py")):
        name, tree = str(source.relative_to(ROOT)), ast.parse(source.read_text(encoding="utf-8"))
        for line, text in odd_logs(tree):
            yield f"{name}:{line}: {text!r} has other arguments than places"
        for line, text in docstrings(tree):
            dialect = ((0, f"{match[0]!r} (docs/writing.md)") for match in DIALECT.finditer(text))
            for _, fault in (*missing_paths(text), *dialect):
                yield f"{name}:{line}: {fault}"


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
    breaches += untrue_words()
    for breach in breaches:
        print(breach)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
