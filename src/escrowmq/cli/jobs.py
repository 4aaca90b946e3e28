"""What `escrowmq pipeline` does, action by action."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from escrowmq.cli.asking import NO, OK, one_line, pairs, show_json, tls_of, told
from escrowmq.cli.pipeline import time_ms
from escrowmq.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from escrowmq.client.blocking.admin import Admin
    from escrowmq.client.lease import Lease
    from escrowmq.pipeline.analytics.job import FunnelJob
    from escrowmq.pipeline.reconcile.results import Results
    from escrowmq.pipeline.reconcile.run import Report
    from escrowmq.pipeline.reconcile.tables import Messages

_SECRET_ENV: Final = "ESCROWMQ_SECRET_KEY"  # noqa: S105 - the name of a variable


def _session(arguments: argparse.Namespace) -> SparkSession:
    from escrowmq.pipeline.session import start_session

    return start_session(
        f"escrowmq {arguments.action}",
        master=arguments.master,
        settings=pairs(arguments.conf),
        kind=getattr(arguments, "format", "parquet"),
    )


def _options(arguments: argparse.Namespace) -> dict[str, str]:
    """The source's options about addresses, accounts and TLS."""
    found = dict(pairs(arguments.option))
    servers = arguments.name_servers or os.environ.get("NAMESRV_ADDR", "")
    if not servers:
        raise UsageError("no name server is given: use -n HOST:PORT, or set NAMESRV_ADDR")
    found["nameServer"] = servers
    if arguments.access_key:
        found["accessKey"] = arguments.access_key
        if arguments.secret_key_file:
            found["secretKeyFile"] = arguments.secret_key_file
        else:
            if arguments.master and not arguments.master.startswith("local"):
                raise UsageError("on a cluster the secret comes from --secret-key-file")
            os.environ[_SECRET_ENV] = arguments.secret_key or ""
            found["secretKeyEnv"] = _SECRET_ENV
    tls = tls_of(arguments)
    if tls is not None:
        found["useTls"] = "true"
        named = {"tlsCaFile": tls.trusted, "tlsCertFile": tls.certificate, "tlsKeyFile": tls.key}
        found |= {name: str(value) for name, value in named.items() if value}
        if not tls.verify:
            found["tlsVerify"] = "false"
    return found


def _admin(arguments: argparse.Namespace) -> Admin:
    from escrowmq.client.blocking.admin import Admin
    from escrowmq.client.options import Credentials

    credentials = None
    if arguments.access_key:
        secret = arguments.secret_key or ""
        if arguments.secret_key_file:
            secret = Path(arguments.secret_key_file).read_text().strip()
        credentials = Credentials(arguments.access_key, secret)
    return Admin(
        arguments.name_servers, credentials=credentials, tls=tls_of(arguments),
        request_timeout_ms=max(1, int(arguments.timeout * 1000)),
    )  # fmt: skip


def _messages(spark: SparkSession, arguments: argparse.Namespace, admin: Admin | None) -> Messages:
    if arguments.store:
        from escrowmq.pipeline.reconcile.files import FileMessages

        folders = dict(_named(each) for each in arguments.store)
        return FileMessages(
            spark, folders, options=pairs(arguments.option), skipped=arguments.skip_topic
        )
    from escrowmq.pipeline.reconcile.tables import BrokerMessages

    assert admin is not None, "without stores there is a cluster"
    return BrokerMessages(spark, _options(arguments), admin=admin, skipped=arguments.skip_topic)


def _named(word: str) -> tuple[str, str]:
    name, mark, folder = word.partition("=")
    return (name, folder) if mark else ("", word)


def _lease(arguments: argparse.Namespace) -> Lease:
    if arguments.lease:
        from escrowmq.compensation import RedisLease

        return RedisLease(arguments.lease, f"escrowmq:{arguments.out}")
    if "://" in arguments.out and not arguments.out.startswith("file:"):
        raise UsageError(f"{arguments.out} can hold no lease; give --lease REDIS_URL")
    from escrowmq.pipeline.reconcile.lease import FileLease

    return FileLease(arguments.out.removeprefix("file://"))


