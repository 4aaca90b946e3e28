"""`escrowmq topic`: list, show, create, change and delete topics."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from escrowmq.base.human_format import format_moment
from escrowmq.cli.cluster_verbs import (
    OK,
    add_name_actions,
    parse_pairs,
    print_change,
    print_names,
    run_action,
)
from escrowmq.cli.dry_run import add_dry_run_option, call_preview, print_preview
from escrowmq.cli.printing import print_json, print_line

if TYPE_CHECKING:
    from escrowmq.client.blocking.admin import Admin


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the verb's actions and options to its parser."""
    actions = add_name_actions(
        parser,
        "topic",
        actions={
            "list": "list topics",
            "show": "show a topic's brokers, queues and readers",
            "create": "create a topic; if it exists, change the given fields",
            "update": "change a topic",
            "delete": "delete a topic with its messages",
        },
    )
    actions["list"].add_argument(
        "--all", action="store_true", help="include retry topics, dead letters and system topics"
    )
    create, update = actions["create"], actions["update"]
    create.add_argument(
        "--queues",
        type=int,
        help="queues per broker (default 8; an existing topic keeps its number)",
    )
    create.add_argument(
        "--ordered",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="an ordered topic: its queues stay the same while a broker is unreachable",
    )
    update.add_argument("--read-queues", type=int)
    update.add_argument("--write-queues", type=int)
    for one in (create, update):
        one.add_argument("--permission", choices=["rw", "r", "w", "none"])
        one.add_argument(
            "--attribute", metavar="KEY=VALUE", action="append", default=[],
            help="an attribute, such as message.type=TRANSACTION; may be repeated",
        )  # fmt: skip
        one.add_argument("--broker", default="", help="only this broker (default: all)")
    add_dry_run_option(create, update, actions["delete"])


def run(arguments: argparse.Namespace) -> int:
    """Run the verb's action; return the exit code."""
    return run_action(arguments, lambda admin: _run(admin, arguments))


def _run(admin: Admin, arguments: argparse.Namespace) -> int:
    match arguments.action:
        case "list":
            return print_names(arguments, admin.topics.names(with_system=arguments.all))
        case "show":
            return _print_topic(admin, arguments)
        case _ if arguments.dry_run:
            return _run_preview(admin, arguments)
        case "create":
            admin.topics.create(arguments.topic, **_creation_fields(arguments))
        case "update":
            admin.topics.update(arguments.topic, **_update_fields(arguments))
        case _:
            admin.topics.delete(arguments.topic)
    return print_change(
        arguments, {"topic": arguments.topic}, f"{arguments.topic} {arguments.action}d"
    )


def _run_preview(admin: Admin, arguments: argparse.Namespace) -> int:
    from escrowmq.client.admin.previews import topics as previews

    match arguments.action:
        case "create":
            found = call_preview(
                admin, previews.create, arguments.topic, **_creation_fields(arguments)
            )
        case "update":
            found = call_preview(
                admin, previews.update, arguments.topic, **_update_fields(arguments)
            )
        case _:
            found = call_preview(admin, previews.delete, arguments.topic)
    return print_preview(arguments, found)


def _creation_fields(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "queues": arguments.queues,
        "permission": _parse_permission(arguments),
        "is_ordered": arguments.ordered,
        "attributes": parse_pairs(arguments.attribute),
        "broker": arguments.broker,
    }


def _update_fields(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "read_queues": arguments.read_queues,
        "write_queues": arguments.write_queues,
        "permission": _parse_permission(arguments),
        "attributes": parse_pairs(arguments.attribute),
        "broker": arguments.broker,
    }


def _parse_permission(arguments: argparse.Namespace) -> str | None:
    return "" if arguments.permission == "none" else arguments.permission


def _print_topic(admin: Admin, arguments: argparse.Namespace) -> int:
    found = admin.topics.describe(arguments.topic)
    if arguments.json:
        print_json(found)
        return OK
    print_line(f"{found.topic}: {found.count} messages")
    for info in found.brokers:
        kinds = " ".join(f"{key}={value}" for key, value in sorted(info.attributes.items()))
        order = " ordered" if info.is_ordered else ""
        print_line(
            "broker",
            info.broker,
            f"read {info.read_queues}",
            f"write {info.write_queues}",
            f"{info.permission or 'closed'}{order} {kinds}".rstrip(),
        )
    for status in found.queues:
        print_line(
            "queue",
            status.queue.broker_name,
            status.queue.queue_id,
            f"{status.min_offset}..{status.max_offset}",
            format_moment(status.updated_ms),
        )
    for group in found.groups:
        print_line("group", group)
    return OK
