"""`escrowmq context`: gives names to clusters, which replace addresses and accounts on command
lines."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

import msgspec

from escrowmq.cli.cluster_verbs import OK, REFUSED, add_tls_options
from escrowmq.cli.contexts import (
    Context,
    Contexts,
    contexts_path,
    find_context,
    load_contexts,
    save_contexts,
)
from escrowmq.cli.dry_run import add_dry_run_option, print_preview
from escrowmq.cli.printing import print_error_line, print_json, print_line
from escrowmq.cli.secrets import STDIN, add_credential_options
from escrowmq.client.admin.previews.preview import Preview, PreviewRow
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
            add_credential_options(one)
            one.add_argument("--namespace", default="", help="namespace of topics and groups")
            add_tls_options(one)
        if name not in ("list", "show"):
            add_dry_run_option(one)


def run(arguments: argparse.Namespace) -> int:
    """Run the verb's action; return the exit code."""
    match arguments.action:
        case "list":
            return _run_list(arguments)
        case "show":
            return _run_show(arguments)
        case "set":
            return _run_set(arguments)
        case "use":
            return _run_use(arguments)
        case _:
            return _run_delete(arguments)


def _run_list(arguments: argparse.Namespace) -> int:
    known = load_contexts()
    if arguments.json:
        print_json(known)
        return OK
    for name, one in sorted(known.contexts.items()):
        mark = "*" if name == known.current else " "
        print_line(mark, name, one.name_servers, one.access_key or "-", one.namespace or "-")
    return OK


def _run_show(arguments: argparse.Namespace) -> int:
    found = find_context(load_contexts(), arguments.name)
    if arguments.json:
        print_json(found)
        return OK
    for name, value in msgspec.to_builtins(found).items():
        print_line(f"{name.replace('_', '-')}={value}")
    return OK


def _run_use(arguments: argparse.Namespace) -> int:
    known = load_contexts()
    find_context(known, arguments.name)
    before, known.current = known.current, arguments.name
    return _write_or_preview(
        arguments, known, PreviewRow(what="current context", before=before, after=known.current)
    )


def _run_delete(arguments: argparse.Namespace) -> int:
    known = load_contexts()
    gone = known.contexts.pop(arguments.name, None)
    if gone is None:
        print_error_line(f"escrowmq context delete: no context {arguments.name!r}")
        return REFUSED
    if known.current == arguments.name:
        known.current = ""
    return _write_or_preview(
        arguments, known, PreviewRow(what=arguments.name, before=gone.name_servers)
    )


def _write_or_preview(arguments: argparse.Namespace, known: Contexts, *rows: PreviewRow) -> int:
    """Write the file, or show what would be written."""
    said = _SAID[arguments.action].format(name=arguments.name, path=contexts_path())
    if arguments.dry_run:
        found = Preview(said=f"{said}: this would be so", count=len(rows), rows=list(rows))
        return print_preview(arguments, found)
    save_contexts(known)
    print_line(said)
    return OK


def _run_set(arguments: argparse.Namespace) -> int:
    if arguments.secret_key:
        raise UsageError("a context stores no secret: name a file with --secret-key-file")
    if not arguments.name.strip():
        raise UsageError("a context needs a name that is not empty")
    if arguments.secret_key_file == STDIN:
        raise UsageError("a context stores no secret, so --secret-key-file must name a file, not -")
    known = load_contexts()
    context = known.contexts.get(arguments.name) or Context()
    rows: list[PreviewRow] = []
    for field in context.__struct_fields__:
        value, before = getattr(arguments, field), getattr(context, field)
        if value and field in _FILES:  # it is read wherever a command is run
            value = str(Path(value).expanduser().absolute())
        if value:
            setattr(context, field, value)
            rows.append(
                PreviewRow(what=field.replace("_", "-"), before=str(before), after=str(value))
            )
    if not context.name_servers:
        raise UsageError(f"context {arguments.name} needs -n HOST:PORT, its name servers")
    known.contexts[arguments.name] = context
    if not known.current:
        known.current = arguments.name
    return _write_or_preview(arguments, known, *rows)
