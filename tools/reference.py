"""Writes docs/reference from the docstrings: every public name with what it is called with, what it
gets its caller, and its examples.

    python tools/reference.py          # writes the pages
    python tools/reference.py --check  # exit code 1 when a page is not as it would be written

A test holds the committed pages equal to what this would write, another runs every example.
"""

from __future__ import annotations

import ast
import enum
import inspect
import re
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Final, get_args, get_origin

import escrowmq
import escrowmq.aio
from escrowmq import errors
from escrowmq.client.client_settings import ClientOptions
from escrowmq.client.consumer_settings import ConsumerOptions
from escrowmq.client.producer_settings import Listener, MessageFields, ProducerOptions
from escrowmq.integrations import dbapi, django, faststream, kombu, otel, sqlalchemy
from escrowmq.testing import Account, Broker, aio_delivery, delivery

FOLDER: Final = Path(__file__).resolve().parent.parent / "docs" / "reference"
_WRITTEN: Final = "<!-- Written by tools/reference.py from the docstrings; change those. -->"
_PROMPT: Final = re.compile(r"^>>> ", re.MULTILINE)
_WIDTH: Final = 88

Page = tuple[str, str, list[Any]]

INTERNAL: Final = {
    "add_database_check", "advance", "end_sends", "hand_over", "has_checks", "leave",
    "marked_messages", "must_defer_ack", "on_call_without_commit", "owner", "owner_for_decision",
    "remove_database_check", "unsettled_keys", "with_namespace", "without_namespace",
}  # fmt: skip
"""Methods that only this library calls."""

OF_FRAMEWORKS: Final = {
    kombu.Channel, kombu.Transport, faststream.EscrowMQPublisher, faststream.TestEscrowMQBroker,
    faststream.EscrowMQResponse, get_args(faststream.EscrowMQMessage)[0],
}  # fmt: skip
"""Classes most of whose methods a framework calls."""

MADE_BY_FRAMEWORKS: Final = OF_FRAMEWORKS - {
    faststream.TestEscrowMQBroker, faststream.EscrowMQResponse,
}  # fmt: skip
"""Those of which it makes the objects, too."""

CALLED_BY_USERS: Final = {"ack", "nack", "publish", "reject", "request"}
"""Their other methods."""

PAGES: Final[dict[str, Page]] = {
    "producer": (
        "Producers",
        (
            "`escrowmq.Producer` is for blocking code; `escrowmq.aio.Producer` has the same "
            "methods, awaited."
        ),
        [escrowmq.Producer, ProducerOptions, ClientOptions, Listener],
    ),
    "transaction": (
        "Transactions",
        "Made by `Producer.transaction`; `escrowmq.aio.Transaction` is the same, awaited.",
        [escrowmq.Transaction, escrowmq.Outcome],
    ),
    "outbox": (
        "Outboxes",
        (
            "Messages that commit with a database, and messages that are handled once. "
            "[../outbox.md](../outbox.md) is the guide."
        ),
        [sqlalchemy, django, dbapi],
    ),
    "frameworks": (
        "FastStream and Celery",
        (
            "A broker of FastStream, and a transport of kombu. "
            "[../frameworks.md](../frameworks.md) is the guide."
        ),
        [faststream, kombu],
    ),
    "consumer": (
        "Consumers",
        (
            "`escrowmq.Consumer` is for blocking code; `escrowmq.aio.Consumer` has the same "
            "methods, awaited, and is iterated with `async for`."
        ),
        [escrowmq.Consumer, escrowmq.Delivery, ConsumerOptions],
    ),
    "testing": (
        "The testing kit",
        (
            "`escrowmq.testing`: a broker inside a test's process, in pytest the fixture "
            "`escrowmq_broker`. [../testing.md](../testing.md) is the guide."
        ),
        [Broker, Account, delivery, aio_delivery],
    ),
    "messages": (
        "Messages and answers",
        "What goes in and what comes back.",
        [
            escrowmq.Message,
            MessageFields,
            escrowmq.ReceivedMessage,
            escrowmq.SendResult,
            escrowmq.SendStatus,
            escrowmq.MessageQueue,
        ],
    ),
    "admin": (
        "Administration",
        "`escrowmq.Admin` is for blocking code; `escrowmq.aio.Admin` has the same parts, awaited.",
        [escrowmq.Admin],
    ),
    "security": (
        "Credentials and encryption",
        "For brokers with accounts, and for connections that nobody else is to read.",
        [escrowmq.Credentials, escrowmq.Tls],
    ),
    "interceptors": (
        "Interceptors and OpenTelemetry",
        "Where tracing and metrics take part.",
        [escrowmq.Interceptor, otel],
    ),
    "errors": ("Errors", "All of them are in `escrowmq.errors`.", [errors]),
}


def pages() -> Iterator[tuple[str, str]]:
    """Each page's file name and text."""
    yield "README.md", _index()
    for name, (title, about, things) in PAGES.items():
        parts = [f"# {title}", _WRITTEN, about]
        for thing in things:
            parts += _thing(thing)
        if name == "admin":
            parts += _admin()
        yield f"{name}.md", "\n\n".join(parts) + "\n"


