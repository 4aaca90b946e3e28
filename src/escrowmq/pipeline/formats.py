"""Table formats: their names, and the jars that Spark needs for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from escrowmq.errors import UsageError

FORMATS: Final = ("parquet", "delta", "iceberg")
PACKAGES: Final = {
    "delta": {
        "4.1": "io.delta:delta-spark_4.1_2.13:4.4.0",
        "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0",
    },
    "iceberg": {"4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"},
}
"""The newest packages that work, by release of PySpark. With a jar for another release, Delta fails
when a table is read, Iceberg when its catalog is loaded."""

_CATALOG: Final = re.compile(r"\w+(\.\w+)+")
_JARS_ARE_MISSING: Final = (
    "Failed to find the data source", "Cannot find catalog plugin class", "ClassNotFoundException",
)  # fmt: skip
_JARS_ARE_WRONG: Final = (
    "IncompatibleClassChangeError", "NoSuchMethodError", "NoSuchFieldError", "NoClassDefFoundError",
    "AbstractMethodError", "UnsupportedClassVersionError",
)  # fmt: skip


class TableFormat(msgspec.Struct, frozen=True):
    """A table format."""

    name: str
    """The format's name, one of `FORMATS`."""

    namespace: str = ""
    """The namespace of Iceberg's tables: a catalog of the session and a namespace in it, such as
    `lake.mq`. Without it each folder of tables is a catalog of its own."""


def parse_format(text: str) -> TableFormat:
    """Parse `parquet`, `delta`, `iceberg` or `iceberg:CATALOG.NAMESPACE`. Raises UsageError if such
    tables cannot be written here."""
    name, mark, namespace = text.partition(":")
    if name not in FORMATS:
        raise UsageError(
            f"format {text!r}; one of {', '.join(FORMATS)}, iceberg:CATALOG.NAMESPACE is expected"
        )
    if mark and name != "iceberg":
        raise UsageError(f"format {text!r}: only tables of Iceberg can be in a catalog")
    if mark and not _CATALOG.fullmatch(namespace):
        raise UsageError(
            f"format {text!r}: a catalog and a namespace in it are expected, as iceberg:lake.mq"
        )
    packages = PACKAGES.get(name)
    if packages is not None and _pyspark_release() not in packages:
        raise UsageError(
            f"{name.capitalize()} has no jars that run with PySpark {pyspark.__version__}; install "
            f"PySpark {' or '.join(packages)} for it, or choose --format parquet"
        )
    return TableFormat(name, namespace)


@contextmanager
def explain_jar_errors(form: TableFormat) -> Iterator[None]:
    """Replace the JVM's error about missing or incompatible jars with one that says what to do."""
    try:
        yield
    except (Py4JError, PySparkException) as error:
        package = PACKAGES.get(form.name, {}).get(_pyspark_release())
        if package is None:
            raise
        text = str(error)
        found = next((word for word in _JARS_ARE_WRONG if word in text), "")
        if found:
            trouble = f"{form.name} jars that do not fit PySpark {pyspark.__version__} ({found})"
        elif any(word in text for word in _JARS_ARE_MISSING):
            trouble = f"no {form.name} jars"
        else:
            raise
        raise UsageError(
            f"Spark has {trouble}; start it with --conf spark.jars.packages={package}, or "
            "with spark.jars if Maven cannot be reached (docs/pipeline.md)"
        ) from error


def _pyspark_release() -> str:
    return ".".join(pyspark.__version__.split(".")[:2])
