"""`escrowmq`: parses the command line and runs one verb."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from escrowmq.cli.option_order import move_options
from escrowmq.cli.printing import print_error_line, print_line
from escrowmq.errors import EscrowMQError

EXIT_BAD = 2
EXIT_PIPE: Final = 128 + signal.SIGPIPE
"""A shell's exit code for a program whose output is no longer read."""


_VERBS_WITHOUT_ACTIONS: Final = frozenset(
    {"console", "health", "completion", "doctor", "events", "mcp"}
)
"""Verbs that have a module of their own and no actions."""

Fill = Callable[[argparse.ArgumentParser], None]

_VERBS: Final = {
    "topic": "topics: list, show, create, update, delete",
    "group": "consumer groups: list, show, create, update, delete",
    "message": "messages: show, explain, find, at, send, resend, deliver",
    "tx": "pending transactions: list, show, commit, check, ...",
    "cluster": "brokers and their copies: status, switch, rebuild, drill",
    "offset": "offsets of consumer groups: show, reset, clone",
    "doctor": "what is wrong in a cluster, and what to do",
    "events": "what happened in a cluster: starts, brokers that left, changed settings",
    "acl": "access control: user, policy, explain",
    "store": "inspect a data folder: check, dump",
    "health": "check whether a server on this machine is alive, or ready",
    "context": "names for clusters: list, show, set, use, delete",
    "completion": "a script that completes commands in bash, zsh or fish",
    "pipeline": "jobs on Spark: reconcile, funnel, export, replay",
    "console": "a web console and an API for a cluster",
    "mcp": "the console's API for language models, over standard input and output",
    "check-from-db": "answer checks from a service's database while the service is down or scaled "
    "to zero",
    "outbox": "messages kept in a service's database: status",
}
"""Verbs that have a module of their own."""


class _VerbParser(argparse.ArgumentParser):
    """The parser of one verb. Its options are declared only when the verb is used. Declaring the
    nine hundred options of all verbs would delay the start of a server by 30 ms of 270."""

    def __init__(self, *words: Any, fill: Fill | None = None, **named: Any) -> None:  # noqa: ANN401
        super().__init__(*words, **named)
        self._fill = fill

    def declare_options(self) -> None:
        """Declare the options, unless that was done already."""
        fill, self._fill = self._fill, None
        if fill is not None:
            fill(self)

    def parse_known_args(self, *words: Any, **named: Any) -> Any:  # noqa: ANN401
        """Declare the options, then parse like the base class."""
        self.declare_options()
        return super().parse_known_args(*words, **named)


class _VersionAction(argparse.Action):
    """Prints the build. The build is determined only then, because in a checkout git must be
    asked."""

    def __init__(self, option_strings: Sequence[str], dest: str, **named: Any) -> None:  # noqa: ANN401
        super().__init__(option_strings, dest=argparse.SUPPRESS, nargs=0, **named)

    def __call__(self, parser: argparse.ArgumentParser, *words: object) -> None:
        from escrowmq.node.build import release_with_commit

        print_line(f"escrowmq {release_with_commit()}")
        parser.exit()


def _add_server_options(
    parser: argparse.ArgumentParser, *, data: str, port: str | None, host: str = "127.0.0.1"
) -> None:
    parser.add_argument("--data", metavar="DIR", help=data)
    parser.add_argument("--host", help=f"address to listen on (default {host})")
    if port is not None:
        parser.add_argument("--port", type=int, help=f"0 means any free port (default {port})")
    parser.add_argument("-c", dest="file", metavar="FILE", help="RocketMQ's own properties file")
    parser.add_argument(
        "--set",
        dest="pairs",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="override one key of the file; may be repeated",
    )


def _add_grpc_option(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--grpc-port",
        type=int,
        help=f"port for clients of RocketMQ 5; 0 means any, -1 none (default {default})",
    )


def _add_http_option(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--http-port",
        type=int,
        help="port of the console, its API, /healthz, /readyz and /metrics; 0 means any, -1 none "
        f"(default {default})",
    )
    parser.add_argument(
        "--console-password-file",
        metavar="FILE",
        help="file with the password of the console's user admin (default: the first start "
        "generates one)",
    )
    parser.add_argument(
        "--console-viewer-file",
        metavar="FILE",
        help="file with the password of a user `viewer`, who can see everything and change nothing",
    )
    parser.add_argument(
        "--console-proxies",
        metavar="ADDRESS[,ADDRESS]",
        default="",
        help="addresses or networks of reverse proxies whose X-Forwarded-For names the client",
    )


def _add_serve_options(parser: argparse.ArgumentParser) -> None:
    _add_server_options(parser, data="data folder (default ~/store)", port=None)
    parser.add_argument(
        "--nameserver-host", help="address of the name server, if it is not that of --host"
    )
    parser.add_argument("--nameserver-port", type=int, help="default 9876; 0 means any")
    parser.add_argument("--broker-port", dest="port", type=int, help="default 10911; 0 means any")
    _add_grpc_option(parser, "8081")
    _add_http_option(parser, "8082")


