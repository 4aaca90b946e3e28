"""`escrowmq mcp`: the console's API for language models, by the Model Context Protocol."""

from __future__ import annotations

import argparse
import os

from escrowmq.cli.cluster_verbs import add_tls_options, tls_of
from escrowmq.cli.secrets import add_credential_options, credentials_of
from escrowmq.errors import UsageError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options to its parser."""
    parser.add_argument(
        "-n",
        "--name-servers",
        metavar="HOST:PORT[,HOST:PORT]",
        help="name servers (default: the environment variable NAMESRV_ADDR)",
    )
    parser.add_argument(
        "--allow-changes",
        action="store_true",
        help="let the model propose changes, and apply them",
    )
    parser.add_argument("--no-bodies", action="store_true", help="show the model no message bodies")
    parser.add_argument("--namespace", default="", help="namespace of topics and groups")
    add_credential_options(parser)
    add_tls_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve standard input and output until they are closed; return the exit code."""
    import asyncio

    from escrowmq.base.extras import require_extra
    from escrowmq.client.client_settings import NAME_SERVERS_VARIABLE
    from escrowmq.client.core.addresses import parse_addresses
    from escrowmq.console.options import ConsoleOptions
    from escrowmq.node.logs import log_to_stderr

    try:
        require_extra("mcp", "mcp")
    except ImportError as error:
        raise UsageError(str(error)) from error
    from escrowmq.console.model_tools import serve_stdio

    log_to_stderr(arguments.log_level, is_json=arguments.log_format == "json")
    names = arguments.name_servers or os.environ.get(NAME_SERVERS_VARIABLE, "")
    parse_addresses(names)
    options = ConsoleOptions(
        name_servers=names,
        login="local",
        credentials=credentials_of(arguments),
        tls=tls_of(arguments),
        namespace=arguments.namespace,
    )
    asyncio.run(
        serve_stdio(
            options,
            allows_changes=arguments.allow_changes,
            shows_bodies=not arguments.no_bodies,
        )
    )
    return 0
