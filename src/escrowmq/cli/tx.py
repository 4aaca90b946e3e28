"""`escrowmq tx`: show and settle pending transactions."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from escrowmq.base.human_format import format_moment, format_span
from escrowmq.cli.cluster_verbs import OK, add_action, print_change, print_items, run_action
from escrowmq.cli.dry_run import add_dry_run_option, call_preview, print_preview
from escrowmq.cli.live import ChangeRates, Row, add_live_options, largest_counts, show_live
from escrowmq.cli.printing import print_json, print_line
from escrowmq.cli.times import parse_count, parse_duration_ms, parse_whole
from escrowmq.net.clock import SystemClock

if TYPE_CHECKING:
    from escrowmq.client.admin.transactions import PendingTransaction, TransactionFilter
    from escrowmq.client.blocking.admin import Admin

_PENDING = ("waiting", "asked", "parked")
_WHO = {
    "producer": "its producer",
    "check": "the answer to a check, of",
    "operator": "an operator,",
    "broker": "the broker, after the last check",
}
_COLUMNS = ("MESSAGE", "TOPIC", "GROUP", "STATE", "AGE", "CHECKS", "KEYS", "BROKER", "ID")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the verb's actions and options to its parser."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, about in (
        ("list", "list pending transactions"),
        ("count", "count pending transactions"),
    ):
        _add_filter_options(add_action(actions, name, about))
    add_live_options(
        add_action(actions, "top", "show pending transactions live, by producer group")
    )
    show = add_action(actions, "show", "show all that is known of one transaction")
    commit = add_action(actions, "commit", "commit a transaction in its producer's place")
    rollback = add_action(actions, "rollback", "roll back a transaction in its producer's place")
    for one in (show, commit, rollback):
        one.add_argument("transaction", metavar="ID", help="transaction id, or a message's id")
        one.add_argument(
            "--topic", default="", help="topic of the message, needed for a producer's message id"
        )
    check = add_action(actions, "check", "ask producers at once: about one transaction or several")
    check.add_argument("transaction", metavar="ID", nargs="?", default="")
    _add_filter_options(check)
    discarded = add_action(actions, "discarded", "list transactions that were given up")
    resume = add_action(actions, "resume", "make discarded transactions pending again")
    resume.add_argument("offset_id", metavar="OFFSET_ID", nargs="?", default="")
    resume.add_argument(
        "--limit", type=parse_count, default=200, help="maximum number of messages (default 200)"
    )
    for one in (discarded, resume):
        one.add_argument("--topic", default="")
        one.add_argument("--group", default="")
    rotate = add_action(actions, "rotate-key", "sign transaction ids with a new key")
    rotate.add_argument("--broker", default="", help="only this broker (default: all)")
    for one in (commit, rollback, check, resume, rotate):
        one.add_argument("--reason", default="", help="reason, for the brokers' audit log")
    add_dry_run_option(commit, rollback, check, resume, rotate)


def _add_filter_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic")
    parser.add_argument("--group", help="producer group")
    parser.add_argument("--bundle", help="id that messages of one transaction have in common")
    parser.add_argument("--state", choices=["waiting", "asked", "parked"])
    for name, also, about in (
        ("min", "older-than", "at least"),
        ("max", "younger-than", "at most"),
    ):
        parser.add_argument(
            f"--{also}",
            dest=f"{name}_age_ms",
            metavar="SPAN",
            type=parse_duration_ms,
            help=f"stored {about} this long ago: 90s, 5m, 2h, 1d",
        )
        parser.add_argument(
            f"--{name}-age-ms", type=parse_whole, metavar="MS", help="the same in milliseconds"
        )


def run(arguments: argparse.Namespace) -> int:
    """Run the verb's action; return the exit code."""
    return run_action(arguments, lambda admin: _run(admin, arguments))


def _run(admin: Admin, arguments: argparse.Namespace) -> int:
    transactions = admin.transactions
    match arguments.action:
        case "list":
            return _print_transactions(transactions.pending(**_make_filter(arguments)), arguments)
        case "count":
            return _run_count(admin, arguments)
        case "top":
            change = ChangeRates(SystemClock().now_ms)
            return show_live(arguments, lambda: _live_rows(admin, change))
        case "show":
            return _print_transaction(admin, arguments)
        case "discarded":
            items = transactions.discarded(topic=arguments.topic, group=arguments.group)
            return _print_transactions(items, arguments)
        case _ if arguments.dry_run:
            return _run_preview(admin, arguments)
        case "commit" | "rollback":
            return _run_settle(admin, arguments)
        case "check":
            which = _make_filter(arguments)
            count = transactions.check(arguments.transaction, reason=arguments.reason, **which)
            return print_change(arguments, {"count": count}, f"{count} asked about")
        case "resume":
            return _run_resume(admin, arguments)
        case _:
            keys = transactions.rotate_key(broker=arguments.broker, reason=arguments.reason)
            text = ", ".join(f"{broker}: key {key}" for broker, key in keys.items())
            return print_change(arguments, {"keys": keys}, text)


