"""Code shared by the verbs that query a cluster: its address, the output, the exit codes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from escrowmq.base.human_format import format_moment
from escrowmq.cli.contexts import fill_from_context
from escrowmq.cli.error_codes import print_error
from escrowmq.cli.printing import print_error_line, print_json, print_line, set_yaml
from escrowmq.cli.secrets import add_credential_options, credentials_of
from escrowmq.cli.times import parse_seconds
from escrowmq.errors import EscrowMQError, ResponseError, UsageError

if TYPE_CHECKING:
    from escrowmq.client.blocking.admin import Admin
    from escrowmq.client.producer_settings import ConnectionSettings
    from escrowmq.client.tls import Tls

OK: Final = 0
REFUSED: Final = 1
"""Exit code if the cluster refused: something was not found, not allowed, or had ended in another
way."""
UNUSABLE: Final = 2
"""Exit code if the cluster could not be queried: bad arguments, or no server at the address."""

_MS: Final = 1000

_ALL_BROKERS_ACTIONS: Final = frozenset(
    {
        ("tx", "list"), ("tx", "count"), ("tx", "show"), ("tx", "check"), ("tx", "discarded"),
        ("group", "list"), ("group", "show"), ("offset", "show"), ("topic", "list"),
        ("topic", "show"), ("message", "find"), ("message", "show"),
    }
)  # fmt: skip
"""Actions whose answers would look complete even if a broker is missing; a warning is printed
then."""


def add_action(
    actions: Any,  # noqa: ANN401 - argparse has no public name for it
    name: str,
    about: str,
) -> argparse.ArgumentParser:
    """Add an action with the options that all actions have."""
    parser: argparse.ArgumentParser = actions.add_parser(name, help=about, description=about)
    add_cluster_options(parser)
    return parser


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the cluster, the account, and the output format."""
    parser.add_argument(
        "-n",
        "--name-servers",
        metavar="HOST:PORT[;HOST:PORT]",
        help="name servers (default: the environment variable NAMESRV_ADDR, or the context's)",
    )
    parser.add_argument(
        "--context", metavar="NAME", default="", help="a cluster by its name (`escrowmq context`)"
    )
    parser.add_argument(
        "-o", "--output", choices=["table", "json", "yaml"], default="table",
        help="for people (default) or for programs",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="the same as --output json")
    add_credential_options(parser)
    parser.add_argument("--namespace", default="", help="namespace of topics and groups")
    add_tls_options(parser)
    parser.add_argument(
        "--timeout",
        type=parse_seconds,
        default=5.0,
        metavar="SECONDS",
        help="timeout per request (default 5)",
    )


def add_name_actions(
    parser: argparse.ArgumentParser,
    noun: str,
    *,
    actions: Mapping[str, str],
) -> dict[str, argparse.ArgumentParser]:
    """Add the actions of a verb about named things, such as topics, each with its help. All except
    `list` take a name. Return their parsers."""
    group = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    found = {name: add_action(group, name, what) for name, what in actions.items()}
    for name, action in found.items():
        if name not in ("list", "top"):
            action.add_argument(noun, metavar=noun.upper())
    return found


