"""Queries in a process of their own, to be killed: `python -m tests.spark.queries` with the task
as JSON on the command line. It prints what it has reached, a line each."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from .sessions import build_quick_session


def run(task: dict[str, Any]) -> None:
    """Copy from a topic to files or to another topic, until all that is there is read."""
    folder = Path(task["folder"])
    master = task.get("master", "local[2,4]")
    spark = build_quick_session(master, folder, task.get("settings"))
    reader = spark.readStream.format("escrowmq")
    for name, value in task["source"].items():
        reader = reader.option(name, value)
    frame = reader.load()
    if task.get("sink"):
        columns = task.get("columns", ["body", "tags"])
        writer = frame.selectExpr(*columns).writeStream.format("escrowmq")
        for name, value in task["sink"].items():
            writer = writer.option(name, value)
    else:
        writer = frame.selectExpr("cast(body as string) as n").writeStream.format("text")
        writer = writer.option("path", str(folder / "out"))
    if task.get("is_available_now", True):
        writer = writer.trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    print("STARTED", flush=True)
    query.awaitTermination()
    print("DONE", flush=True)


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
