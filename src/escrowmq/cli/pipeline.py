"""`escrowmq pipeline reconcile | funnel | export | replay`: jobs on Spark.

Exit codes: 0 on success, 1 if a threshold is exceeded or something was refused, 2 if the job could
not run."""

from __future__ import annotations

import argparse
from typing import Final

from escrowmq import errors
from escrowmq.cli.cluster_verbs import REFUSED, UNUSABLE, add_action, fill_options, one_line
from escrowmq.cli.printing import print_error_line
from escrowmq.cli.times import parse_amount, parse_time_ms
from escrowmq.errors import EscrowMQError, PermissionDenied, ResponseError

_ERRORS: Final = "escrowmq.errors."
_ABOUT: Final = {
    "reconcile": "find transactions that halves, ends, messages, consumers and rows disagree about",
    "funnel": "how many transactions are committed, how long it takes, what is stuck",
    "export": "copy topics into a table, partitioned by topic and day",
    "replay": "send a range of a topic to a topic again",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the verb's actions and options to its parser."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    found = {name: add_action(actions, name, about) for name, about in _ABOUT.items()}
    for one in found.values():
        _add_session_options(one)
    for name in ("reconcile", "funnel"):
        _add_source_options(found[name])
    for name in ("reconcile", "funnel", "export"):
        found[name].add_argument(
            "--out", required=True, type=_parse_folder, metavar="DIR", help="result folder"
        )
        found[name].add_argument(
            "--format", default="parquet",
            help="format of the tables: parquet (default), delta, iceberg, "
                "iceberg:CATALOG.NAMESPACE",
        )  # fmt: skip
    _add_reconcile_action(found["reconcile"])
    found["funnel"].add_argument("--report", metavar="FILE", help="also write an HTML report")
    found["funnel"].add_argument(
        "--deliveries", action="store_true", help="count duplicate deliveries"
    )
    _add_range_options(found["export"])
    found["export"].add_argument("topics", metavar="TOPIC", nargs="+")
    _add_range_options(found["replay"])
    _add_replay_action(found["replay"])


def _add_session_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--master", default="", help="Spark's master (default local[*])")
    parser.add_argument(
        "--conf",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a setting of Spark; may be repeated",
    )
    parser.add_argument(
        "--option", metavar="KEY=VALUE", action="append", default=[],
        help="an option of the source (docs/spark.md)",
    )  # fmt: skip


def _add_source_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store", metavar="[NAME=]DIR", action="append", default=[],
        help="read the files of a store instead of asking brokers; repeat for each broker",
    )  # fmt: skip
    parser.add_argument(
        "--skip-topic", metavar="TOPIC", action="append", default=[], help="leave a topic out"
    )
    parser.add_argument(
        "--skip-broker", metavar="NAME", action="append", default=[],
        help="leave out a broker that is down, or gone for good",
    )  # fmt: skip
    parser.add_argument("--since", type=parse_time_ms, default=0, help="where the first run begins")
    parser.add_argument(
        "--lease", default="", metavar="REDIS_URL", help="keep the lease there, not in --out"
    )


def _add_range_options(parser: argparse.ArgumentParser) -> None:
    what = "a time, or offsets as startingOffsets has them"
    parser.add_argument("--from", dest="begin", default="", metavar="PLACE", help=what)
    parser.add_argument("--to", dest="end", default="", metavar="PLACE", help=what)
    parser.add_argument("--tags", default="", help="only these tags, as `a || b`")


def _add_reconcile_action(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--until", type=parse_time_ms, default=0, help="an earlier end of the range"
    )
    for name, default, about in (
        ("grace", 120.0, "younger messages are on their way"),
        ("overdue", 600.0, "halves that are open for longer are overdue"),
        ("lookback", 3_600.0, "how much of the last run's range is read again"),
    ):
        parser.add_argument(
            f"--{name}", type=parse_amount, default=default, metavar="SECONDS",
            help=f"{about} (default {default:g})",
        )  # fmt: skip
    parser.add_argument(
        "--group", action="append", default=[], help="a group to check for unconsumed messages"
    )
    parser.add_argument(
        "--rows", default="", metavar="KIND:PATH", help="the business's rows, in files"
    )
    for name, column in (("id", "messageId"), ("at", "at"), ("topic", "")):
        parser.add_argument(f"--rows-{name}", default=column, metavar="COLUMN")
    parser.add_argument(
        "--database", default="", metavar="URL", help="the business's rows, in PostgreSQL"
    )
    parser.add_argument(
        "--query", default="", metavar="SQL",
        help="select message id, topic (or null) and time; the one parameter is the earliest time",
    )  # fmt: skip
    parser.add_argument(
        "--compare-bodies", action="store_true",
        help="read all bodies, and compare those of halves and of their messages",
    )  # fmt: skip
    parser.add_argument(
        "--sets", default="", metavar="REDIS_URL",
        help="compare the sets of compensation on this Redis server, instead of halves and ends",
    )  # fmt: skip
    parser.add_argument("--sets-name", default="escrowmq", metavar="NAME")
    parser.add_argument(
        "--announcements", default="", metavar="TOPIC",
        help="the same without Redis: what this topic announces, and the business's rows",
    )  # fmt: skip
    parser.add_argument(
        "--fail-on", type=_parse_thresholds, default={}, metavar="CLASS=N,...",
        help="exit with 1 if there are more, for example overdue=0,two-finals=0",
    )  # fmt: skip
    parser.add_argument(
        "--count", choices=["open", "new"], default="open",
        help="what --fail-on counts: all unrepaired differences (default), or those of this run",
    )  # fmt: skip
    acting = parser.add_mutually_exclusive_group()
    acting.add_argument("--dry-run", action="store_true", help="only list what would be repaired")
    acting.add_argument(
        "--redo", action="store_true", help="repair what can be repaired automatically"
    )
    parser.add_argument(
        "--business", default="", metavar="MODULE:NAME",
        help="an object with apply(message), called for messages without a row",
    )  # fmt: skip
    rate_help = "repairs a second (default 50)"
    parser.add_argument("--rate", type=parse_amount, default=50.0, help=rate_help)


