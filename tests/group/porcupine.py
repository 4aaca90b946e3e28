"""The foreign judge: a program in Go around the linearizability checker porcupine, built once."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

import msgspec

from escrowmq.drill.history import Event
from tests.interop import jars

HERE = Path(__file__).parent
TOOLS = ("go",)


def program() -> Path:
    """The program."""
    folder = HERE / "go"

    def build(target: Path) -> None:
        made = str(target / "judge")
        jars.run(["go", "build", "-C", str(folder), "-mod=readonly", "-o", made, "."])

    files = [folder / name for name in ("main.go", "go.mod", "go.sum")]
    return jars._made(jars.BUILD, "porcupine", jars.digest(*files), build) / "judge"


def violations(events: Iterable[Event]) -> list[str]:
    """What is not linearizable, one line a queue or offset; empty when all is."""
    lines = b"".join(msgspec.json.encode(event) + b"\n" for event in events)
    done = subprocess.run([program()], input=lines, capture_output=True, check=False, timeout=600)
    assert done.returncode in (0, 1), done.stderr.decode()
    return done.stdout.decode().splitlines()
