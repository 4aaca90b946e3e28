"""`escrowmq check-from-db`: answers checks from a service's database while the service is down, and
sends the messages kept in the database."""

from __future__ import annotations

import argparse
import datetime as dt
import logging
import signal
import threading
from typing import TYPE_CHECKING, Final

from escrowmq.cli.cluster_verbs import add_tls_options, one_line, tls_of
from escrowmq.cli.databases import add_database_options, database_of
from escrowmq.cli.printing import print_line
from escrowmq.cli.secrets import add_credential_options, credentials_of
from escrowmq.cli.times import parse_amount
from escrowmq.errors import EscrowMQError, UsageError

if TYPE_CHECKING:
    from escrowmq.integrations.dbapi import Outbox

_log = logging.getLogger(__name__)

_DAY_S: Final = 24 * 3_600


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options to its parser."""
    parser.set_defaults(action="run")
    add_database_options(parser)
    parser.add_argument("--group", required=True, help="the service's producer group")
    parser.add_argument(
        "-n",
        "--name-servers",
        metavar="HOST:PORT[;HOST:PORT]",
        help="name servers (default: the environment variable NAMESRV_ADDR)",
    )
    parser.add_argument("--create-tables", action="store_true", help="create missing tables")
    parser.add_argument(
        "--forget-after",
        type=parse_amount,
        metavar="DAYS",
        help="once a day, delete markers older than this that no broker can ask for",
    )
    parser.add_argument(
        "--gone",
        action="append",
        default=[],
        metavar="BROKER",
        help="a broker that is gone for good, so that --forget-after does not wait for it; may "
        "be repeated",
    )
    parser.add_argument("--namespace", default="", help="namespace of topics and groups")
    add_credential_options(parser)
    add_tls_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Answer checks from the database until a signal ends this; return the exit code."""
    from escrowmq.client.blocking.producer import Producer
    from escrowmq.integrations.dbapi import Outbox
    from escrowmq.integrations.dbapi.addresses import make_connector
    from escrowmq.integrations.outbox.expiry import check_keep_time, timedelta_ms
    from escrowmq.node.logs import log_to_stderr

    log_to_stderr(arguments.log_level)
    keep = None if arguments.forget_after is None else dt.timedelta(days=arguments.forget_after)
    if keep is not None:
        check_keep_time(timedelta_ms(keep))
    elif arguments.gone:
        raise UsageError("--gone names brokers that --forget-after does not wait for; give both")
    connect = make_connector(database_of(arguments), must_exist=not arguments.create_tables)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    with Producer(
        arguments.name_servers,
        group=arguments.group,
        credentials=credentials_of(arguments),
        namespace=arguments.namespace,
        tls=tls_of(arguments),
    ) as producer:
        outbox = Outbox(producer, connect, schema=arguments.schema, when_away="keep")
        if arguments.create_tables:
            outbox.create_tables()
        print_line(f"escrowmq ready group={arguments.group} database={outbox.find_name()}")
        while not stop.is_set():
            if keep is not None:
                _forget_markers(outbox, keep, gone=arguments.gone)
            stop.wait(_DAY_S)
    return 0


def _forget_markers(outbox: Outbox, keep: dt.timedelta, *, gone: list[str]) -> None:
    try:
        count = outbox.forget_markers(keep=keep, gone=gone)
    except EscrowMQError as error:  # a clock that is wrong, too: checks are answered all the same
        _log.warning("markers are kept for another day: %s", one_line(error))
    else:
        gone.clear()  # a broker that is back is not gone
        _log.info("%d markers older than %s were deleted", count, keep)
