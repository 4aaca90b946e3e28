"""The jars of table formats, fetched with Maven once into build/spark."""

from __future__ import annotations

from pathlib import Path

from tests.interop import jars

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "spark"


def files(package: str) -> str:
    """Those of a package (group:artifact:version), as `spark.jars` wants them."""
    pom = HERE / "java" / "pom.xml"
    group, artifact, version = package.split(":")

    def collect(folder: Path) -> None:
        flags = [f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
        flags += [f"-Dtable.{name}={value}" for name, value in
                  (("group", group), ("artifact", artifact), ("version", version))]  # fmt: skip
        jars.run(["mvn", "-B", "-q", "-f", str(pom), jars.COPY, *flags])

    folder = jars._made(BUILD, f"{artifact}-{version}", jars.digest(pom), collect)
    return ",".join(str(each) for each in sorted(folder.glob("*.jar")))