def _index() -> str:
    parts = ["# Reference", _WRITTEN]
    parts.append(
        "The names of `escrowmq`; `escrowmq.aio` has the same for asyncio. "
        "[../sdk.md](../sdk.md) is the guide."
    )
    rows = ["| name | |", "|---|---|"]
    for name in escrowmq.__all__:
        thing = getattr(escrowmq, name)
        page = next(page for page, (_, _, things) in PAGES.items() if thing in things)
        rows.append(f"| [`{name}`]({page}.md#{name.lower()}) | {_first_sentence(thing)} |")
    parts.append("\n".join(rows))
    pages = [f"- [{title}]({name}.md)" for name, (title, _, _) in PAGES.items()]
    parts.append("\n".join(pages))
    return "\n\n".join(parts) + "\n"


def _thing(thing: Any) -> list[str]:  # noqa: ANN401 - a class or a module
    if thing is errors:
        return _errors()
    if isinstance(thing, ModuleType):
        found = [f"## `{thing.__name__}`", _text(thing)]
        if hasattr(thing, "__all__"):
            return [*found, *_public(thing)]
        for name, kind in vars(thing).items():
            if inspect.isclass(kind) and kind.__module__ == thing.__name__ and name[0] != "_":
                found += _class(kind)
        return found
    if inspect.isfunction(thing):
        return [f"## {thing.__name__}", *_method(thing.__name__, thing)]
    return _class(thing)


def _public(module: ModuleType) -> list[str]:
    """What a package says that it has: classes and functions."""
    found: list[str] = []
    for name in module.__all__:
        thing = getattr(module, name)
        if get_origin(thing) is Annotated:  # what a handler asks for by its type
            thing = get_args(thing)[0]
        if inspect.isclass(thing):
            found += _class(thing)
        else:
            found += [f"## {name}", *_method(name, thing)]
    return found


def _class(kind: type) -> list[str]:
    found = [f"## {kind.__name__}"]
    if issubclass(kind, enum.Enum):
        return [*found, _text(kind), _table(_members(kind))]
    # TypedDicts are what `**fields` and `**settings` stand for; they are called by nobody.
    fields = _fields(kind)
    if not fields and kind not in MADE_BY_FRAMEWORKS:
        found.append(_code(_signature(kind.__name__, kind)))
    found.append(_text(kind))
    if fields:
        found.append(_table(fields))
    for name, method in _methods(kind):
        found += [f"### {kind.__name__}.{name}", *_method(name, method)]
    return found


def _method(name: str, method: Any) -> list[str]:  # noqa: ANN401 - function or property
    if isinstance(method, property):
        assert method.fget is not None
        shown = str(inspect.signature(method.fget).return_annotation)
        return [_code(f"{name}: {shown}"), _text(method)]
    return [_code(_signature(name, method)), _text(method)]


def _admin() -> list[str]:
    """The parts of an admin client, whose methods are written for asyncio."""
    found: list[str] = []
    for part, value in vars(escrowmq.aio.Admin("host:1")).items():
        if part[0] == "_" or not _methods_of(value):
            continue
        found.append(f"## Admin.{part}")
        for name, method in _methods_of(value):
            found += [f"### {part}.{name}", *_method(name, method)]
    return found


def _methods_of(part: object) -> list[tuple[str, Any]]:
    """Those of a part of the admin client; of anything else, none."""
    kind = type(part)
    is_part = kind.__module__.startswith("escrowmq.client.admin.") and kind.__name__ != "Cluster"
    return [*_methods(kind)] if is_part else []


def _errors() -> list[str]:
    tree = inspect.getdoc(errors) or ""
    rows = [
        (f"`{name}`", str(kind.code) if kind.code >= 0 else "", _plain(kind))
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, errors.ResponseError)
    ]
    answers = ["| class | code | |", "|---|---|---|"]
    answers += [f"| {name} | {code} | {text} |" for name, code, text in rows]
    others = [
        (f"`{name}`", "", _plain(kind))
        for name, kind in vars(errors).items()
        if inspect.isclass(kind)
        and issubclass(kind, errors.EscrowMQError)
        and not issubclass(kind, errors.ResponseError)
    ]
    return [
        _code(tree, language=""),
        _table(others),
        "## What a peer answered\n\nOne class for each response code.",
        "\n".join(answers),
    ]


