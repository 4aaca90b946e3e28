"""Options shared by the actions of `escrowmq pipeline`: session, cluster, folders, lease."""

from __future__ import annotations

import argparse
import importlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from escrowmq.cli.cluster_verbs import parse_pairs, tls_of
from escrowmq.cli.secrets import SECRET_ENV, STDIN, access_key_of, credentials_of, secret_of
from escrowmq.cli.times import parse_time_ms
from escrowmq.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from escrowmq.client.blocking.admin import Admin
    from escrowmq.client.lease_base import Lease
    from escrowmq.pipeline.reconcile.live_messages import TransactionSource


_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
"""Matches a URL scheme, which means that a folder is not on this machine."""

_PLACES: Final = ("{", "earliest", "latest", "group:")
"""Beginnings of places that the source's options name; others are times."""


def new_session(arguments: argparse.Namespace) -> SparkSession:
    """Return the Spark session that the options describe, or the existing one."""
    from escrowmq.pipeline.session import start_session

    return start_session(
        f"escrowmq {arguments.action}",
        master=arguments.master,
        settings=parse_pairs(arguments.conf),
        kind=getattr(arguments, "format", "parquet"),
    )


def source_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the source's options about addresses, accounts and TLS."""
    found = dict(parse_pairs(arguments.option))
    servers = arguments.name_servers or os.environ.get("NAMESRV_ADDR", "")
    if not servers:
        raise UsageError("no name server is given: use -n HOST:PORT, or set NAMESRV_ADDR")
    if arguments.namespace:
        raise UsageError(
            "--namespace is not used here, nor is a context's; write whole names, as "
            "NAMESPACE%TOPIC"
        )
    found["nameServer"] = servers
    access_key = access_key_of(arguments)
    if access_key:
        found["accessKey"] = access_key
        if arguments.secret_key_file:
            if arguments.secret_key_file == STDIN:
                raise UsageError(
                    "--secret-key-file -: every machine must read the secret; name a file"
                )
            found["secretKeyFile"] = arguments.secret_key_file
        else:
            if arguments.master and not arguments.master.startswith("local"):
                raise UsageError("on a cluster the secret comes from --secret-key-file")
            os.environ[SECRET_ENV] = secret_of(arguments)
            found["secretKeyEnv"] = SECRET_ENV
    tls = tls_of(arguments)
    if tls is not None:
        found["useTls"] = "true"
        named = {"tlsCaFile": tls.trusted, "tlsCertFile": tls.certificate, "tlsKeyFile": tls.key}
        found |= {name: str(value) for name, value in named.items() if value}
        if not tls.verify:
            found["tlsVerify"] = "false"
        if not tls.checks_name:
            found["tlsCheckName"] = "false"
    return found


def new_admin(arguments: argparse.Namespace) -> Admin:
    """Make an admin client of the cluster."""
    from escrowmq.client.blocking.admin import Admin

    return Admin(
        arguments.name_servers, credentials=credentials_of(arguments), tls=tls_of(arguments),
        request_timeout_ms=max(1, int(arguments.timeout * 1000)),
    )  # fmt: skip


def message_source(
    spark: SparkSession, arguments: argparse.Namespace, admin: Admin | None
) -> TransactionSource:
    """Return the source from which jobs read halves, op records and messages: a cluster, or folders
    with stores."""
    compares_bodies = getattr(arguments, "compare_bodies", False)
    if arguments.store:
        from escrowmq.pipeline.reconcile.stored_messages import FileMessages

        return FileMessages(
            spark, parse_stores(arguments.store), options=parse_pairs(arguments.option),
            skipped=arguments.skip_topic, skipped_brokers=arguments.skip_broker,
            compares_bodies=compares_bodies,
        )  # fmt: skip
    from escrowmq.pipeline.reconcile.live_messages import BrokerMessages

    assert admin is not None, "without stores there is a cluster"
    return BrokerMessages(
        spark, source_options(arguments), admin=admin, skipped=arguments.skip_topic,
        skipped_brokers=arguments.skip_broker, compares_bodies=compares_bodies,
    )  # fmt: skip


def parse_stores(words: Iterable[str]) -> dict[str, str]:
    """Parse `NAME=DIR` into folders by name; if there is only one, `DIR` is enough. Raises
    UsageError if two have the same name, because one of them would not be read."""
    found: dict[str, str] = {}
    for word in words:
        name, mark, folder = word.partition("=")
        if not mark:
            name, folder = "", word
        if name in found:
            which = f"the name {name!r}" if name else "no name"
            raise UsageError(
                f"--store {found[name]} and --store {folder} have {which}; give each store the "
                "name of its own broker, as NAME=DIR"
            )
        found[name] = folder
    return found


def import_compensation() -> Any:  # noqa: ANN401 - a module
    """Import the package that uses Redis. Raises UsageError if its dependency is missing."""
    try:
        return importlib.import_module("escrowmq.compensation")
    except ImportError as error:
        raise UsageError("Redis needs a package; pip install 'escrowmq[compensation]'") from error


def new_lease(arguments: argparse.Namespace) -> Lease:
    """Make the lease to hold while tables are written."""
    # Every spelling of a folder is one lease. Spark, Hadoop and Java write `file:/x`.
    folder = re.sub(r"^file:/+", "/", arguments.out).rstrip("/") or "/"
    is_local = not _SCHEME.match(folder)
    if arguments.lease:
        name = str(Path(folder).absolute()) if is_local else folder
        lease: Lease = import_compensation().RedisLease(arguments.lease, f"escrowmq:{name}")
        return lease
    if not is_local:
        raise UsageError(f"no lease can be stored in {arguments.out}; give --lease REDIS_URL")
    from escrowmq.pipeline.reconcile.lease import FileLease

    return FileLease(folder)


def range_options(arguments: argparse.Namespace, *, topics: str) -> dict[str, str]:
    """Return the source's options about a range of topics."""
    found = source_options(arguments) | {"subscribe": topics}
    for side, text in (("starting", arguments.begin), ("ending", arguments.end)):
        if text.lower().startswith(_PLACES):
            found[f"{side}Offsets"] = text
        elif text:
            try:
                found[f"{side}Timestamp"] = str(parse_time_ms(text))
            except argparse.ArgumentTypeError as error:
                raise UsageError(str(error)) from error
    if "startingTimestamp" in found:
        found["startingOffsetsByTimestampStrategy"] = "latest"
    if arguments.tags:
        found["tags"] = arguments.tags
    return found
