"""`escrowmq context`: names for clusters, so that nobody types addresses and accounts again."""

from __future__ import annotations

import argparse

import msgspec

from escrowmq.cli.cluster_verbs import NO, OK, add_tls
from escrowmq.cli.contexts import Context, find, load, path, save
from escrowmq.cli.printing import complain, say, show_json
from escrowmq.cli.secrets import add_credentials
from escrowmq.errors import UsageError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its actions and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, about in (
        ("list", "list contexts"),
        ("show", "show one context"),
        ("set", "add a context, or change what is given of it"),
        ("use", "make a context the one that counts when nothing else names a cluster"),
        ("delete", "forget a context"),
    ):
        one = actions.add_parser(name, help=about, description=about)
        one.add_argument("--json", action="store_true", help="machine-readable output")
        if name != "list":
            one.add_argument("name", metavar="NAME")
        if name == "set":
            one.add_argument("-n", "--name-servers", metavar="HOST:PORT[;HOST:PORT]")
            add_credentials(one)
            one.add_argument("--namespace", default="", help="of topics and groups")
            add_tls(one)


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked; the exit code."""
    match arguments.action:
        case "list":
            return _list(arguments)
        case "show":
            return _show(arguments)
        case "set":
            return _set(arguments)
        case "use":
            known = load()
            find(known, arguments.name)
            known.current = arguments.name
            save(known)
            say(f"{arguments.name} is the current context")
        case _:
            known = load()
            if known.contexts.pop(arguments.name, None) is None:
                complain(f"escrowmq context delete: no context {arguments.name!r}")
                return NO
            if known.current == arguments.name:
                known.current = ""
            save(known)
            say(f"{arguments.name} is deleted")
    return OK


def _list(arguments: argparse.Namespace) -> int:
    known = load()
    if arguments.json:
        show_json(known)
        return OK
    for name, one in sorted(known.contexts.items()):
        mark = "*" if name == known.current else " "
        say(mark, name, one.name_servers, one.access_key or "-", one.namespace or "-")
    return OK


def _show(arguments: argparse.Namespace) -> int:
    found = find(load(), arguments.name)
    if arguments.json:
        show_json(found)
        return OK
    for name, value in msgspec.to_builtins(found).items():
        say(f"{name.replace('_', '-')}={value}")
    return OK


def _set(arguments: argparse.Namespace) -> int:
    if arguments.secret_key:
        raise UsageError("a context keeps no secret: name its file with --secret-key-file")
    known = load()
    context = known.contexts.get(arguments.name) or Context()
    for field in context.__struct_fields__:
        value = getattr(arguments, field)
        if value:
            setattr(context, field, value)
    if not context.name_servers:
        raise UsageError(f"context {arguments.name} needs -n HOST:PORT, its name servers")
    known.contexts[arguments.name] = context
    if not known.current:
        known.current = arguments.name
    save(known)
    say(f"{arguments.name} is in {path()}")
    return OK
