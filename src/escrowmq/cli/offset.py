"""`escrowmq offset`: show and set the offsets of consumer groups."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from escrowmq.base.human_format import format_moment
from escrowmq.cli.cluster_verbs import OK, add_action, print_change, print_items, run_action
from escrowmq.cli.dry_run import add_dry_run_option, call_preview, call_with_admin, print_preview
from escrowmq.cli.printing import print_error_line, print_json, print_line
from escrowmq.cli.times import parse_whole
from escrowmq.errors import UsageError
from escrowmq.net.clock import LocalZone, SystemClock

if TYPE_CHECKING:
    from escrowmq.client.blocking.admin import Admin
    from escrowmq.client.core.routes import MessageQueue

_COLUMNS = ("TOPIC", "BROKER", "QUEUE", "COMMITTED", "END", "LAG", "INFLIGHT", "CONSUMED")
_MS: Final = 1000


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the verb's actions and options to its parser."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = add_action(actions, "show", "show a group's progress, queue by queue")
    show.add_argument("group", metavar="GROUP")
    show.add_argument("--topic", default="")
    reset = add_action(actions, "reset", "move a group to another time or offset")
    reset.add_argument("group", metavar="GROUP")
    reset.add_argument("topic", metavar="TOPIC")
    reset.add_argument(
        "--to",
        required=True,
        metavar="first|last|TIME|OFFSET",
        help="TIME: 09:00 (today, in the zone of this machine), 2026-11-21T10:00:00Z, or "
        "milliseconds since the epoch; OFFSET with --queue",
    )
    reset.add_argument("--queue", type=parse_whole, help="only this queue, to an offset")
    reset.add_argument("--broker", default="", help="the queue's broker")
    clone = add_action(actions, "clone", "give one group the offsets of another")
    clone.add_argument("source", metavar="FROM_GROUP")
    clone.add_argument("target", metavar="TO_GROUP")
    clone.add_argument("--topic", default="")
    add_dry_run_option(reset, clone)


def run(arguments: argparse.Namespace) -> int:
    """Run the verb's action; return the exit code."""
    return run_action(arguments, lambda admin: _run(admin, arguments))


def _run(admin: Admin, arguments: argparse.Namespace) -> int:
    match arguments.action:
        case "show":
            lags = admin.offsets.show(arguments.group, topic=arguments.topic)
            if arguments.json:
                print_json(lags)
                return OK
            print_items(
                lags,
                is_json=False,
                columns=_COLUMNS,
                row=lambda lag: (
                    lag.queue.topic, lag.queue.broker_name, lag.queue.queue_id, lag.committed,
                    lag.end, lag.count, lag.inflight, format_moment(lag.consumed_ms),
                ),
            )  # fmt: skip
            return OK
        case "reset":
            return _run_reset(admin, arguments)
        case _ if arguments.dry_run:
            from escrowmq.client.admin.previews.offsets import clone

            found = call_preview(
                admin, clone, arguments.source, arguments.target, topic=arguments.topic
            )
            return print_preview(arguments, found)
        case _:
            admin.offsets.clone(arguments.source, arguments.target, topic=arguments.topic)
            text = f"{arguments.target} continues where {arguments.source} is"
            return print_change(arguments, {"group": arguments.target}, text)


def _run_reset(admin: Admin, arguments: argparse.Namespace) -> int:
    from escrowmq.client.admin.previews.offsets import (
        OffsetChanges,
        committed_offsets,
        compute_changes,
    )

    group, topic = arguments.group, arguments.topic
    place, queue = _reset_target(admin, arguments)
    if arguments.dry_run:
        found = call_with_admin(admin, compute_changes, group, topic, place, queue)
    else:
        before = committed_offsets(admin.groups.lag(group, topic=topic))
        if queue is None:
            after = admin.offsets.reset(group, topic, place)
        else:
            admin.offsets.set(group, queue, place)
            after = {queue: place}
        found = OffsetChanges(before=before, after=after)
    rows = [
        {"queue": queue, "before": found.before.get(queue), "offset": found.after[queue]}
        for queue in sorted(found.after)
    ]
    if arguments.json:
        print_json(rows)
        return OK
    print_line("TOPIC", "BROKER", "QUEUE", "BEFORE", "WOULD_BE" if arguments.dry_run else "NOW")
    for queue in sorted(found.after):
        was = found.before.get(queue, "-")
        print_line(queue.topic, queue.broker_name, queue.queue_id, was, found.after[queue])
    if arguments.dry_run:
        print_line(f"dry run: {found.describe()}: {group} in {topic}")
    return OK


def _reset_target(admin: Admin, arguments: argparse.Namespace) -> tuple[Any, MessageQueue | None]:
    """Return where the group should continue: a position in all queues, or an offset of one."""
    from escrowmq.client.core.routes import MessageQueue

    if arguments.queue is None:
        place = _parse_position(arguments.to)
        if not arguments.json and place not in ("first", "last"):
            print_error_line(f"to the first messages stored since {place.isoformat()}")
        return place, None
    if not arguments.to.isdecimal():
        raise UsageError(f"--to {arguments.to}: with --queue an offset is expected")
    broker = arguments.broker or _only_broker(admin, arguments.topic)
    return int(arguments.to), MessageQueue(arguments.topic, broker, arguments.queue)


def _only_broker(admin: Admin, topic: str) -> str:
    brokers = [info.broker for info in admin.topics.describe(topic).brokers]
    if len(brokers) != 1:
        raise UsageError(f"{topic} is on {', '.join(brokers)}; name one with --broker")
    return brokers[0]


def _parse_position(text: str) -> Any:  # noqa: ANN401 - a word or a moment
    from escrowmq.client.admin.reset_positions import parse_reset_position

    return parse_reset_position(
        text, now_ms=SystemClock().now_ms(), zone=LocalZone(), option="--to"
    )
