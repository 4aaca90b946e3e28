"""`escrowmq console`: the web console and its API for any cluster, including Apache RocketMQ's."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from escrowmq.cli.cluster_verbs import add_tls_options, tls_of
from escrowmq.cli.secrets import add_credential_options, credentials_of
from escrowmq.errors import UsageError

PORT: Final = 8082
_FOLDER: Final = "escrowmq-console"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options to its parser."""
    parser.add_argument(
        "-n",
        "--name-servers",
        metavar="HOST:PORT[,HOST:PORT]",
        help="name servers (default: the environment variable NAMESRV_ADDR)",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument(
        "--http-port", type=int, default=PORT, help=f"0 means any free port (default {PORT})"
    )
    parser.add_argument(
        "--login",
        choices=["local", "accounts"],
        default="local",
        help="who may log in: the console's own users (local), or accounts of the brokers, each "
        "with its own rights (default local)",
    )
    parser.add_argument(
        "--data", metavar="DIR", help=f"folder of the generated password (default ~/{_FOLDER})"
    )
    parser.add_argument(
        "--console-password-file", metavar="FILE", help="file with the password of `admin`"
    )
    parser.add_argument(
        "--console-viewer-file", metavar="FILE", help="file with the password of `viewer`"
    )
    parser.add_argument(
        "--console-proxies",
        metavar="ADDRESS[,ADDRESS]",
        default="",
        help="addresses or networks of the reverse proxies in front of the console, whose header "
        "X-Forwarded-For names the client (default: none; the proxy itself counts as the client)",
    )
    parser.add_argument("--namespace", default="", help="namespace of topics and groups")
    add_credential_options(parser)
    add_tls_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until stopped; return the exit code."""
    from escrowmq.base.extras import require_extra
    from escrowmq.client.client_settings import NAME_SERVERS_VARIABLE
    from escrowmq.client.core.addresses import parse_addresses
    from escrowmq.console.local_users import read_local_users
    from escrowmq.console.options import ConsoleOptions, LocalUser, parse_proxies
    from escrowmq.node.logs import log_to_stderr
    from escrowmq.node.serve_console import serve_console

    try:
        require_extra("console", "starlette", "uvicorn", "jinja2")
    except ImportError as error:
        raise UsageError(str(error)) from error
    log_to_stderr(arguments.log_level, is_json=arguments.log_format == "json")
    names = arguments.name_servers or os.environ.get(NAME_SERVERS_VARIABLE, "")
    parse_addresses(names)
    proxies = parse_proxies(arguments.console_proxies)
    users: tuple[LocalUser, ...] = ()
    if arguments.login == "local":
        users = read_local_users(
            arguments.data or str(Path.home() / _FOLDER),
            password_file=arguments.console_password_file,
            viewer_file=arguments.console_viewer_file,
        )
    options = ConsoleOptions(
        name_servers=names,
        login=arguments.login,
        users=users,
        credentials=credentials_of(arguments) if arguments.login == "local" else None,
        proxies=proxies,
        tls=tls_of(arguments),
        namespace=arguments.namespace,
    )
    return serve_console(options, host=arguments.host, port=arguments.http_port)
