"""The packing service is in Java (packer/Packer.java): how it is made, and how it is started."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent / "packer"
BUILD: Final = Path(__file__).resolve().parents[2] / "build" / "shop-packer"
COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
FLAGS: Final = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class NotMade(Exception):
    """A tool failed; the text is what it said last."""


def missing() -> str:
    """What this machine lacks for it; empty when it has all."""
    return ", ".join(tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None)


def make() -> Path:
    """A folder with the service and all it needs, made once for each version of its sources."""
    sources = [HERE / "pom.xml", HERE / "Packer.java"]
    stamp = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()[:12]
    made = BUILD / stamp
    if made.exists():
        return made
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD) as name:
        folder = Path(name) / "packer"
        jars = folder / "jars"
        _run("mvn", "-B", "-q", "-f", sources[0], COPY, f"-DoutputDirectory={jars}")
        _run("javac", "-d", folder, "-cp", f"{jars}/*", sources[1])
        if not made.exists():  # somebody else may have made it meanwhile
            folder.rename(made)
    return made


def command(made: Path, home: Path, program: str = "Packer") -> list[str]:
    """What starts it; a name server and the file of parcels are to follow."""
    flags = [*FLAGS, f"-Duser.home={home}"]  # where RocketMQ's client writes its log
    flags.append("-Drocketmq.client.rebalance.waitInterval=2000")  # and not 20 s, for a new topic
    return ["java", *flags, "-cp", f"{made}:{made / 'jars'}/*", program]


def _run(*words: str | Path) -> None:
    done = subprocess.run(
        [str(word) for word in words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise NotMade(f"{words[0]} ended with {done.returncode}: {done.stdout[-2_000:].strip()}")
