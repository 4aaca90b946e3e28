"""Finds what `tools/mutants.py` changes: conditions and comparisons of a source file."""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "src" / "escrowmq"

PROBE: Final = "_mutant_is_reached"

NEXT_TO: Final[dict[type[ast.cmpop], str]] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.NotEq: "<", ast.Eq: "<=",
}  # fmt: skip
"""What stands in place of a comparison."""


class Mutant(NamedTuple):
    """One change of one file."""

    file: str
    where: str
    """The function."""

    kind: str
    text: str
    """What is changed, on one line."""

    begin: int
    end: int
    """Bytes of the source that are replaced."""

    by: str
    """What stands there instead, with as many line ends."""

    line: int
    last_line: int

    @property
    def lines(self) -> range:
        """Where it stands."""
        return range(self.line, self.last_line + 1)

    @property
    def place(self) -> str:
        """What is evaluated there, for the mutants of all kinds."""
        return f"{self.file}:{self.begin}:{self.end}"

    @property
    def module(self) -> str:
        """What it is imported as."""
        return "escrowmq." + ".".join(Path(self.file).with_suffix("").parts)

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What names it in `mutants.toml`: no line number, which the next change moves."""
        return self.file, self.where, self.kind, self.text

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.where}: {self.kind}: {self.text}"


class _Finder(ast.NodeVisitor):
    """Finds the mutants of one file."""

    def __init__(self, file: str, source: bytes) -> None:
        self._file, self._source = file, source
        self._names: list[str] = []
        self.found: list[Mutant] = []
        lines = source.splitlines(keepends=True)
        self._begins = [0]
        for line in lines:
            self._begins.append(self._begins[-1] + len(line))

    def _span(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begin = self._begins[node.lineno - 1] + node.col_offset
        return begin, self._begins[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.expr) -> str:
        return self._source[slice(*self._span(node))].decode()

    def _fix(self, kind: str, node: ast.expr, value: str) -> None:
        """Give a condition one value. Its names stay, so that closures keep their variables."""
        self._add(kind, node, f"({value} ({self._text(node)}))")

    def _add(self, kind: str, node: ast.expr, by: str) -> None:
        begin, end = self._span(node)
        text = " ".join(self._text(node).split())
        where = ".".join(self._names)
        last = node.end_lineno or node.lineno
        self.found.append(Mutant(self._file, where, kind, text, begin, end, by, node.lineno, last))

    def _visit_named(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._names.append(node.name)
        self.generic_visit(node)
        self._names.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_named(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_named(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_named(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        """What is asserted cannot be otherwise."""

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        neutral = "True or" if isinstance(node.op, ast.And) else "False and"
        for operand in node.values:
            self._fix("operand out", operand, neutral)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self._fix("never", node.test, "False and")
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        (first, *more), op = node.ops, node.ops[0]
        by = NEXT_TO.get(type(first))
        is_number = not any(
            isinstance(side, ast.Constant) and isinstance(side.value, str | bytes)
            for side in (node.left, *node.comparators)
        )
        if by is not None and is_number and not more:
            left, right = self._text(node.left), self._text(node.comparators[0])
            if not isinstance(op, ast.Eq | ast.NotEq) or not _is_enum(node.comparators[0]):
                lines = (self._text(node).count("\n") - (left + right).count("\n")) * "\n"
                self._add(f"compared by {by}", node, f"(({left}) {by} ({right}){lines})")
        self.generic_visit(node)


def _is_enum(node: ast.expr) -> bool:
    """Whether it names one of several values, of which none is more than another."""
    return isinstance(node, ast.Attribute) and node.attr.isupper()


@functools.cache
def source_of(path: str) -> bytes:
    """What a file said when it was asked first: it may be edited while mutants are tried."""
    return Path(path).read_bytes()


def mutants_of(file: str) -> list[Mutant]:
    """All of one source file."""
    source = source_of(str(PACKAGE / file))
    finder = _Finder(file, source)
    finder.visit(ast.parse(source))
    return finder.found


def mutated(source: bytes, mutant: Mutant) -> bytes:
    """The source with the change. Line numbers stay."""
    return source[: mutant.begin] + mutant.by.encode() + source[mutant.end :]


def probed(file: str) -> bytes:
    """The source of a file that calls `PROBE` with each place of mutants that is evaluated."""
    source = source_of(str(PACKAGE / file))
    spans = {(one.begin, one.end, one.place) for one in mutants_of(file)}
    pieces = [(begin, -end, f"({PROBE}({place!r}) or (") for begin, end, place in spans]
    pieces += [(end, -len(source), "))") for _, end, _ in spans]
    found, at = b"", 0
    for where, _, piece in sorted(pieces):
        found += source[at:where] + piece.encode()
        at = where
    return found + source[at:]
