"""`escrowmq health`: whether a server on this machine lives, for the health checks of images and
service managers."""

from __future__ import annotations

import argparse
import os
import urllib.error
import urllib.request
from typing import Final

from escrowmq.cli.printing import complain, say
from escrowmq.errors import UsageError

DEFAULT: Final = "127.0.0.1:8082"
ADDRESS_ENV: Final = "ESCROWMQ_HTTP"
_TEXT_MAX: Final = 4_096
_OK, _NO, _UNUSABLE = 0, 1, 2


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its options; it has no actions."""
    parser.add_argument(
        "address",
        metavar="HOST:PORT",
        nargs="?",
        help=f"the server's http port (default: the variable {ADDRESS_ENV}, or {DEFAULT})",
    )
    parser.add_argument(
        "--ready",
        action="store_true",
        help="whether clients should be sent there (/readyz), instead of whether it lives "
        "(/healthz)",
    )
    parser.add_argument(
        "--timeout", type=float, default=5.0, metavar="SECONDS", help="per request (default 5)"
    )


def run(arguments: argparse.Namespace) -> int:
    """0 when all is well, 1 when the server says that it is not, 2 when it does not answer."""
    address = arguments.address or os.environ.get(ADDRESS_ENV) or DEFAULT
    host, separator, port = address.rpartition(":")
    if not (separator and host and port.isdecimal()):
        raise UsageError(f"{address}: HOST:PORT is expected, such as {DEFAULT}")
    url = f"http://{address}/{'readyz' if arguments.ready else 'healthz'}"
    try:
        with urllib.request.urlopen(url, timeout=arguments.timeout) as reply:
            say(reply.read(_TEXT_MAX).decode(errors="replace").strip())
        return _OK
    except urllib.error.HTTPError as error:
        with error:
            complain(error.read(_TEXT_MAX).decode(errors="replace").strip())
        return _NO
    except OSError as error:
        reason = getattr(error, "reason", None) or error
        complain(f"escrowmq health: {url} does not answer: {reason}")
        return _UNUSABLE
