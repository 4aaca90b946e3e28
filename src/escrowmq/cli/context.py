"""`escrowmq context`: gives names to clusters, which replace addresses and accounts on command
lines."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

import msgspec

from escrowmq.cli.cluster_verbs import NO, OK, add_tls
from escrowmq.cli.contexts import Context, Contexts, find, load, path, save
from escrowmq.cli.dry_run import add_dry_run, show_preview
from escrowmq.cli.printing import print_error_line, print_line, show_json
from escrowmq.cli.secrets import STDIN, add_credentials
from escrowmq.client.admin.previews.preview import Preview, Row
from escrowmq.errors import UsageError

_FILES: Final = frozenset({"secret_key_file", "tls_trusted", "tls_cert", "tls_key"})

_SAID: Final = {
    "set": "{name} is in {path}",
    "use": "{name} is the current context",
    "delete": "{name} is deleted",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the verb's actions and options to its parser."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, about in (
        ("list", "list contexts"),
        ("show", "show one context"),
        ("set", "add a context, or change the given fields"),
        ("use", "make a context the current one, used if nothing else names a cluster"),
        ("delete", "delete a context"),
    ):
        one = actions.add_parser(name, help=about, description=about)
        one.add_argument("--json", action="store_true", help="machine-readable output")
        if name != "list":
            one.add_argument("name", metavar="NAME")
        if name == "set":
            one.add_argument("-n", "--name-servers", metavar="HOST:PORT[;HOST:PORT]")
            add_credentials(one)
            one.add_argument("--namespace", default="", help="namespace of topics and groups")
            add_tls(one)
        if name not in ("list", "show"):
            add_dry_run(one)


def run(arguments: argparse.Namespace) -> int:
    """Run the verb's action; return the exit code."""
    match arguments.action:
        case "list":
            return _list(arguments)
        case "show":
            return _show(arguments)
        case "set":
            return _set(arguments)
        case "use":
            return _use(arguments)
        case _:
            return _delete(arguments)


def _list(arguments: argparse.Namespace) -> int:
    known = load()
    if arguments.json:
        show_json(known)
        return OK
    for name, one in sorted(known.contexts.items()):
        mark = "*" if name == known.current else " "
        print_line(mark, name, one.name_servers, one.access_key or "-", one.namespace or "-")
    return OK


def _show(arguments: argparse.Namespace) -> int:
    found = find(load(), arguments.name)
    if arguments.json:
        show_json(found)
        return OK
    for name, value in msgspec.to_builtins(found).items():
        print_line(f"{name.replace('_', '-')}={value}")
    return OK


def _use(arguments: argparse.Namespace) -> int:
    known = load()
    find(known, arguments.name)
    before, known.current = known.current, arguments.name
    return _write(arguments, known, Row(what="current context", before=before, after=known.current))


def _delete(arguments: argparse.Namespace) -> int:
    known = load()
    gone = known.contexts.pop(arguments.name, None)
    if gone is None:
        print_error_line(f"escrowmq context delete: no context {arguments.name!r}")
        return NO
    if known.current == arguments.name:
        known.current = ""
    return _write(arguments, known, Row(what=arguments.name, before=gone.name_servers))


def _write(arguments: argparse.Namespace, known: Contexts, *rows: Row) -> int:
    """Write the file, or show what would be written."""
    said = _SAID[arguments.action].format(name=arguments.name, path=path())
    if arguments.dry_run:
        found = Preview(said=f"{said}: this would be so", count=len(rows), rows=list(rows))
        return show_preview(arguments, found)
    save(known)
    print_line(said)
    return OK


def _set(arguments: argparse.Namespace) -> int:
    if arguments.secret_key:
        raise UsageError("a context stores no secret: name a file with --secret-key-file")
    if not arguments.name.strip():
        raise UsageError("a context needs a name that is not empty")
    if arguments.secret_key_file == STDIN:
        raise UsageError("a context stores no secret, so --secret-key-file must name a file, not -")
    known = load()
    context = known.contexts.get(arguments.name) or Context()
    rows: list[Row] = []
    for field in context.__struct_fields__:
        value, before = getattr(arguments, field), getattr(context, field)
        if value and field in _FILES:  # it is read wherever a command is run
            value = str(Path(value).expanduser().absolute())
        if value:
            setattr(context, field, value)
            rows.append(Row(what=field.replace("_", "-"), before=str(before), after=str(value)))
    if not context.name_servers:
        raise UsageError(f"context {arguments.name} needs -n HOST:PORT, its name servers")
    known.contexts[arguments.name] = context
    if not known.current:
        known.current = arguments.name
    return _write(arguments, known, *rows)
