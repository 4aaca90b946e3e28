"""`escrowmq cluster status|switch|rebuild|drill`: brokers and their replicas, for operators."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from escrowmq.cli.cluster_drill import add_drill, run_drill
from escrowmq.cli.cluster_verbs import OK, REFUSED, add_action, print_change, run_action
from escrowmq.cli.dry_run import add_dry_run_option, call_preview, print_preview
from escrowmq.cli.printing import print_error_line, print_json, print_line

if TYPE_CHECKING:
    from escrowmq.client.admin.replicas import ReplicaGroup
    from escrowmq.client.blocking.admin import Admin


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the verb's actions and options to its parser."""
    actions: Any = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    status = add_action(
        actions, "status", "show brokers with their copies; exit code 1 if a group has no master"
    )
    status.add_argument("broker", nargs="?", default="", help="only the brokers with this name")
    status.add_argument(
        "--member", metavar="HOST:PORT", action="append", default=[],
        help="also ask this member, which the name server does not know; may be repeated",
    )  # fmt: skip
    switch = add_action(actions, "switch", "make another member the master, without any loss")
    switch.add_argument("broker", metavar="BROKER")
    switch.add_argument(
        "--to", metavar="MEMBER", default="", help="default: the most up-to-date copy"
    )
    rebuild = add_action(
        actions, "rebuild",
        "make a member the master although it may lack acknowledged messages, if no member "
            "that has them will come back",
    )  # fmt: skip
    rebuild.add_argument("member", metavar="HOST:PORT", help="the member's address for clients")
    rebuild.add_argument(
        "--accept-loss",
        action="store_true",
        help="accept the loss of messages that only other members have",
    )
    add_dry_run_option(switch, rebuild, add_drill(actions))


def run(arguments: argparse.Namespace) -> int:
    """Run the verb's action; return the exit code."""
    if arguments.action == "drill":
        return run_action(arguments, lambda _: run_drill(arguments))
    return run_action(arguments, lambda admin: _run(admin, arguments))


def _run(admin: Admin, arguments: argparse.Namespace) -> int:
    from escrowmq.client.admin.previews import replicas as previews

    match arguments.action:
        case "status":
            return _run_status(admin, arguments)
        case "switch" if arguments.dry_run:
            found = call_preview(admin, previews.switch, arguments.broker, arguments.to)
            return print_preview(arguments, found)
        case "switch":
            done = admin.replicas.switch(arguments.broker, arguments.to)
            text = (
                f"{done.master} is the master of {done.broker} now instead of {done.before}, "
                f"{done.took_ms:g} ms later (epoch {done.epoch})"
            )
            return print_change(arguments, done, text)
        case _ if arguments.dry_run:
            return print_preview(arguments, call_preview(admin, previews.rebuild, arguments.member))
        case _:
            return _run_rebuild(admin, arguments)


def _run_rebuild(admin: Admin, arguments: argparse.Namespace) -> int:
    from escrowmq.client.admin.previews import replicas as previews

    if not arguments.accept_loss:
        found = call_preview(admin, previews.rebuild, arguments.member)
        print_error_line(f"nothing was changed. {found.said} To accept that: --accept-loss")
        return REFUSED
    report = admin.replicas.rebuild(arguments.member)
    text = f"{report.member} is the master of {report.broker} now (epoch {report.epoch})"
    return print_change(arguments, report, text)


def _run_status(admin: Admin, arguments: argparse.Namespace) -> int:
    groups = admin.replicas.status(arguments.broker, members=arguments.member)
    for group in groups:
        if arguments.json:
            print_json(group)
        else:
            _print_group(group)
    return REFUSED if any(not group.master for group in groups) else OK


def _print_group(group: ReplicaGroup) -> None:
    kind = {"group": f"epoch {group.epoch}", "pair": "a pair without an authority"}
    what = kind.get(group.kind, "alone")
    master = f"master {group.master}" if group.master else "NO MASTER"
    print_line(f"{group.broker} in {group.cluster}: {master}, {what}, in sync: "
        f"{', '.join(group.in_sync) or 'none'}")  # fmt: skip
    for note in group.notes:
        print_line(f"  ! {note}")
    if group.kind == "group":
        confirmed = group.confirmed if group.confirmed >= 0 else "unknown"
        print_line(f"  confirmed up to {confirmed}; authority {group.authority}")
    print_line("MEMBER", "ADDRESS", "ROLE", "END", "BEHIND", "INCARNATION", "NOTE")
    for one in group.members:
        print_line(
            one.name or "-", one.address or "-", one.role,
            one.end if one.end >= 0 else "-", one.behind if one.behind >= 0 else "-",
            one.incarnation or "-", one.note or "-",
        )  # fmt: skip