def _place(arguments: argparse.Namespace, *, topics: str) -> dict[str, str]:
    """The source's options about a range of topics."""
    found = _options(arguments) | {"subscribe": topics}
    for side, text in (("starting", arguments.begin), ("ending", arguments.end)):
        if text.startswith("{") or text in ("earliest", "latest"):
            found[f"{side}Offsets"] = text
        elif text:
            try:
                found[f"{side}Timestamp"] = str(time_ms(text))
            except argparse.ArgumentTypeError as error:
                raise UsageError(str(error)) from error
    if "startingTimestamp" in found:
        found["startingOffsetsByTimestampStrategy"] = "latest"
    if arguments.tags:
        found["tags"] = arguments.tags
    return found


# -- reconcile -------------------------------------------------------------------------------


def _reconcile(arguments: argparse.Namespace) -> int:
    from escrowmq.pipeline.reconcile.run import Reconciler, Settings
    from escrowmq.pipeline.session import Bar

    _check(arguments)
    settings = Settings(
        grace_s=arguments.grace, overdue_s=arguments.overdue, lookback_s=arguments.lookback,
        since_ms=arguments.since, until_ms=arguments.until, groups=tuple(arguments.group),
    )  # fmt: skip
    with nullcontext() if arguments.store else _admin(arguments) as admin:
        spark = _session(arguments)
        job = Reconciler(
            spark, _messages(spark, arguments, admin), arguments.out, settings=settings,
            rows=_rows(arguments), kind=arguments.format,
        )  # fmt: skip
        with Bar(spark) as bar:
            report = job.run(lease=_lease(arguments), on_step=bar.step)
        deeds: Mapping[str, int] = {}
        if arguments.redo or arguments.dry_run:
            assert admin is not None, "checked before"
            deeds = _redo(arguments, admin, job.results, report.run)
    _tell(arguments, report, deeds)
    counts = {name.replace(" ", "-"): count for name, count in report.classes.items()}
    exceeded = {
        name: counts[name]
        for name, allowed in arguments.fail_on.items()
        if counts.get(name, 0) > allowed
    }
    for name, count in exceeded.items():
        print(f"{name}: {count}, {arguments.fail_on[name]} allowed", file=sys.stderr)
    return NO if exceeded else OK


def _check(arguments: argparse.Namespace) -> None:
    from escrowmq.pipeline.reconcile.table import check_format

    check_format(arguments.format)
    if arguments.store and (arguments.redo or arguments.dry_run):
        raise UsageError("only a live cluster can be mended; leave out --store")
    if bool(arguments.database) != bool(arguments.query):
        raise UsageError("--database and --query go together")
    if arguments.rows and arguments.database:
        raise UsageError("the rows come from --rows or from --database, not from both")
    if not arguments.store:
        _options(arguments)


def _rows(arguments: argparse.Namespace) -> Any:  # noqa: ANN401 - Rows, or None
    from escrowmq.pipeline.reconcile import business

    if arguments.rows:
        return business.from_files(
            arguments.rows, message_id=arguments.rows_id, at=arguments.rows_at
        )
    if not arguments.database:
        return None
    try:
        import psycopg
    except ImportError as error:
        raise UsageError("--database needs psycopg; pip install 'psycopg[binary]'") from error

    def connect() -> Any:  # noqa: ANN401 - DB-API has no types
        try:
            return psycopg.connect(arguments.database)
        except psycopg.OperationalError as error:
            raise UsageError(f"no connection to the database: {one_line(error)}") from error

    return business.from_database(connect, arguments.query)


def _redo(
    arguments: argparse.Namespace, admin: Admin, results: Results, run_number: int
) -> Mapping[str, int]:
    from escrowmq.pipeline.brokers.keyed import KeyedSender
    from escrowmq.pipeline.brokers.options import Given, parse_access
    from escrowmq.pipeline.reconcile.redo import Redo

    logging.getLogger("escrowmq.audit").setLevel(logging.INFO)
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    access = parse_access(Given(_options(arguments)), needs_name_server=True)
    rows = results.differences.read().where(f"lastRun = {run_number}").orderBy("at")
    with _lease(arguments) as lease, KeyedSender(access, group="escrowmq-redo") as sender:
        redo = Redo(
            admin, sender, business=_business(arguments.business), per_s=arguments.rate,
            is_dry=not arguments.redo,
        )  # fmt: skip
        return redo.run(rows.toLocalIterator(), may_go_on=lambda: lease.is_held)


def _business(named: str) -> Any:  # noqa: ANN401 - the user's
    if not named:
        return None
    module, _, name = named.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"--business {named}: {error}; MODULE:NAME is expected") from error
    return found() if isinstance(found, type) else found


