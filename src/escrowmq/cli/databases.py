"""Options for the address of a service's database."""

from __future__ import annotations

import argparse
import os
from typing import Final

from escrowmq.errors import UsageError

DATABASE_ENV: Final = "ESCROWMQ_DATABASE"


def add_database_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the database's address and the schema of the outbox's tables."""
    parser.add_argument(
        "database",
        nargs="?",
        default="",
        metavar="ADDRESS",
        help="postgresql://user@host/name, mariadb://... or sqlite:///file; if it has a "
        f"password, set the environment variable {DATABASE_ENV} instead",
    )
    parser.add_argument("--schema", default="", help="schema of the outbox's tables")


def database_of(arguments: argparse.Namespace) -> str:
    """Return the database's address. Raises UsageError if none was given."""
    address: str = arguments.database or os.environ.get(DATABASE_ENV, "")
    if not address:
        raise UsageError(f"no database; give its address, or set {DATABASE_ENV}")
    return address
