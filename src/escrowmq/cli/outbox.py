"""`escrowmq outbox status ADDRESS`: messages in a service's database that wait for a broker."""

from __future__ import annotations

import argparse
from typing import Final

from escrowmq.cli.databases import add_database_options, database_of
from escrowmq.cli.printing import print_json, print_line

_MS: Final = 1_000


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the verb's actions and options to its parser."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    status = actions.add_parser(
        "status",
        help="show the messages that are kept in the database until a broker can be reached",
    )
    add_database_options(status)
    status.add_argument("--json", action="store_true", help="machine-readable output")


def run(arguments: argparse.Namespace) -> int:
    """Query the database; return the exit code."""
    from escrowmq.integrations.dbapi.addresses import make_connector
    from escrowmq.integrations.dbapi.outbox import BlockingDatabase
    from escrowmq.integrations.outbox import kept
    from escrowmq.integrations.outbox.steps import run_steps as converse

    connect = make_connector(database_of(arguments), must_exist=True)
    database = BlockingDatabase(connect, schema=arguments.schema)
    found = converse(kept.query_status(database.family), database.execute)
    if arguments.json:
        print_json({"kept": found.count, "bytes": found.size, "oldestMs": found.oldest_ms})
        return 0
    print_line("KEPT", "BYTES", "OLDEST")
    print_line(found.count, found.size, f"{found.oldest_ms / _MS:.0f} s" if found.count else "-")
    return 0
