"""`escrowmq group`: consumer groups, listed, shown, created, changed, deleted."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from escrowmq.cli.cluster_verbs import OK, add_named, run_action, show_names, told
from escrowmq.cli.printing import say, show_json

if TYPE_CHECKING:
    from escrowmq.client.blocking.admin import Admin


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its actions and their options."""
    actions = add_named(
        parser,
        "group",
        actions={
            "list": "list consumer groups",
            "show": "show a group's settings, members and lag",
            "create": "create a group; of one that exists, change what is given",
            "update": "change a group",
            "delete": "delete a group with its offsets and dead letters",
        },
    )
    actions["list"].add_argument("--all", action="store_true", help="also the brokers' own")
    for one in (actions["create"], actions["update"]):
        one.add_argument("--attempts", type=int, help="until a message is a dead letter")
        one.add_argument("--retry-queues", type=int)
        for name, about in (
            ("enabled", "it may consume"),
            ("broadcast", "it may broadcast"),
            ("ordered", "it consumes in order"),
        ):
            one.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, help=about)


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked; the exit code."""
    return run_action(arguments, lambda admin: _run(admin, arguments))


def _run(admin: Admin, arguments: argparse.Namespace) -> int:
    match arguments.action:
        case "list":
            return show_names(arguments, admin.groups.names(with_system=arguments.all))
        case "show":
            return _show(admin, arguments)
        case "create":
            admin.groups.create(arguments.group, **_given(arguments))
        case "update":
            admin.groups.update(arguments.group, **_given(arguments))
        case _:
            admin.groups.delete(arguments.group)
    return told(arguments, {"group": arguments.group}, f"{arguments.group} {arguments.action}d")


def _given(arguments: argparse.Namespace) -> dict[str, Any]:
    found = {
        "attempts_max": arguments.attempts,
        "retry_queues": arguments.retry_queues,
        "is_enabled": arguments.enabled,
        "may_broadcast": arguments.broadcast,
        "is_ordered": arguments.ordered,
    }
    return {name: value for name, value in found.items() if value is not None}


def _show(admin: Admin, arguments: argparse.Namespace) -> int:
    found = admin.groups.describe(arguments.group)
    if arguments.json:
        show_json(found)
        return OK
    say(f"{found.group}: {len(found.online.members)} members, lag {found.lag}")
    for info in found.brokers:
        state = "" if info.is_enabled else " (disabled)"
        say("broker", info.broker, f"attempts {info.attempts_max}{state}")
    for topic, wanted in sorted(found.online.topics.items()):
        say("topic", topic, wanted)
    for member in found.online.members:
        say("member", member.client_id, member.address, member.language)
    for lag in found.lags:
        queue = lag.queue
        say(
            "queue",
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            f"{lag.committed}/{lag.end}",
            f"lag {lag.count}",
        )
    return OK
