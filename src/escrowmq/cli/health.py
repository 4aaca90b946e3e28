"""`escrowmq health`: reports whether a server on this machine is alive, for the health checks of
images and service managers."""

from __future__ import annotations

import argparse
import http.client
import os
import urllib.error
import urllib.request
from typing import Final

from escrowmq.cli.printing import print_error_line, print_line
from escrowmq.cli.times import parse_seconds
from escrowmq.errors import UsageError

DEFAULT: Final = "127.0.0.1:8082"
ADDRESS_ENV: Final = "ESCROWMQ_HTTP"
_PORT_MAX: Final = 65_535
_TEXT_MAX: Final = 4_096
_OK, _NO, _UNUSABLE = 0, 1, 2


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options to its parser; the verb has no actions."""
    parser.add_argument(
        "address",
        metavar="HOST:PORT",
        nargs="?",
        help=f"the server's http port (default: the variable {ADDRESS_ENV}, or {DEFAULT})",
    )
    parser.add_argument(
        "--ready",
        action="store_true",
        help="whether clients should be sent there (/readyz), instead of whether it is alive "
        "(/healthz)",
    )
    parser.add_argument(
        "--timeout",
        type=parse_seconds,
        default=5.0,
        metavar="SECONDS",
        help="timeout per request (default 5)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Return 0 if the server is healthy, 1 if it reports a problem, 2 if it does not answer."""
    address = arguments.address or os.environ.get(ADDRESS_ENV) or DEFAULT
    host, separator, port = address.rpartition(":")
    if not (separator and host and port.isdecimal() and int(port) <= _PORT_MAX):
        raise UsageError(f"{address}: HOST:PORT is expected, such as {DEFAULT}")
    url = f"http://{address}/{'readyz' if arguments.ready else 'healthz'}"
    try:
        with urllib.request.urlopen(url, timeout=arguments.timeout) as reply:
            print_line(reply.read(_TEXT_MAX).decode(errors="replace").strip())
        return _OK
    except urllib.error.HTTPError as error:
        with error:
            print_error_line(error.read(_TEXT_MAX).decode(errors="replace").strip())
        return _NO
    # The server that answers may speak another protocol: the port of the broker, for example.
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        reason = getattr(error, "reason", None) or error
        print_error_line(
            f"escrowmq health: {url} does not answer: {reason or type(error).__name__}"
        )
        return _UNUSABLE
