"""The official Go client of RocketMQ 5 (rocketmq-clients/golang/v5)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.interop import jars
from tests.interop.servers import EscrowServer

from .places import topic

HERE = Path(__file__).parent / "go"
WITHIN_S = 120
MISSING = jars.missing_tools("go")
PLAIN = {"rocketmq.client.enableSsl": "false", "mq.consoleAppender.enabled": "false"}

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(bool(MISSING), reason=f"not on this machine: {MISSING}"),
]


def scenes() -> Path:
    """The program with the client inside."""
    stamp = jars.digest(*sorted(HERE.iterdir()))

    def build(folder: Path) -> None:
        program = str(folder / "scenes")
        jars.run(["go", "build", "-C", str(HERE), "-mod=readonly", "-o", program, "."])

    return jars._made(jars.BUILD, "go-v5", stamp, build) / "scenes"


@pytest.mark.parametrize(
    ("scene", "kind", "expected"),
    [
        ("simple", "NORMAL", ["m0", "m1", "m2", "m3", "m4"]),
        ("transactions", "TRANSACTION", ["committed", "good-orphan"]),
    ],
)
def test_a_scene(
    server: EscrowServer, tmp_path: Path, scene: str, kind: str, expected: list[str]
) -> None:
    name = topic(server, f"Go-{scene}", kind)
    done = subprocess.run(
        [str(scenes()), scene, server.grpc, name, f"CG-{name}"],
        env=os.environ | PLAIN | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    seen = [line for line in done.stdout.splitlines() if line.startswith("SEEN ")]
    assert seen, done.stdout[-1_000:] + done.stderr[-1_000:]
    assert seen[-1] == "SEEN " + ",".join(expected)
