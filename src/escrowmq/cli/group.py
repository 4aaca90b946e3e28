"""`escrowmq group`: list, show, create, change and delete consumer groups."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from escrowmq.base.human_format import format_moment
from escrowmq.cli.cluster_verbs import (
    OK,
    add_name_actions,
    print_change,
    print_items,
    print_names,
    run_action,
)
from escrowmq.cli.dry_run import add_dry_run_option, call_preview, print_preview
from escrowmq.cli.live import ChangeRates, Row, add_live_options, largest_counts, show_live
from escrowmq.cli.printing import print_json, print_line
from escrowmq.cli.times import parse_count
from escrowmq.errors import GroupNotFound
from escrowmq.net.clock import SystemClock

if TYPE_CHECKING:
    from escrowmq.client.admin.dead_letters import DeadLetter
    from escrowmq.client.blocking.admin import Admin


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the verb's actions and options to its parser."""
    actions = add_name_actions(
        parser,
        "group",
        actions={
            "list": "list consumer groups",
            "top": "show the lag of all groups live, the largest first",
            "show": "show a group's settings, members and lag",
            "create": "create a group; if it exists, change the given fields",
            "update": "change a group",
            "delete": "delete a group with its offsets and dead letters",
            "redeliver-dead": "redeliver a group's dead letters, to that group only",
        },
    )
    actions["list"].add_argument(
        "--all", action="store_true", help="include the brokers' own groups"
    )
    add_live_options(actions["top"])
    again = actions["redeliver-dead"]
    again.add_argument("--topic", default="", help="only dead letters that failed in this topic")
    again.add_argument(
        "--limit", type=parse_count, metavar="N", help="at most this number (default: all)"
    )
    for one in (actions["create"], actions["update"]):
        one.add_argument(
            "--attempts", type=int, help="attempts before a message becomes a dead letter"
        )
        one.add_argument("--retry-queues", type=int)
        for name, about in (
            ("enabled", "it may consume"),
            ("broadcast", "it may broadcast"),
            ("ordered", "it consumes in order"),
        ):
            one.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, help=about)
    add_dry_run_option(
        *(actions[name] for name in ("create", "update", "delete", "redeliver-dead"))
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the verb's action; return the exit code."""
    return run_action(arguments, lambda admin: _run(admin, arguments))


def _run(admin: Admin, arguments: argparse.Namespace) -> int:
    match arguments.action:
        case "list":
            return print_names(arguments, admin.groups.names(with_system=arguments.all))
        case "top":
            change = ChangeRates(SystemClock().now_ms)
            return show_live(arguments, lambda: _live_rows(admin, change))
        case "show":
            return _print_group(admin, arguments)
        case "redeliver-dead":
            return _run_redeliver(admin, arguments)
        case _ if arguments.dry_run:
            return _run_preview(admin, arguments)
        case "create":
            admin.groups.create(arguments.group, **_given_settings(arguments))
        case "update":
            admin.groups.update(arguments.group, **_given_settings(arguments))
        case _:
            admin.groups.delete(arguments.group)
    return print_change(
        arguments, {"group": arguments.group}, f"{arguments.group} {arguments.action}d"
    )


def _run_preview(admin: Admin, arguments: argparse.Namespace) -> int:
    from escrowmq.client.admin.previews import groups as previews

    if arguments.action == "delete":
        return print_preview(arguments, call_preview(admin, previews.delete, arguments.group))
    action = previews.create if arguments.action == "create" else previews.update
    return print_preview(
        arguments, call_preview(admin, action, arguments.group, **_given_settings(arguments))
    )


_GROUPS_MAX: Final = 200
"""Limit of groups in a live table, because each needs a request of its own."""


def _live_rows(admin: Admin, change: ChangeRates) -> Iterator[Row]:
    names = admin.groups.names()
    found = {name: admin.groups.describe(name) for name in names[:_GROUPS_MAX]}
    lags = {name: one.lag for name, one in found.items()}
    left = f", {len(names) - len(found)} more are not shown" if len(names) > len(found) else ""
    yield (f"{len(found)} groups{left}", f"{sum(lags.values())} messages behind")
    yield ("GROUP", "LAG", "CHANGE", "IN FLIGHT", "MEMBERS")
    for name, lag in largest_counts(lags):
        in_flight = sum(one.inflight for one in found[name].lags)
        yield name, lag, change.rate(name, lag), in_flight, len(found[name].online.members)


_LETTERS: Final = ("MESSAGE", "TOPIC", "DIED", "KEYS", "PLACE", "STATUS")


def _run_redeliver(admin: Admin, arguments: argparse.Namespace) -> int:
    counts: Counter[str] = Counter()

    def count_letters() -> Iterator[DeadLetter]:
        for letter in admin.groups.redeliver_dead(
            arguments.group,
            topic=arguments.topic,
            limit=arguments.limit,
            dry_run=arguments.dry_run,
        ):
            counts[letter.status] += 1
            yield letter

    print_items(
        count_letters(),
        is_json=arguments.json,
        columns=_LETTERS,
        row=lambda one: (
            one.message_id,
            one.topic,
            format_moment(one.died_ms),
            one.keys,
            f"{one.broker}/{one.queue_id}@{one.queue_offset}",
            one.status,
        ),
    )
    if not counts and arguments.group not in admin.groups.names(with_system=True):
        raise GroupNotFound(f"there is no consumer group {arguments.group!r}")
    if not arguments.json:
        what = (
            f"{counts['dead']} would be redelivered"
            if arguments.dry_run
            else f"{counts['redelivered']} redelivered"
        )
        print_line(f"{what} to {arguments.group} alone, {counts['done']} had been before")
    return OK


def _given_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    found = {
        "attempts_max": arguments.attempts,
        "retry_queues": arguments.retry_queues,
        "is_enabled": arguments.enabled,
        "may_broadcast": arguments.broadcast,
        "is_ordered": arguments.ordered,
    }
    return {name: value for name, value in found.items() if value is not None}


def _print_group(admin: Admin, arguments: argparse.Namespace) -> int:
    found = admin.groups.describe(arguments.group)
    if arguments.json:
        print_json(found)
        return OK
    print_line(f"{found.group}: {len(found.online.members)} members, lag {found.lag}")
    for info in found.brokers:
        state = "" if info.is_enabled else " (disabled)"
        print_line("broker", info.broker, f"attempts {info.attempts_max}{state}")
    for topic, wanted in sorted(found.online.topics.items()):
        print_line("topic", topic, wanted)
    for member in found.online.members:
        print_line("member", member.client_id, member.address, member.language)
    for lag in found.lags:
        queue = lag.queue
        print_line(
            "queue",
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            f"{lag.committed}/{lag.end}",
            f"lag {lag.count}",
        )
    return OK
