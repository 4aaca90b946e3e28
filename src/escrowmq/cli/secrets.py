"""The account of the command line. Its secret comes from a file, standard input or the environment,
because all users of the machine can read command lines."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from escrowmq.errors import UsageError

if TYPE_CHECKING:
    from escrowmq.client.client_settings import Credentials

ACCESS_ENV: Final = "ESCROWMQ_ACCESS_KEY"
SECRET_ENV: Final = "ESCROWMQ_SECRET_KEY"  # noqa: S105 - the name of a variable
_SECRET_SIZE_MAX: Final = 4_096
STDIN: Final = "-"


def add_credential_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of an account."""
    parser.add_argument(
        "--access-key", help=f"account of brokers with access control (default: {ACCESS_ENV})"
    )
    parser.add_argument(
        "--secret-key-file",
        default="",
        metavar="FILE",
        help=f"file with its secret; - reads one line of standard input (default: {SECRET_ENV})",
    )
    parser.add_argument(
        "--secret-key", help="the secret itself; other users of this machine can see it"
    )


def access_key_of(arguments: argparse.Namespace) -> str:
    """Return the account's key; empty without one."""
    return arguments.access_key or os.environ.get(ACCESS_ENV, "")


def secret_of(arguments: argparse.Namespace) -> str:
    """Return the account's secret; empty without one."""
    if arguments.secret_key_file and arguments.secret_key:
        raise UsageError("--secret-key-file and --secret-key: give one of them")
    if arguments.secret_key_file == STDIN:
        return sys.stdin.readline(_SECRET_SIZE_MAX).strip()
    if arguments.secret_key_file:
        return _read_secret(arguments.secret_key_file)
    return arguments.secret_key or os.environ.get(SECRET_ENV, "")


def credentials_of(arguments: argparse.Namespace) -> Credentials | None:
    """Return key and secret; None unless both are given."""
    from escrowmq.client.client_settings import Credentials

    access_key = access_key_of(arguments)
    if not access_key and not (arguments.secret_key or arguments.secret_key_file):
        return None
    return Credentials(access_key, secret_of(arguments))


def _read_secret(file: str) -> str:
    try:
        with Path(file).open() as text:
            return text.read(_SECRET_SIZE_MAX).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "this is no text"
        raise UsageError(
            f"--secret-key-file {file} cannot be read: {reason}; name a file that contains "
            "only the secret"
        ) from error