def _methods(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties, base classes' first found ones too, in order of writing."""
    seen: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("escrowmq"):
            own = {n: m for n, m in vars(base).items() if n[0] != "_" or n == "__iter__"}
            seen.update({n: m for n, m in own.items() if _is_method(m) and inspect.getdoc(m)})
    hidden = seen.keys() - CALLED_BY_USERS if kind in OF_FRAMEWORKS else INTERNAL
    yield from ((name, method) for name, method in seen.items() if name not in hidden)


def _is_method(found: object) -> bool:
    return inspect.isfunction(found) or isinstance(found, property)


def _fields(kind: type) -> list[tuple[str, str, str]]:
    """The fields of a struct or a typed dictionary: name, type and default, what it means."""
    found: dict[str, tuple[str, str, str]] = {}
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith("escrowmq"):
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(tree, ast.ClassDef)
        for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
            if not isinstance(node, ast.AnnAssign) or "ClassVar" in ast.unparse(node.annotation):
                continue
            name = ast.unparse(node.target)
            if name.startswith("_"):
                continue
            shown = ast.unparse(node.annotation)
            if node.value is not None:
                shown += f" = {_default(node.value)}"
            found[name] = (f"`{name}`", f"`{shown}`", _docstring(after))
    hidden = {"delivery_state", "portal"}  # which its docstring calls private
    return [row for name, row in found.items() if name not in hidden]


def _default(node: ast.expr) -> str:
    """A default as text; a product of numbers is worked out, a constant's name is its value."""
    text = ast.unparse(node)
    if re.fullmatch(r"[\d_ *]+", text):
        return f"{eval(text):_}"
    constants = {"ATTEMPTS_DEFAULT": "16"}
    return constants.get(text, text)


def _docstring(node: ast.stmt | None) -> str:
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ):
        return " ".join(node.value.value.split()).replace("|", "\\|")
    return ""


def _members(kind: type[enum.Enum]) -> list[tuple[str, str, str]]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(tree, ast.ClassDef)
    found = []
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.Assign):
            name = ast.unparse(node.targets[0])
            found.append((f"`{name}`", f"`{ast.unparse(node.value)}`", _docstring(after)))
    return found


def _signature(name: str, thing: Callable[..., Any]) -> str:
    # A client's as it is written: its settings have a table of their own.
    is_long = inspect.isclass(thing) and "__signature__" in vars(thing)
    signature = inspect.signature(thing.__init__ if is_long else thing)
    shown = []
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "instance"):  # the second is for this library alone
            continue
        shown.append(_parameter(parameter))
    returned = "" if inspect.isclass(thing) else f" -> {_annotation(signature.return_annotation)}"
    is_awaited = inspect.iscoroutinefunction(thing)
    front = f"{'async ' if is_awaited else ''}{name}"
    line = f"{front}({', '.join(_with_marks(signature, shown))}){returned}"
    if len(line) <= _WIDTH:
        return line
    inner = "".join(f"    {part},\n" for part in _with_marks(signature, shown))
    return f"{front}(\n{inner}){returned}"


def _with_marks(signature: inspect.Signature, shown: list[str]) -> list[str]:
    """A `*` in front of the first argument that is given by name only."""
    kinds = [p.kind for p in signature.parameters.values() if p.name not in ("self", "instance")]
    found = []
    is_marked = any(kind is inspect.Parameter.VAR_POSITIONAL for kind in kinds)
    for kind, text in zip(kinds, shown, strict=True):
        if kind is inspect.Parameter.KEYWORD_ONLY and not is_marked:
            is_marked = True
            found.append("*")
        found.append(text)
    return found


def _parameter(parameter: inspect.Parameter) -> str:
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return f"**{parameter.name}"
    star = "*" if parameter.kind is inspect.Parameter.VAR_POSITIONAL else ""
    text = f"{star}{parameter.name}"
    if parameter.annotation is not inspect.Parameter.empty:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is not inspect.Parameter.empty:
        default = parameter.default
        text += f" = {default.__name__ if inspect.isfunction(default) else repr(default)}"
    return text


def _annotation(found: object) -> str:
    if isinstance(found, str):
        return found
    if isinstance(found, types.UnionType):  # which has a name from Python 3.14 on: Union
        return str(found)
    return getattr(found, "__name__", str(found))


def _text(thing: object) -> str:
    """A docstring, with its examples as blocks of code."""
    lines = (inspect.getdoc(thing) or "").splitlines()
    found: list[str] = []
    block: list[str] = []
    for line in [*lines, ""]:
        is_code = line.startswith((">>>", "...")) or bool(block and line.strip())
        if is_code:
            block.append(line)
            continue
        if block:
            found += ["```pycon", *block, "```"]
            block = []
        found.append(f"    {line}" if line.startswith("  ") else line)
    return "\n".join(found).strip()


def _plain(thing: object) -> str:
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split()).replace("|", "\\|")


def _first_sentence(thing: object) -> str:
    text = _plain(thing)
    return re.split(r"(?<=[a-z)`])\.(?:\s|$)", text)[0]


def _code(text: str, language: str = "python") -> str:
    return f"```{language}\n{text}\n```"


def _table(rows: list[tuple[str, str, str]]) -> str:
    lines = ["| | | |", "|---|---|---|"]
    shown = [[cell.replace(" | ", " \\| ") for cell in row] for row in rows]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in shown)])


def main() -> int:
    """Write or check the pages; the exit code."""
    wrong = []
    for name, text in pages():
        path = FOLDER / name
        if not path.exists() or path.read_text() != text:
            wrong.append(name)
            if "--check" not in sys.argv:
                FOLDER.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
    known = {name for name, _ in pages()}
    for path in sorted(FOLDER.glob("*.md")):
        if path.name not in known:
            wrong.append(path.name)
            if "--check" not in sys.argv:
                path.unlink()
    for name in wrong:
        print(f"docs/reference/{name}")
    return 1 if wrong and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