def _add_nameserver_options(parser: argparse.ArgumentParser) -> None:
    _add_server_options(parser, data="folder of kvConfig.json (default ~/namesrv)", port="9876")


def _add_broker_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n", dest="name_servers", metavar="HOST:PORT[;HOST:PORT]", help="name servers"
    )
    parser.add_argument(
        "--authority",
        metavar="URL",
        help="join the group of brokers with this name; the URL of the engine that decides "
        "which of them is the master (etcd://HOST:PORT[,HOST:PORT], s3://BUCKET/PREFIX, "
        "kubernetes://)",
    )
    parser.add_argument(
        "--settings", action="store_true", help="list every setting with its default, and exit"
    )
    _add_server_options(parser, data="data folder (default ~/store)", port="10911")
    _add_grpc_option(parser, "none")
    _add_http_option(parser, "none")
    _import_verb("broker").add_options(parser)


def _import_verb(verb: str) -> Any:  # noqa: ANN401 - a module of this folder
    name = "brokers" if verb == "broker" else verb.replace("-", "_")
    return importlib.import_module(f"escrowmq.cli.{name}")


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="escrowmq",
        description="Transactional messaging that speaks Apache RocketMQ.",
    )
    parser.add_argument(
        "--version",
        action=_VersionAction,
        help="show the version, and exit",
    )
    parser.add_argument(
        "--log-level",
        default="info",
        choices=["debug", "info", "warning", "error"],
        help="lowest level that servers log to standard error (default info)",
    )
    parser.add_argument(
        "--log-format",
        default=os.environ.get("ESCROWMQ_LOG_FORMAT", "text"),
        choices=["text", "json"],
        help="format of log lines: text, or one JSON object per line (default: the environment "
        "variable ESCROWMQ_LOG_FORMAT, or text)",
    )
    verbs = parser.add_subparsers(
        dest="verb", required=True, metavar="COMMAND", parser_class=_VerbParser
    )
    verbs.add_parser("serve", help="name server and broker in one process", fill=_add_serve_options)
    verbs.add_parser("nameserver", help="a name server alone", fill=_add_nameserver_options)
    about = "a broker alone; list, show, config and set work on running ones"
    verbs.add_parser("broker", help=about, fill=_add_broker_options)
    for verb, about in _VERBS.items():
        fill = functools.partial(_add_verb_options, verb)
        verbs.add_parser(verb, help=about, description=about, fill=fill)
    return parser


def _add_verb_options(verb: str, parser: argparse.ArgumentParser) -> None:
    _import_verb(verb).add_options(parser)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code. If the command cannot start, print one line on
    standard error and return 2."""
    try:
        try:
            return _main(argv)
        finally:
            # Flush here, because the interpreter would print the exception at its end.
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough: `| head`
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE


def _main(argv: Sequence[str] | None) -> int:
    parser = build_parser()
    if not (sys.argv[1:] if argv is None else argv):
        parser.print_help(sys.stderr)
        raise SystemExit(EXIT_BAD)
    arguments = parser.parse_args(move_options(sys.argv[1:] if argv is None else argv))
    try:
        return _run(arguments)
    except EscrowMQError as error:
        print_error_line(f"escrowmq {arguments.verb}: {error}")
        return EXIT_BAD
    except BrokenPipeError:
        raise
    except OSError as error:
        print_error_line(f"escrowmq {arguments.verb}: {error}")
        return EXIT_BAD


def _console_proxies(arguments: argparse.Namespace) -> tuple[str, ...]:
    text: str = getattr(arguments, "console_proxies", "")
    if not text:
        return ()  # a server without a console imports none of it
    from escrowmq.console.options import parse_proxies

    return parse_proxies(text)


def _run(arguments: argparse.Namespace) -> int:
    if getattr(arguments, "action", None) is not None or arguments.verb in _VERBS_WITHOUT_ACTIONS:
        code: int = _import_verb(arguments.verb).run(arguments)
        return code
    from escrowmq.node import serve
    from escrowmq.node.logs import log_to_stderr

    log_to_stderr(arguments.log_level, is_json=arguments.log_format == "json")
    options = serve.ServeOptions(
        data=arguments.data,
        host=arguments.host,
        port=arguments.port,
        grpc_port=getattr(arguments, "grpc_port", None),
        http_port=getattr(arguments, "http_port", None),
        console_password_file=getattr(arguments, "console_password_file", None),
        console_viewer_file=getattr(arguments, "console_viewer_file", None),
        console_proxies=_console_proxies(arguments),
        file=arguments.file,
        pairs=arguments.pairs,
        nameserver_host=getattr(arguments, "nameserver_host", None),
        nameserver_port=getattr(arguments, "nameserver_port", None),
        name_servers=getattr(arguments, "name_servers", None),
        authority=getattr(arguments, "authority", None),
    )
    match arguments.verb:
        case "serve":
            return serve.serve_embedded(options)
        case "nameserver":
            return serve.serve_nameserver(options)
        case _:
            if arguments.settings:
                from escrowmq.cli.settings_list import print_settings

                return print_settings()
            return serve.serve_broker(options)
