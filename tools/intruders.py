"""Finds writes into another object's fields: the rule that such a field keeps stands in two files
then, and a reader of the one does not know of the other. Prints each that is not known; the exit
code is 1 when there is one.

What counts: outside constructors, an assignment to a field of anything but `self`, when a class of
another file, and none of this one, keeps that field on itself. What does not: the fields of values
(structs, named tuples), which are there to be filled, and whatever was made in the same function.
It goes by the fields' names, as no types are known here: a name that a value has as well is passed
over."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "escrowmq"
GENERATED = PACKAGE / "proxy" / "gen"
VALUES = ("Struct", "NamedTuple", "TypedDict")

KNOWN: dict[str, tuple[set[str], str]] = {
    "broker/sends/batches.py": ({"long"}, "a long batch is what a peer has to go on with"),
    "broker/sends/log_puts.py": ({"put_failed_count"}, "one counts where a put failed"),
    "broker/access/quotas.py": ({"counted_for"}, "a peer is counted for by quotas alone"),
    "broker/requests/request_server.py": ({"long"}, "a peer has one long request, served here"),
    "client/consumer.py": ({"portal"}, "a message is of the face that handed it out"),
    "client/producer.py": ({"wants_all_brokers"}, "a wish of whoever opens the instance"),
    "client/consumer_state.py": (
        {"is_settled"},
        "lanes and tickets are its records; to be cut when reading is a core",
    ),
    "http2/connection.py": ({"last_id"}, "the number of the stream that is opened here"),
    "http2/outgoing_streams.py": (
        {"is_waiting", "left", "unsent_size"},
        "windows are used up once a frame, and a call for each would be felt",
    ),
    "net/link_table.py": ({"has_written", "last_active_ms"}, "marks of the look for idle links"),
    "net/shell.py": ({"last_active_ms"}, "once a piece that was read: no call for it"),
    "node/broker.py": ({"on_outcome"}, "what a process wants to be told"),
    "proxy/dialogue.py": ({"client", "credential", "is_stranger"}, "a call is made out here"),
    "proxy/standard_services.py": (
        {"on_end", "on_message"}, "what is to be done with a call's frames",
    ),
    "proxy/telemetry.py": (
        {"published_topics", "stream"}, "a client's stream is known where it is opened and closed",
    ),
    "testing/kit/world.py": ({"ends_to_lose"}, "the hand of a test"),
}  # fmt: skip
"""Files that may write into these fields of others, each with its reason. What is gone must be
taken out."""


class Fields:
    """Which file's classes keep which fields, and the names that values have."""

    def __init__(self) -> None:
        self.of_file: dict[str, set[str]] = defaultdict(set)
        self.kept: set[str] = set()
        self.of_values: set[str] = set()

    def note(self, file: str, node: ast.ClassDef) -> None:
        """A class."""
        declared = {
            target.id
            for part in node.body
            if isinstance(part, ast.Assign | ast.AnnAssign)
            for target in (part.targets if isinstance(part, ast.Assign) else [part.target])
            if isinstance(target, ast.Name)
        }
        on_self = {part.attr for part in written(node) if is_own(part)}
        self.of_file[file] |= declared | on_self
        if any(value in ast.unparse(base) for base in node.bases for value in VALUES):
            self.of_values |= declared
        else:
            self.kept |= on_self


def written(tree: ast.AST) -> Iterator[ast.Attribute]:
    """The fields into which something is put, or which are deleted."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node


def is_own(field: ast.Attribute) -> bool:
    """Whether it is one of whoever writes."""
    return isinstance(field.value, ast.Name) and field.value.id in ("self", "cls")


def writes(file: str, tree: ast.Module, fields: Fields) -> Iterator[tuple[str, int]]:
    """The fields of others that a file writes into, and where."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if function.name == "__init__":
            continue
        made = {
            target.id
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        anothers = fields.kept - fields.of_values - fields.of_file[file]
        for field in written(function):
            is_made = isinstance(field.value, ast.Name) and field.value.id in made
            if field.attr in anothers and not is_own(field) and not is_made:
                yield field.attr, field.lineno


def main() -> int:
    """Look at every file that ships."""
    trees = {
        str(path.relative_to(PACKAGE)): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
        if GENERATED not in path.parents
    }
    fields = Fields()
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                fields.note(file, node)
    breaches = 0
    for file, tree in trees.items():
        found = sorted(set(writes(file, tree, fields)), key=lambda write: write[1])
        known, _ = KNOWN.get(file, (set[str](), ""))
        for name, line in found:
            if name not in known:
                print(f"{file}:{line}: writes into `{name}`, a field of another file's class")
                breaches += 1
        for name in known - {name for name, _ in found}:
            print(f"tools/intruders.py: {file} does not write into `{name}`, take it out")
            breaches += 1
    for file in KNOWN.keys() - trees.keys():
        print(f"tools/intruders.py: there is no {file}")
        breaches += 1
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
