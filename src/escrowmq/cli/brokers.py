"""`escrowmq broker list|show|config|set`: brokers, for their operators."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from escrowmq.base.human_format import format_moment
from escrowmq.cli.cluster_verbs import (
    OK,
    add_action,
    parse_pairs,
    print_change,
    print_items,
    run_action,
)
from escrowmq.cli.dry_run import add_dry_run_option, call_preview, print_preview
from escrowmq.cli.printing import print_json, print_line
from escrowmq.client.admin.broker_summary import summarize_metrics
from escrowmq.net.clock import SystemClock

if TYPE_CHECKING:
    from escrowmq.client.admin.brokers import BrokerInfo
    from escrowmq.client.blocking.admin import Admin

_COLUMNS = ("BROKER", "ID", "ADDRESS", "CLUSTER", "VERSION", "BUILD", "STATE")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the verb's actions to its parser. Without an action the verb runs a broker."""
    actions: Any = parser.add_subparsers(dest="action", metavar="ACTION")
    add_action(actions, "list", "list brokers")
    add_action(actions, "producers", "list connected producers, by group")
    show = add_action(actions, "show", "show a broker's figures")
    show.add_argument("--all", action="store_true", help="all of it, under RocketMQ's names")
    config = add_action(actions, "config", "show a broker's settings")
    config.add_argument(
        "--differs", action="store_true", help="only settings that differ from their defaults"
    )
    config.add_argument(
        "--changed",
        action="store_true",
        help="only settings changed by requests, with who changed them and when",
    )
    change = add_action(actions, "set", "change settings of a running broker")
    change.add_argument("pairs", metavar="KEY=VALUE", nargs="+")
    add_dry_run_option(change)
    for one in (show, config, change):
        one.add_argument("--name", required=True, metavar="BROKER", help="the broker's name")


def run(arguments: argparse.Namespace) -> int:
    """Run the verb's action; return the exit code."""
    return run_action(arguments, lambda admin: _run(admin, arguments))


def _run(admin: Admin, arguments: argparse.Namespace) -> int:
    match arguments.action:
        case "list":
            print_items(
                [*admin.brokers.all(), *admin.brokers.gone()],
                is_json=arguments.json,
                columns=_COLUMNS,
                row=_broker_row,
            )
            return OK
        case "show":
            found = admin.brokers.runtime(arguments.name)
            if not (arguments.all or arguments.json):
                for title, value in summarize_metrics(found, SystemClock().now_ms()):
                    print_line(f"{title:<16}{value}")
                return OK
            return _print_table(found, arguments)
        case "config" if arguments.changed:
            print_items(
                admin.brokers.changes(arguments.name),
                is_json=arguments.json,
                columns=("SETTING", "VALUE", "BEFORE", "BY", "WHEN"),
                row=lambda one: (
                    one.name,
                    one.value,
                    one.before,
                    one.who,
                    format_moment(one.at_ms),
                ),
            )
            return OK
        case "config":
            found = admin.brokers.config(arguments.name)
            return _print_table(_changed_settings(found) if arguments.differs else found, arguments)
        case "producers":
            print_items(
                admin.brokers.producers(),
                is_json=arguments.json,
                columns=("GROUP", "CLIENT", "ADDRESS", "LANGUAGE", "BROKER"),
                row=lambda one: (one.group, one.client_id, one.address, one.language, one.broker),
            )
            return OK
        case _:
            settings = parse_pairs(arguments.pairs)
            if arguments.dry_run:
                from escrowmq.client.admin.previews.brokers import configure

                return print_preview(
                    arguments, call_preview(admin, configure, arguments.name, settings)
                )
            admin.brokers.configure(arguments.name, settings)
            return print_change(
                arguments, settings, f"{arguments.name} has {len(settings)} new settings"
            )


def _changed_settings(found: dict[str, str]) -> dict[str, str]:
    """Return those settings of ours whose values differ from the default. RocketMQ's own settings
    are left out, because their defaults are not known here."""
    from escrowmq.client.admin.previews.brokers import settings_by_name
    from escrowmq.client.admin.previews.preview import format_value

    facts = settings_by_name()
    return {
        name: value
        for name, value in found.items()
        if (fact := facts.get(name)) is not None
        and not fact.is_secret
        and format_value(fact.default) != value
    }


def _broker_row(one: BrokerInfo) -> tuple[object, ...]:
    state = "registered"
    if one.gone_ms:
        state = f"gone since {format_moment(one.gone_ms)}{' (stopped)' if one.was_stopped else ''}"
    return one.name, one.id, one.address, one.cluster, one.version, one.build, state


def _print_table(found: dict[str, str], arguments: argparse.Namespace) -> int:
    if arguments.json:
        print_json(found)
    else:
        for name, value in found.items():
            print_line(f"{name}={value}")
    return OK
