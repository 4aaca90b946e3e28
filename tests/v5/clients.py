"""The official clients of RocketMQ 5 from their registries, each with a program that plays scenes
(README.md)."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from tests.interop import jars
from tests.interop.process import Process
from tests.interop.servers import EscrowServer

HERE: Final = Path(__file__).parent
WITHIN_S: Final = 120.0

SHARED: Final = frozenset(
    {"simple", "fifo", "delay", "transactions", "ackedLater", "endedLater", "send", "receive"}
)
PUSHED: Final = frozenset({"push", "dead"})


class Client(msgspec.Struct, frozen=True):
    """One client: its tools, how its program is started, and what it offers."""

    name: str
    tools: tuple[str, ...]
    start: Callable[[], list[str]]
    """The command of its program, which is built first where it is not yet."""

    has_push: bool = True
    has_tls: bool = True
    environment: dict[str, str] = {}

    @property
    def missing(self) -> str:
        """The tools that are not on this machine."""
        return jars.missing_tools(*self.tools)

    @property
    def scenes(self) -> frozenset[str]:
        """What it can play."""
        return SHARED | PUSHED if self.has_push else SHARED

    @contextmanager
    def playing(
        self, server: EscrowServer, scene: str, topic: str, *credentials: str, **extra: str
    ) -> Iterator[Playing]:
        """A program that plays a scene; `extra` is for its environment."""
        command = [*self.start(), scene, server.grpc, topic, f"CG-{topic}", *credentials]
        folder = server.store.parent / f"client-{self.name}"
        environment = {**self.environment, "HOME": str(folder), **extra}
        process = Process(
            command, folder=folder, name=scene, environment=environment, takes_commands=True
        )
        try:
            yield Playing(process)
        finally:
            process.kill()

    def play(
        self, server: EscrowServer, scene: str, topic: str, *credentials: str, **extra: str
    ) -> list[str]:
        """What a scene has seen."""
        with self.playing(server, scene, topic, *credentials, **extra) as program:
            return program.seen()


class Playing:
    """A program in the middle of a scene."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def wait_held(self) -> None:
        """It holds something, and waits for a word."""
        self._process.wait_line("HELD", within_s=WITHIN_S)

    def go_on(self) -> None:
        """Say that word."""
        self._process.write_line("on")

    def seen(self) -> list[str]:
        """What it has seen. RefusedError when the front refused it."""
        line = ""
        while not line.startswith(("SEEN ", "REFUSED ")):
            line = self._process.wait_line("E", within_s=WITHIN_S)
        kind, _, words = line.partition(" ")
        if kind == "REFUSED":
            raise RefusedError(words)
        return words.split(",") if words else []


class RefusedError(Exception):
    """What the client said when it was refused."""


# -- how each is built ---------------------------------------------------------------------------


def java_library() -> Path:
    """The jars of the Java client."""
    pom = HERE / "java" / "pom.xml"

    def collect(folder: Path) -> None:
        jars.run(["mvn", "-B", "-q", "-f", str(pom), jars.COPY, f"-DoutputDirectory={folder}"])

    return jars._made(jars.BUILD / "jars", "v5", jars.digest(pom), collect)


def java_command(main: str) -> list[str]:
    """A program with the Java client."""
    sources, library = sorted((HERE / "java").glob("*.java")), java_library()

    def compile_into(folder: Path) -> None:
        jars.run(["javac", "-d", str(folder), "-cp", f"{library}/*", *map(str, sources)])

    classes = jars._made(jars.BUILD / "java", "v5", jars.digest(*sources), compile_into)
    flags = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Drocketmq.log.root=log"]
    return ["java", *flags, "-cp", f"{library}/*:{classes}", main]


def _java() -> list[str]:
    return java_command("Scenes")


def _go() -> list[str]:
    folder = HERE / "go"

    def build(target: Path) -> None:
        program = str(target / "scenes")
        jars.run(["go", "build", "-C", str(folder), "-mod=readonly", "-o", program, "."])

    stamp = jars.digest(*sorted(folder.iterdir()))
    return [str(jars._made(jars.BUILD, "go-v5", stamp, build) / "scenes")]


def _node() -> list[str]:
    folder = HERE / "node"

    def install(target: Path) -> None:
        for file in folder.iterdir():
            shutil.copy(file, target)
        flags = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--silent"]
        jars.run(["npm", "install", "--prefix", str(target), *flags])

    stamp = jars.digest(*sorted(folder.iterdir()))
    return ["node", str(jars._made(jars.BUILD, "node-v5", stamp, install) / "scenes.js")]


def _rust() -> list[str]:
    folder = HERE / "rust"
    sources = [folder / "Cargo.toml", folder / "src" / "main.rs"]

    def build(target: Path) -> None:
        for source in sources:
            copied = target / source.relative_to(folder)
            copied.parent.mkdir(exist_ok=True)
            shutil.copy(source, copied)
        made = target / "target"
        manifest = str(target / "Cargo.toml")
        flags = ["--quiet", "--manifest-path", manifest, "--target-dir", str(made)]
        jars.run(["cargo", "build", *flags])
        shutil.copy(made / "debug" / "scenes", target)
        shutil.rmtree(made)  # half a gigabyte

    return [str(jars._made(jars.BUILD, "rust-v5", jars.digest(*sources), build) / "scenes")]


def _python() -> list[str]:
    return [sys.executable, str(HERE / "scenes.py")]


PYTHON: Final = Client("python", (), _python)
JAVA: Final = Client("java", ("java", "javac", "mvn"), _java)
GO: Final = Client(
    "go",
    ("go",),
    _go,
    environment={"rocketmq.client.enableSsl": "false", "mq.consoleAppender.enabled": "false"},
)
NODE: Final = Client("node", ("node", "npm"), _node)
RUST: Final = Client("rust", ("cargo", "cc"), _rust, has_push=False, has_tls=False)
"""It has simple consumers alone, and knows no TLS: 5.0.0 is the newest release of its crate."""

QUICK: Final = (PYTHON, JAVA, GO, NODE)
ALL: Final = (*QUICK, RUST)
"""The one for Rust takes minutes to compile: it takes part where all tests do, before a release."""