def add_tls_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of TLS; any of them turns TLS on."""
    parser.add_argument("--tls", action="store_true", help="use TLS")
    parser.add_argument(
        "--tls-trusted",
        metavar="FILE",
        default="",
        help="trusted root certificates, PEM (default: the system's)",
    )
    parser.add_argument("--tls-cert", metavar="FILE", default="", help="your own certificate, PEM")
    parser.add_argument(
        "--tls-key", metavar="FILE", default="", help="the key of your certificate, PEM"
    )
    parser.add_argument(
        "--tls-any-name", action="store_true", help="accept a certificate for another address"
    )
    parser.add_argument("--tls-no-verify", action="store_true", help="accept any certificate")


def tls_of(arguments: argparse.Namespace) -> Tls | None:
    """Return the TLS settings from the options; None for no TLS."""
    from escrowmq.client.tls import Tls

    wanted = Tls(
        trusted=arguments.tls_trusted,
        certificate=arguments.tls_cert,
        key=arguments.tls_key,
        checks_name=not arguments.tls_any_name,
        verify=not arguments.tls_no_verify,
    )
    return wanted if arguments.tls or wanted != Tls() else None


def connection_settings_of(arguments: argparse.Namespace) -> ConnectionSettings:
    """Return the settings of a client of this cluster, from the options."""
    return {
        "credentials": credentials_of(arguments),
        "namespace": arguments.namespace,
        "tls": tls_of(arguments),
        "request_timeout_ms": max(1, int(arguments.timeout * _MS)),
    }


def fill_options(arguments: argparse.Namespace) -> None:
    """Apply --output, and fill in missing options from the context. Every verb that has the options
    of `add_cluster_options` must call this before it reads them."""
    if arguments.output != "table":
        vars(arguments).update(json=True)
    set_yaml(is_wanted=arguments.output == "yaml")
    fill_from_context(arguments)


def run_action(arguments: argparse.Namespace, work: Callable[[Admin], int]) -> int:
    """Run an action with an open admin client; return the exit code. An error is printed as one
    line on standard error."""
    from escrowmq.client.blocking.admin import Admin

    action = getattr(arguments, "action", "")
    where = f"escrowmq {arguments.verb} {action}".rstrip()
    try:
        fill_options(arguments)
        with Admin(arguments.name_servers, **connection_settings_of(arguments)) as admin:
            try:
                return work(admin)
            finally:
                if (arguments.verb, action) in _ALL_BROKERS_ACTIONS:
                    _warn_of_missing_brokers(admin)
    except EscrowMQError as error:
        print_error(error, where=where, is_json=arguments.json)
        return REFUSED if isinstance(error, ResponseError) else UNUSABLE
    except BrokenPipeError:  # the reader has seen enough
        sys.stderr.close()
        return OK


def _warn_of_missing_brokers(admin: Admin) -> None:
    """Print one line on standard error if brokers that left within the last hour are missing in the
    answer."""
    try:
        brokers = admin.brokers.missing()
    except EscrowMQError:  # then the answer failed as well, and says why
        return
    if brokers:
        names = ", ".join(
            f"{one.name} (gone since {format_moment(one.gone_ms)})" for one in brokers
        )
        print_error_line(f"not in this answer: {names}")


def print_names(arguments: argparse.Namespace, names: Iterable[str]) -> int:
    """Print names, one a line, or all as one line of JSON; return the exit code."""
    if arguments.json:
        print_json(names)
    else:
        for name in names:
            print_line(name)
    return OK


def print_items(
    items: Iterable[Any],
    *,
    is_json: bool,
    columns: Sequence[str],
    row: Callable[[Any], Sequence[object]],
) -> int:
    """Print items one a line as they arrive: JSON objects, or columns under a heading. Return their
    number."""
    count = 0
    for item in items:
        if is_json:
            print_json(item)
        else:
            if count == 0:
                print_line(*columns)
            print_line(*(cell if cell not in ("", None) else "-" for cell in row(item)))
        count += 1
    return count


def print_change(arguments: argparse.Namespace, found: object, text: str) -> int:
    """Print the result of a change, for programs or for people; return the exit code."""
    if arguments.json:
        print_json(found)
    else:
        print_line(text)
    return OK


def parse_pairs(words: Iterable[str]) -> dict[str, str]:
    """Make a dictionary from words of the form `KEY=VALUE`."""
    found = {}
    for word in words:
        name, mark, value = word.partition("=")
        if not (name and mark):
            raise UsageError(f"{word}: KEY=VALUE is expected")
        found[name] = value
    return found


def one_line(error: BaseException) -> str:
    """Return an error's text on one line."""
    return " ".join(str(error).split())
