"""What the foreign side needs, made once in build/interop: jars, the compiled drivers, a preload.

Every function is idempotent and takes a file lock, so that parallel test workers do not race.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
BUILD: Final = HERE.parents[1] / "build" / "interop"
BROKER_RELEASE: Final = "5.3.3"
OLD_BROKER_RELEASE: Final = "4.9.7"  # the last 4.x whose broker is published
ACL_BROKER_RELEASE: Final = "5.3.2"  # the last with ACL 1.0; its name server is not published
CLIENT_RELEASES: Final = ("5.3.3", "5.5.0", "4.9.8")
BRIEF_JVM: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
"""Maven runs for seconds: to optimise what it does does not pay."""

COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


class SetUpError(Exception):
    """A tool is missing or failed; the text tells which and what it said."""


def missing_tools(*tools: str) -> str:
    """The names of those tools that are not on the path; empty when all are."""
    return ", ".join(tool for tool in tools if shutil.which(tool) is None)


def jars(release: str) -> Path:
    """The folder with all jars of a release; of BROKER_RELEASE with broker and name server."""

    def collect(folder: Path) -> None:
        # Maven is asked for a release once; later calls find the folder.
        flags = ["-Dserver"] if release == BROKER_RELEASE else []
        flags += [f"-Drocketmq.version={release}", f"-DoutputDirectory={folder}"]
        pom = str(HERE / "java" / "pom.xml")
        run(["mvn", "-B", "-q", "-f", pom, COPY, "-DincludeScope=runtime", *flags])

    return _made(BUILD / "jars", release, digest(HERE / "java" / "pom.xml"), collect)


def server_jars(release: str) -> Path:
    """The folder with all jars of a broker and name server of a release."""
    if release == BROKER_RELEASE:
        return jars(release)
    pom = HERE / "java" / ("acl-pom.xml" if release == ACL_BROKER_RELEASE else "pom.xml")

    def collect(folder: Path) -> None:
        flags = ["-Dserver", f"-Drocketmq.version={release}", f"-DoutputDirectory={folder}"]
        run(["mvn", "-B", "-q", "-f", str(pom), COPY, "-DincludeScope=runtime", *flags])

    return _made(BUILD / "jars", f"server-{release}", digest(pom), collect)


def java_driver(release: str) -> Path:
    """The folder with the driver's classes, compiled against that release."""
    sources = sorted((HERE / "java").glob("*.java"))
    library = jars(release)

    def compile_into(folder: Path) -> None:
        command = ["javac", "-nowarn", "-Xlint:none", "-d", str(folder), "-cp", f"{library}/*"]
        run(command + [str(source) for source in sources])

    return _made(BUILD / "java", release, digest(*sources), compile_into)


def go_driver() -> Path:
    """The driver with the official Go client inside."""
    folder = HERE / "go"
    sources = sorted([*folder.glob("*.go"), folder / "go.mod", folder / "go.sum"])

    def compile_into(target: Path) -> None:
        run(["go", "build", "-C", str(folder), "-mod=readonly", "-o", str(target / "driver"), "."])

    return _made(BUILD, "go", digest(*sources), compile_into) / "driver"


def otel_collector() -> Path:
    """OpenTelemetry's collector, with its OTLP receiver and its debug exporter."""
    folder = HERE / "otelcol"
    sources = sorted([*folder.glob("*.go"), folder / "go.mod", folder / "go.sum"])

    def compile_into(target: Path) -> None:
        run(["go", "build", "-C", str(folder), "-mod=readonly", "-o", str(target / "otelcol"), "."])

    return _made(BUILD, "otelcol", digest(*sources), compile_into) / "otelcol"


def loopback() -> Path:
    """The shared library that keeps every Java listener on 127.0.0.1."""
    source = HERE / "java" / "loopback.c"

    def compile_into(folder: Path) -> None:
        target = folder / "loopback.so"
        run(["cc", "-O2", "-shared", "-fPIC", "-o", str(target), str(source), "-ldl"])

    return _made(BUILD, "preload", digest(source), compile_into) / "loopback.so"


def run(command: list[str]) -> None:
    """Run a tool to its end; SetUpError carries the end of what it printed."""
    done = subprocess.run(
        command,
        env={**os.environ, "MAVEN_OPTS": BRIEF_JVM},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        text = f"{' '.join(command[:3])} ... ended with {done.returncode}:\n{done.stdout[-4000:]}"
        raise SetUpError(text)


def digest(*files: Path) -> str:
    """A short name for the contents of these files."""
    sums = hashlib.sha256()
    for file in files:
        sums.update(file.name.encode() + b"\0" + file.read_bytes())
    return sums.hexdigest()[:12]


def _made(parent: Path, name: str, stamp: str, make: Callable[[Path], None]) -> Path:
    """The folder `parent/name-stamp`, complete; older stamps of the same name are removed."""
    folder = parent / f"{name}-{stamp}"
    with _locked(parent / f".{name}.lock"):
        if not folder.exists():
            for old in parent.glob(f"{name}-*"):
                shutil.rmtree(old)
            partial = parent / f".{name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            make(partial)
            partial.rename(folder)
    return folder


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