def _run_preview(admin: Admin, arguments: argparse.Namespace) -> int:
    from escrowmq.client.admin.previews import transactions as previews

    match arguments.action:
        case "commit" | "rollback" as verdict:
            named, topic = arguments.transaction, arguments.topic
            found = call_preview(admin, previews.settle, named, verdict, topic=topic)
        case "check":
            which = _make_filter(arguments)
            found = call_preview(admin, previews.check, arguments.transaction, **which)
        case "resume":
            found = call_preview(
                admin,
                previews.resume,
                arguments.offset_id,
                topic=arguments.topic,
                group=arguments.group,
                limit=arguments.limit,
            )
        case _:
            found = call_preview(admin, previews.rotate_key, broker=arguments.broker)
    return print_preview(arguments, found)


def _live_rows(admin: Admin, change: ChangeRates) -> Iterator[Row]:
    found = admin.transactions.count()
    oldest_ms = SystemClock().now_ms() - found.oldest_ms if found.oldest_ms > 0 else 0
    yield (
        f"{found.count} pending ({change.rate('', found.count)})",
        f"{found.parked} without a reachable producer",
        f"oldest {format_span(oldest_ms)}",
    )
    if found.missing or found.not_counted:
        yield (f"not counted: {', '.join([*found.missing, *found.not_counted])}",)
    yield ("GROUP", "PENDING", "CHANGE", "UNREACHABLE")
    for group, count in largest_counts(found.by_group):
        yield group, count, change.rate(group, count), found.parked_by_group.get(group, 0)


def _make_filter(arguments: argparse.Namespace) -> TransactionFilter:
    found: TransactionFilter = {}
    for name in ("topic", "group", "bundle", "state", "min_age_ms", "max_age_ms"):
        value = getattr(arguments, name)
        if value is not None:
            found[name] = value
    return found


def _print_transactions(items: Any, arguments: argparse.Namespace) -> int:  # noqa: ANN401 - an iterator
    print_items(items, is_json=arguments.json, columns=_COLUMNS, row=_transaction_row)
    return OK


def _transaction_row(item: PendingTransaction) -> tuple[object, ...]:
    name = item.id or item.offset_id
    return (
        item.message_id, item.topic, item.group, item.state, format_span(item.age_ms), item.checks,
        item.keys, item.broker, name,
    )  # fmt: skip


def _run_count(admin: Admin, arguments: argparse.Namespace) -> int:
    found = admin.transactions.count(**_make_filter(arguments))
    if arguments.json:
        print_json(found)
        return OK
    print_line(
        f"{found.count} pending, {found.parked} parked, oldest {format_moment(found.oldest_ms)}"
    )
    if found.not_counted:
        print_line(
            f"not counted: {', '.join(found.not_counted)} (RocketMQ's brokers cannot say it)"
        )
    for name, count in sorted(found.by_topic.items()):
        print_line("topic", name, count)
    for name, count in sorted(found.by_group.items()):
        parked = found.parked_by_group.get(name)
        print_line("group", name, count, *([f"{parked} with nobody to ask"] if parked else []))
    return OK


def _print_transaction(admin: Admin, arguments: argparse.Namespace) -> int:
    for item in admin.transactions.show(arguments.transaction, topic=arguments.topic):
        if arguments.json:
            print_json(item)
            continue
        print_line(f"message {item.message_id}")
        for name, value in (
            ("state", item.state), ("topic", item.topic), ("group", item.group),
            ("keys", item.keys), ("tags", item.tags), ("broker", item.broker),
            ("born", format_moment(item.born_ms)), ("stored", format_moment(item.stored_ms)),
            ("checks", item.checks), *_next_check_or_end(item), ("body size", item.body_size),
            ("id", item.id), ("offset id", item.offset_id),
        ):  # fmt: skip
            print_line(f"  {name:<11}{value if value != '' else '-'}")
        for event in item.events:
            print_line(
                f"  {format_moment(event.at_ms)} {event.what} {event.who} {event.detail}".rstrip()
            )
    return OK


def _next_check_or_end(item: PendingTransaction) -> list[tuple[str, object]]:
    """Return when the next check is due, or when and by whom the transaction was settled, as titles
    and values."""
    if item.state in _PENDING:
        return [("next check", format_moment(item.next_check_ms)), ("origin", item.origin)]
    return [
        ("settled", format_moment(item.ended_ms)),
        ("by", f"{_WHO.get(item.ended_by, '')} {item.ended_who}".strip()),
        ("reason", item.reason),
    ]


def _run_settle(admin: Admin, arguments: argparse.Namespace) -> int:
    transactions = admin.transactions
    settle = transactions.commit if arguments.action == "commit" else transactions.rollback
    outcome = settle(arguments.transaction, topic=arguments.topic, reason=arguments.reason)
    return print_change(arguments, {"outcome": outcome}, outcome)


def _run_resume(admin: Admin, arguments: argparse.Namespace) -> int:
    count = admin.transactions.resume(
        arguments.offset_id,
        topic=arguments.topic,
        group=arguments.group,
        limit=arguments.limit,
        reason=arguments.reason,
    )
    return print_change(arguments, {"count": count}, f"{count} pending again")
