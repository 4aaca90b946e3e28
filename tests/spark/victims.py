"""The processes of a query that was started here, by what they are. Only descendants of our own
process are ever looked at."""

from __future__ import annotations

import os
import signal
from pathlib import Path

KINDS = ("driver", "worker", "executor")


def descendants(pid: int) -> list[int]:
    """All processes below one."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, below = [], [pid]
    while below:
        below = [child for each in below for child in children.get(each, [])]
        found += below
    return found


def find(pid: int, kind: str) -> list[int]:
    """The driver's or the executors' JVMs, or the Python workers, below a process."""
    found = []
    for each in descendants(pid):
        command = _command(each)
        is_executor = "CoarseGrainedExecutorBackend" in command
        if (
            (kind == "driver" and "SparkSubmit" in command)
            or (kind == "executor" and is_executor)
            or (kind == "worker" and "pyspark" in command and "java" not in command.split()[0])
        ):
            found.append(each)
    return found


def kill(pid: int) -> bool:
    """kill -9; False when it had ended."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() or "-"
    except OSError:
        return "-"
