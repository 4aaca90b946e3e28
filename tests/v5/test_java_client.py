"""The official Java client of RocketMQ 5 (rocketmq-client-java)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.interop import jars
from tests.interop.servers import EscrowServer

from .places import in_order, topic

HERE = Path(__file__).parent / "java"
WITHIN_S = 180
MISSING = jars.missing_tools("java", "javac", "mvn")

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(bool(MISSING), reason=f"not on this machine: {MISSING}"),
]


def library() -> Path:
    """The client's jar."""
    pom = HERE / "pom.xml"

    def collect(folder: Path) -> None:
        jars.run(["mvn", "-B", "-q", "-f", str(pom), jars.COPY, f"-DoutputDirectory={folder}"])

    return jars._made(jars.BUILD / "jars", "v5", jars.digest(pom), collect)


def classes() -> Path:
    """The scenes, compiled."""
    source = HERE / "Scenes.java"

    def compile_into(folder: Path) -> None:
        jars.run(["javac", "-d", str(folder), "-cp", f"{library()}/*", str(source)])

    return jars._made(jars.BUILD / "java", "v5", jars.digest(source), compile_into)


def play(server: EscrowServer, name: str, topic: str, folder: Path) -> list[str]:
    """What a scene has seen."""
    command = [
        "java", f"-Drocketmq.log.root={folder}", "-cp", f"{library()}/*:{classes()}", "Scenes",
        name, server.grpc, topic, f"CG-{topic}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    seen = [line for line in done.stdout.splitlines() if line.startswith("SEEN ")]
    assert seen, done.stderr[-2_000:]
    return seen[-1].removeprefix("SEEN ").split(",")


def test_normal_messages(server: EscrowServer, tmp_path: Path) -> None:
    found = play(server, "simple", topic(server, "JavaSimple"), tmp_path)
    assert found == [f"m{nth}" for nth in range(5)]


def test_what_failed_comes_again(server: EscrowServer, tmp_path: Path) -> None:
    found = play(server, "push", topic(server, "JavaPush"), tmp_path)
    assert found == sorted([f"m{nth}:1" for nth in range(10)] + ["m7:2"])


def test_message_groups_keep_their_order(server: EscrowServer, tmp_path: Path) -> None:
    name = topic(server, "JavaFifo", "FIFO")
    in_order(server, f"CG-{name}")
    found = play(server, "fifo", name, tmp_path)
    for group in ("g0", "g1"):
        own = [text for text in found if text.startswith(group)]
        assert own == [f"{group}-{nth}:1" for nth in range(int(group[1]), 20, 2)]


def test_transactions_end_as_the_producer_says_or_its_checker_knows(
    server: EscrowServer, tmp_path: Path
) -> None:
    name = topic(server, "JavaTransactions", "TRANSACTION")
    assert play(server, "transactions", name, tmp_path) == ["committed", "good-orphan"]
