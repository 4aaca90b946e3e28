"""A process that has one Spark session with the jars it is started with, and runs commands in it:
a line of JSON each, answered by one.

    ["pipeline", "reconcile", ...]      -> {"code": 0, "out": "...", "err": "..."}
    "select * from delta.`/tmp/table`"  -> [{...}, ...]
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.interop.process import Process, until

from .sessions import QUICK, QUICK_WORKERS, quiet

ANSWER: Final = "answer: "
START_S: Final = 120.0
ANSWER_S: Final = 240.0
ROOT: Final = Path(__file__).parents[2]


class Commands:
    """The face of such a process."""

    def __init__(self, folder: Path, kind: str, settings: Mapping[str, str]) -> None:
        self._process = _started(folder, kind, settings, takes_commands=True)
        self._process.wait_line("ready", within_s=START_S)

    def run(self, *words: object) -> tuple[int, str, str]:
        """Exit code, output and errors of `escrowmq pipeline`."""
        told = self._ask(["pipeline", *map(str, words)])
        return told["code"], told["out"], told["err"]

    def sql(self, query: str) -> list[dict[str, Any]]:
        """The rows of a query."""
        rows: list[dict[str, Any]] = self._ask(query)
        return rows

    def stop(self) -> None:
        """End it."""
        self._process.stop()

    def _ask(self, what: object) -> Any:
        self._process.write_line(json.dumps(what))
        line = self._process.wait_line(ANSWER, within_s=ANSWER_S)
        return json.loads(line.partition(ANSWER)[2])


def run_and_die(
    folder: Path, kind: str, settings: Mapping[str, str], words: list[str], *, before: str
) -> None:
    """Run a command in a process that is killed when it is about to write to a table."""
    process = _started(folder, kind, settings, before, json.dumps(["pipeline", *words]))
    try:
        until("it has died", lambda: process.exit_code is not None, within_s=ANSWER_S)
        assert process.exit_code == -signal.SIGKILL, process.last_errors()
    finally:
        process.stop()


def _started(
    folder: Path, kind: str, settings: Mapping[str, str], *words: str, **more: Any
) -> Process:
    environment = {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1", **QUICK_WORKERS}
    whole = QUICK | quiet(folder / "spark") | dict(settings)
    command = [sys.executable, "-m", "tests.spark.commands", kind, json.dumps(whole), *words]
    return Process(command, folder=folder, name="commands", environment=environment, **more)


def _run(words: list[str]) -> dict[str, object]:
    from escrowmq.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except Exception:  # noqa: BLE001 - the test tells of it
            code = -1
            traceback.print_exc()
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


def _die_before(name: str) -> None:
    """From here on this process dies when it would write to a table."""
    from escrowmq.pipeline.reconcile.partitioned_table import PartitionedTable

    replace = PartitionedTable.replace

    def dying(self: PartitionedTable, rows: Any) -> None:
        if self.path.endswith(name):
            os.kill(os.getpid(), signal.SIGKILL)
        replace(self, rows)

    PartitionedTable.replace = dying  # type: ignore[method-assign]


def main() -> int:
    """Answer lines until there are no more; or run one command and die."""
    from escrowmq.pipeline.session import start_session

    kind, settings, *rest = sys.argv[1:]
    spark = start_session("tests", master="local[2]", settings=json.loads(settings), kind=kind)
    if rest:
        _die_before(rest[0])
        print(_run(json.loads(rest[1])), flush=True)
        return 1
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if isinstance(asked, str):
            rows = [row.asDict(recursive=True) for row in spark.sql(asked).collect()]
            answer: object = rows
        else:
            answer = _run(asked)
        print(ANSWER + json.dumps(answer, default=str), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