def _tell(arguments: argparse.Namespace, report: Report, deeds: Mapping[str, int]) -> None:
    if arguments.json:
        show_json(msgspec.to_builtins(report) | {"deeds": dict(deeds)})
        return
    print(report.balance)
    for name, count in sorted(report.classes.items()):
        print(f"{count}\t{name}")
    for name, count in sorted(report.odd.items()):
        if count:
            print(f"{count}\t{name}: records that were not understood")
    for name, count in sorted(deeds.items()):
        print(f"{count}\t{name}")


# -- funnel, export, replay ------------------------------------------------------------------


def _funnel(arguments: argparse.Namespace) -> int:
    from escrowmq.pipeline.analytics.job import FunnelJob
    from escrowmq.pipeline.session import Bar

    with nullcontext() if arguments.store else _admin(arguments) as admin:
        spark = _session(arguments)
        job = FunnelJob(
            spark, _messages(spark, arguments, admin), arguments.out, kind=arguments.format,
            since_ms=arguments.since,
        )  # fmt: skip
        with Bar(spark) as bar:
            job.run(lease=_lease(arguments), on_step=bar.step)
            if arguments.deliveries:
                bar.step("counting deliveries")
                job.count_deliveries(_deliveries(spark, arguments, job))
            if arguments.report:
                from escrowmq.pipeline.analytics.report import write_report

                bar.step("drawing")
                write_report(job, arguments.report)
        rows = job.funnel.read().orderBy("day", "topic", "producerGroup").collect()
    for row in rows:
        found = row.asDict(recursive=True) | {"day": str(row["day"])}
        if arguments.json:
            show_json(found)
        else:
            print("\t".join(f"{name}={value}" for name, value in found.items()))
    return OK


def _deliveries(spark: SparkSession, arguments: argparse.Namespace, job: FunnelJob) -> DataFrame:
    """All messages of the topics that transactions are for, and what consumers gave back."""
    from escrowmq.pipeline.analytics.job import DELIVERY

    pattern = "|".join([*map(re.escape, job.topics()), "%RETRY%.*"])
    options = {"subscribePattern": pattern, "includeBody": "false"}
    if job.since_day_ms:
        options["startingTimestamp"] = str(job.since_day_ms)
        options["startingOffsetsByTimestampStrategy"] = "latest"
    reader = spark.read.format("escrowmq").schema(DELIVERY)
    if not arguments.store:
        return reader.options(**_options(arguments), **options).load()
    found = [
        reader.options(**pairs(arguments.option), **options, storePath=folder).load()
        for _, folder in map(_named, arguments.store)
    ]
    return reduce(lambda one, other: one.unionByName(other), found)


def _export(arguments: argparse.Namespace) -> int:
    from escrowmq.pipeline.copies.export import export, export_range
    from escrowmq.pipeline.session import Bar

    options = _place(arguments, topics=",".join(arguments.topics))
    spark = _session(arguments)
    with Bar(spark) as bar:
        bar.step("writing")
        if arguments.end:
            export_range(spark, options, arguments.out, kind=arguments.format)
            return told(arguments, {"written": True}, "written")
        count = export(spark, options, arguments.out, kind=arguments.format)
    return told(arguments, {"count": count}, f"{count} messages added")


def _replay(arguments: argparse.Namespace) -> int:
    from escrowmq.pipeline.brokers.options import Given, parse_access
    from escrowmq.pipeline.copies import replay
    from escrowmq.pipeline.session import Bar

    options = _place(arguments, topics=arguments.topic)
    access = parse_access(Given(_options(arguments)), needs_name_server=True)
    target = replay.Target(access=access, topic=arguments.to_topic, per_s=arguments.rate)
    spark = _session(arguments)
    messages = spark.read.format("escrowmq").schema(replay.SOURCE).options(**options).load()
    keyed = replay.with_keys(messages, topic=target.topic)
    with Bar(spark) as bar:
        bar.step("sending" if arguments.send else "counting")
        if not arguments.twice:
            present = replay.present_ids(spark, _options(arguments), target.topic)
            keyed = replay.unsent(keyed, present)
        if arguments.send:
            count = sum(row["sent"] for row in replay.send(keyed, target).collect())
            return told(arguments, {"sent": count}, f"{count} messages sent")
        count = keyed.count()
    return told(
        arguments, {"wouldSend": count}, f"{count} messages would be sent; --send sends them"
    )


DEEDS: Final[dict[str, Callable[[argparse.Namespace], int]]] = {
    "reconcile": _reconcile,
    "funnel": _funnel,
    "export": _export,
    "replay": _replay,
}
