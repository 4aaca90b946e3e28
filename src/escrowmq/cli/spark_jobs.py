"""The actions of `escrowmq pipeline funnel | export | replay`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial, reduce
from typing import TYPE_CHECKING, Final

from escrowmq.cli.cluster_verbs import OK, parse_pairs, print_change
from escrowmq.cli.printing import print_json, print_line
from escrowmq.cli.reconcile import run_reconcile
from escrowmq.cli.spark_options import (
    message_source,
    new_admin,
    new_lease,
    new_session,
    parse_stores,
    range_options,
    source_options,
)
from escrowmq.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from escrowmq.pipeline.analytics.job import FunnelJob


def _run_funnel(arguments: argparse.Namespace) -> int:
    from escrowmq.pipeline.analytics.job import FunnelJob
    from escrowmq.pipeline.session import ProgressBar

    parse_stores(arguments.store)  # an error is told before Spark takes its seconds to start
    with nullcontext() if arguments.store else new_admin(arguments) as admin:
        spark = new_session(arguments)
        job = FunnelJob(
            spark, message_source(spark, arguments, admin), arguments.out, kind=arguments.format,
            since_ms=arguments.since,
        )  # fmt: skip
        with ProgressBar(spark) as bar:
            deliveries = partial(_read_deliveries, spark, arguments, job)
            job.run(
                lease=new_lease(arguments), on_step=bar.show_step,
                deliveries=deliveries if arguments.deliveries else None,
            )  # fmt: skip
            if arguments.report:
                from escrowmq.pipeline.analytics.report import write_report

                bar.show_step("drawing")
                write_report(job, arguments.report)
        rows = job.funnel.read().orderBy("day", "topic", "producerGroup").collect()
    for row in rows:
        found = row.asDict(recursive=True) | {"day": str(row["day"])}
        if arguments.json:
            print_json(found)
        else:
            print_line(*(f"{name}={value}" for name, value in found.items()))
    return OK


def _read_deliveries(
    spark: SparkSession, arguments: argparse.Namespace, job: FunnelJob
) -> DataFrame:
    """Return all messages in the topics of transactions, and those that consumers returned for
    redelivery."""
    from pyspark.sql.functions import lit

    from escrowmq.pipeline.analytics.job import DELIVERY_COLUMNS

    pattern = "|".join([*map(re.escape, job.transaction_topics()), "%RETRY%.*"])
    options = {"subscribePattern": pattern, "includeBody": "false"}
    if job.since_day_ms:
        options["startingTimestamp"] = str(job.since_day_ms)
        options["startingOffsetsByTimestampStrategy"] = "latest"
    reader = spark.read.format("escrowmq").schema(DELIVERY_COLUMNS)
    if not arguments.store:
        return reader.options(**source_options(arguments), **options).load()
    found = [
        reader.options(**parse_pairs(arguments.option), **options, storePath=folder)
        .load()
        .withColumn("brokerName", lit(name))
        for name, folder in parse_stores(arguments.store).items()
    ]
    return reduce(lambda one, other: one.unionByName(other), found)


def _run_export(arguments: argparse.Namespace) -> int:
    from escrowmq.pipeline.copies.export import export, export_range
    from escrowmq.pipeline.session import ProgressBar

    options = range_options(arguments, topics=",".join(arguments.topics))
    spark = new_session(arguments)
    with ProgressBar(spark) as bar:
        bar.show_step("writing")
        if arguments.end:
            export_range(spark, options, arguments.out, kind=arguments.format)
            return print_change(arguments, {"written": True}, "written")
        count = export(spark, options, arguments.out, kind=arguments.format)
    return print_change(arguments, {"count": count}, f"{count} messages added")


def _run_replay(arguments: argparse.Namespace) -> int:
    from escrowmq.pipeline.brokers.options import UserOptions, parse_access
    from escrowmq.pipeline.copies import replay
    from escrowmq.pipeline.session import ProgressBar

    if arguments.to_topic in [name.strip() for name in arguments.topic.split(",")]:
        raise UsageError(
            f"{arguments.to_topic} would be replayed into itself, and each run would copy the "
            "copies; give another --to-topic"
        )
    options = range_options(arguments, topics=arguments.topic)
    access = parse_access(UserOptions(source_options(arguments)), needs_name_server=True)
    target = replay.ReplayTarget(access=access, topic=arguments.to_topic, per_s=arguments.rate)
    spark = new_session(arguments)
    messages = spark.read.format("escrowmq").schema(replay.SOURCE_COLUMNS).options(**options).load()
    keyed = replay.with_copy_keys(messages, topic=target.topic)
    with ProgressBar(spark) as bar:
        bar.show_step("sending" if arguments.send else "counting")
        present = None
        if not arguments.twice:
            present = replay.present_copies(spark, source_options(arguments), target.topic)
        keyed = replay.mark_copied(keyed, present)
        if not arguments.send:
            count, skipped = replay.count_copies(keyed)
            text = f"{count} messages would be sent{_skipped(skipped)}; --send sends them"
            return print_change(arguments, {"wouldSend": count, "skipped": skipped}, text)
        parts = replay.send_copies(keyed, target).collect()
    count, skipped = (sum(part[name] for part in parts) for name in ("sent", "skipped"))
    text = f"{count} messages sent{_skipped(skipped)}"
    return print_change(arguments, {"sent": count, "skipped": skipped}, text)


def _skipped(count: int) -> str:
    return f" ({count} skipped: the target has them)" if count else ""


DEEDS: Final[dict[str, Callable[[argparse.Namespace], int]]] = {
    "reconcile": run_reconcile,
    "funnel": _run_funnel,
    "export": _run_export,
    "replay": _run_replay,
}
