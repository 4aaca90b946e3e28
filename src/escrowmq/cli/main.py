"""`escrowmq`: parses the command line and runs one verb."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any

from escrowmq.cli.saying import complain, say
from escrowmq.errors import EscrowMQError

EXIT_BAD = 2


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:  # noqa: ANN401
        from importlib.metadata import version

        say(f"escrowmq {version('escrowmq')}")
        parser.exit()


def _add_server(
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
        help="override one key of the file; may be given again and again",
    )


def _add_grpc(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--grpc-port",
        type=int,
        help=f"for clients of RocketMQ 5; 0 means any, -1 none (default {default})",
    )


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="escrowmq",
        description="Transactional messaging that speaks Apache RocketMQ.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version, and exit")
    parser.add_argument(
        "--log-level",
        default="info",
        choices=["debug", "info", "warning", "error"],
        help="what servers log to standard error (default info)",
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="COMMAND")

    serve = verbs.add_parser("serve", help="name server and broker in one process")
    _add_server(serve, data="data folder (default ~/store)", port=None)
    serve.add_argument(
        "--nameserver-host", help="address of the name server, where it is not that of --host"
    )
    serve.add_argument("--nameserver-port", type=int, help="default 9876; 0 means any")
    serve.add_argument("--broker-port", dest="port", type=int, help="default 10911; 0 means any")
    _add_grpc(serve, "8081")

    names = verbs.add_parser("nameserver", help="a name server alone")
    _add_server(names, data="folder of kvConfig.json (default ~/namesrv)", port="9876")

    broker = verbs.add_parser(
        "broker", help="a broker alone; list, show, config and set look at running ones"
    )
    broker.add_argument(
        "-n", dest="name_servers", metavar="HOST:PORT[;HOST:PORT]", help="name servers"
    )
    broker.add_argument(
        "--settings", action="store_true", help="list every setting with its default, and exit"
    )
    _add_server(broker, data="data folder (default ~/store)", port="10911")
    _add_grpc(broker, "none")

    from escrowmq.cli import (
        acl,
        brokers,
        check_from_db,
        group,
        message,
        offset,
        pipeline,
        store,
        topic,
        tx,
    )

    brokers.add_actions(broker)
    for verb in (topic, group, message, tx, offset, acl, store, pipeline, check_from_db):
        verb.add_parser(verbs)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. 2 and one line on standard error when it cannot start."""
    parser = build_parser()
    if not (sys.argv[1:] if argv is None else argv):
        parser.print_help(sys.stderr)
        raise SystemExit(EXIT_BAD)
    arguments = parser.parse_args(argv)
    try:
        return _run(arguments)
    except EscrowMQError as error:
        complain(f"escrowmq {arguments.verb}: {error}")
        return EXIT_BAD
    except OSError as error:
        complain(f"escrowmq {arguments.verb}: {error}")
        return EXIT_BAD


def _run(arguments: argparse.Namespace) -> int:
    if getattr(arguments, "action", None) is not None:
        name = "brokers" if arguments.verb == "broker" else arguments.verb.replace("-", "_")
        verb = importlib.import_module(f"escrowmq.cli.{name}")
        code: int = verb.run(arguments)
        return code
    from escrowmq.node import serve
    from escrowmq.node.logs import log_to_stderr

    log_to_stderr(arguments.log_level)
    options = serve.Options(
        data=arguments.data,
        host=arguments.host,
        port=arguments.port,
        grpc_port=getattr(arguments, "grpc_port", None),
        file=arguments.file,
        pairs=arguments.pairs,
        nameserver_host=getattr(arguments, "nameserver_host", None),
        nameserver_port=getattr(arguments, "nameserver_port", None),
        name_servers=getattr(arguments, "name_servers", None),
    )
    match arguments.verb:
        case "serve":
            return serve.serve(options)
        case "nameserver":
            return serve.serve_nameserver(options)
        case _:
            if arguments.settings:
                from escrowmq.cli.settings import show_settings

                return show_settings()
            return serve.serve_broker(options)