def _add_replay_action(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--to-topic", required=True, metavar="TOPIC")
    parser.add_argument(
        "--rate", type=parse_amount, default=0.0, help="messages a second (default: all)"
    )
    parser.add_argument(
        "--twice", action="store_true", help="do not skip messages that the target already has"
    )
    acting = parser.add_mutually_exclusive_group()
    acting.add_argument(
        "--send", action="store_true", help="send the messages; without it they are only counted"
    )
    acting.add_argument("--dry-run", action="store_true", help="only count, as without --send")


def _parse_folder(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty; name a folder")
    return text


def _parse_thresholds(text: str) -> dict[str, int]:
    """Parse the allowed numbers of differences by class; class names are written with hyphens."""
    found: dict[str, int] = {}
    for word in text.split(","):
        name, _, number = word.partition("=")
        if name.strip() not in _CLASSES or not number.strip().isdecimal():
            raise argparse.ArgumentTypeError(
                f"{word!r}: CLASS=N is expected, with one of {', '.join(_CLASSES)}"
            )
        found[name.strip()] = int(number)
    return found


_CLASSES: Final = (
    "pending", "overdue", "parked", "committed-without-final", "purged", "final-without-half",
    "final-elsewhere", "two-finals", "committed-twice", "final-changed", "delivered-early",
    "final-after-rollback", "contradictory-ends", "final-of-open-half", "op-without-half",
    "announced-but-rolled-back", "not-consumed", "row-without-message", "message-without-row",
    "row-twice",
)  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Run the job; return the exit code. Failures print one line on standard error."""
    where = f"escrowmq pipeline {arguments.action}"
    try:
        import pyspark  # noqa: F401
    except ImportError:
        print_error_line(f"{where}: PySpark is missing; pip install 'escrowmq[spark]'")
        return UNUSABLE
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from escrowmq.cli import spark_jobs
    from escrowmq.pipeline.formats import explain_jar_errors, parse_format

    try:
        fill_options(arguments)
        with explain_jar_errors(parse_format(getattr(arguments, "format", "parquet"))):
            return spark_jobs.DEEDS[arguments.action](arguments)
    except ResponseError as error:
        print_error_line(f"{where}: {one_line(error)}{_error_hint(type(error))}")
        return REFUSED
    except EscrowMQError as error:
        print_error_line(f"{where}: {one_line(error)}")
    except PySparkException as error:
        return _print_executor_error(where, str(error))
    except Py4JJavaError as error:  # Spark has no exception of its own for this
        return _print_executor_error(where, str(error.java_exception))
    except _redis_error_types() as error:
        print_error_line(f"{where}: the Redis server: {one_line(error)}")
    return UNUSABLE


def _redis_error_types() -> tuple[type[Exception], ...]:
    try:
        from redis import RedisError
    except ImportError:
        return ()
    return (RedisError,)


def _print_executor_error(where: str, text: str) -> int:
    """Print our own error from an executor, extracted from Spark's; return the exit code."""
    for line in text.splitlines():
        name, mark, said = line.partition(": ")
        if mark and name.strip().startswith(_ERRORS):
            kind = getattr(errors, name.strip().removeprefix(_ERRORS), EscrowMQError)
            print_error_line(f"{where}: {' '.join(said.split())}{_error_hint(kind)}")
            return REFUSED if issubclass(kind, ResponseError) else UNUSABLE
    print_error_line(f"{where}: {' '.join(text.split())[:1_000]}")
    return UNUSABLE


def _error_hint(kind: type[Exception]) -> str:
    if not issubclass(kind, PermissionDenied):
        return ""
    return "; docs/pipeline.md lists the rights that each command needs"
