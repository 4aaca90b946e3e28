"""`escrowmq pipeline reconcile`: compares transactions with messages and consumers, and repairs
differences."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from escrowmq.cli.cluster_verbs import OK, REFUSED, one_line
from escrowmq.cli.printing import print_error_line, print_json, print_line
from escrowmq.cli.spark_options import (
    import_compensation,
    message_source,
    new_admin,
    new_lease,
    new_session,
    parse_stores,
    source_options,
)
from escrowmq.errors import UsageError
from escrowmq.node.logs import log_to_stderr

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from escrowmq.client.announced_commits import Sets
    from escrowmq.client.blocking.admin import Admin
    from escrowmq.compensation import RedisSets
    from escrowmq.pipeline.reconcile.commits import CommitReconciler
    from escrowmq.pipeline.reconcile.results import ResultTables
    from escrowmq.pipeline.reconcile.run import Reconciler, RunReport


def run_reconcile(arguments: argparse.Namespace) -> int:
    """Compare transactions with messages and consumers, repair differences if requested, and print
    a report. Return the exit code."""
    from escrowmq.pipeline.session import ProgressBar

    _check_options(arguments)
    lease = new_lease(arguments)  # before Spark takes its seconds to start
    with nullcontext() if arguments.store else new_admin(arguments) as admin:
        spark = new_session(arguments)
        job = _make_reconciler(spark, arguments, admin)
        with ProgressBar(spark) as bar:
            report = job.run(lease=lease, on_step=bar.show_step)
        deeds: Mapping[str, int] = {}
        if arguments.redo or arguments.dry_run:
            assert admin is not None, "checked before"
            deeds = _run_redo(arguments, admin, job.results, report.run)
    _print_report(arguments, report, deeds)
    classes = report.open_classes if arguments.count == "open" else report.classes
    exceeded = {
        name: classes[name]
        for name, allowed in arguments.fail_on.items()
        if classes.get(name, 0) > allowed
    }
    for name, count in exceeded.items():
        allowed = arguments.fail_on[name]
        print_error_line(f"{name}: {count} {arguments.count}, {allowed} allowed")
    return REFUSED if exceeded else OK


def _make_reconciler(
    spark: SparkSession, arguments: argparse.Namespace, admin: Admin | None
) -> Reconciler | CommitReconciler:
    from escrowmq.pipeline.reconcile.commits import CommitReconciler
    from escrowmq.pipeline.reconcile.run import Reconciler, ReconcileSettings

    if arguments.sets or arguments.announcements:
        assert admin is not None, "checked before"
        return CommitReconciler(
            spark, _commit_sets(spark, arguments), arguments.out, admin=admin,
            grace_s=arguments.grace, kind=arguments.format,
        )  # fmt: skip
    settings = ReconcileSettings(
        grace_s=arguments.grace, overdue_s=arguments.overdue, lookback_s=arguments.lookback,
        since_ms=arguments.since, until_ms=arguments.until, groups=tuple(arguments.group),
    )  # fmt: skip
    return Reconciler(
        spark, message_source(spark, arguments, admin), arguments.out, settings=settings,
        rows=_business_rows(arguments), kind=arguments.format,
    )  # fmt: skip


def _commit_sets(spark: SparkSession, arguments: argparse.Namespace) -> Sets:
    """Return the sets of announced and consumed commits."""
    if arguments.sets:
        sets: Sets = _require_complete(
            import_compensation().RedisSets(arguments.sets, name=arguments.sets_name)
        )
        return sets
    from escrowmq.pipeline.reconcile.lost_commits import ComputedSets, announced, consumed
    from escrowmq.pipeline.reconcile.progress import to_spark_time

    reader = spark.read.format("escrowmq").schema("body binary, storeTimestamp timestamp")
    reader = reader.options(**source_options(arguments))
    if arguments.since:
        reader = reader.option("startingTimestamp", str(arguments.since))
        reader = reader.option("startingOffsetsByTimestampStrategy", "latest")
    messages = reader.option("subscribe", arguments.announcements).load()
    rows = _business_rows(arguments)(spark, to_spark_time(arguments.since))
    return ComputedSets(announced(messages), consumed(rows))


def _require_complete(sets: RedisSets) -> RedisSets:
    """Return the sets if they are complete. Otherwise raise, because the job would wrongly report
    that nothing is lost."""
    if not sets.is_whole():
        raise UsageError(
            "the sets on that Redis server are not whole: none of this name (--sets-name), or the "
            "server has lost its data; an AnnouncementReader fills them (docs/compensation.md)"
        )
    return sets


def _check_options(arguments: argparse.Namespace) -> None:
    if arguments.store and (arguments.redo or arguments.dry_run):
        raise UsageError("only a live cluster can be repaired; leave out --store")
    _check_set_options(arguments)
    if bool(arguments.database) != bool(arguments.query):
        raise UsageError("--database and --query go together")
    if arguments.rows and arguments.database:
        raise UsageError("the rows come from --rows or from --database, not from both")
    if arguments.store:
        parse_stores(arguments.store)
    else:
        source_options(arguments)


def _check_set_options(arguments: argparse.Namespace) -> None:
    if not (arguments.sets or arguments.announcements):
        return
    if arguments.sets and arguments.announcements:
        raise UsageError("the sets are those of --sets or those of --announcements, not both")
    has_rows = bool(arguments.rows or arguments.database)
    if arguments.announcements and not has_rows:
        raise UsageError("--announcements needs what was consumed: --rows, or --database")
    if arguments.sets and has_rows:
        raise UsageError("the consumed set of --sets has the business's rows; leave them out")
    only_halves = ["store", "group", "skip_topic", "skip_broker", "until", "compare_bodies"]
    for name in [*only_halves, *(["since"] if arguments.sets else [])]:
        if getattr(arguments, name):
            raise UsageError(f"--{name.replace('_', '-')} has no meaning for announced commits")


def _business_rows(arguments: argparse.Namespace) -> Any:  # noqa: ANN401 - Rows, or None
    from escrowmq.pipeline.reconcile import business

    if arguments.rows:
        return business.from_files(
            arguments.rows,
            message_id=arguments.rows_id,
            at=arguments.rows_at,
            topic=arguments.rows_topic,
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


def _run_redo(
    arguments: argparse.Namespace, admin: Admin, results: ResultTables, run_number: int
) -> Mapping[str, int]:
    from escrowmq.pipeline.brokers.keyed_sends import KeyedSender
    from escrowmq.pipeline.brokers.options import UserOptions, parse_access
    from escrowmq.pipeline.reconcile.repair import Redo

    log_to_stderr("warning", "%(message)s")
    access = parse_access(UserOptions(source_options(arguments)), needs_name_server=True)
    rows = results.differences.read().where(f"lastRun = {run_number}").orderBy("at")
    with new_lease(arguments) as lease, KeyedSender(access, group="escrowmq-redo") as sender:
        redo = Redo(
            admin, sender, business=_import_business(arguments.business), per_s=arguments.rate,
            is_dry=not arguments.redo,
        )  # fmt: skip
        return redo.run(rows.toLocalIterator(), may_go_on=lambda: lease.is_held)


def _import_business(named: str) -> Any:  # noqa: ANN401 - the user's
    if not named:
        return None
    module, _, name = named.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"--business {named}: {error}; MODULE:NAME is expected") from error
    return found() if isinstance(found, type) else found


def _print_report(
    arguments: argparse.Namespace, report: RunReport, deeds: Mapping[str, int]
) -> None:
    if arguments.json:
        print_json(msgspec.to_builtins(report) | {"deeds": dict(deeds)})
        return
    print_line(report.balance)
    for name in sorted(report.open_classes.keys() | report.classes.keys()):
        count, found = report.open_classes.get(name, 0), report.classes.get(name, 0)
        print_line(count, name if count == found else f"{name}, {found} found by this run")
    for name, count in sorted(report.odd.items()):
        if count:
            print_line(count, f"{name}: records that were not understood")
    for name, count in sorted(deeds.items()):
        print_line(count, name)
