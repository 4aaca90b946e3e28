"""A Kafka broker on loopback and Spark's connector for it: what spark_source.py compares with."""

from __future__ import annotations

import base64
import socket
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.interop import jars
from tests.interop.ports import free_port
from tests.interop.process import Process, until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HERE = Path(__file__).parent
BUILD = HERE.parent / "build" / "benchmarks"
CONNECTOR_RELEASE = "4.1"
"""The PySpark that the newest published connector is for."""

JVM = [
    "-server",
    "-Xms1g",
    "-Xmx1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
]
"""The flags of Kafka's own start script."""

WRITING = {
    "kafka.batch.size": str(256 << 10),
    "kafka.linger.ms": "20",
    "kafka.delivery.timeout.ms": "600000",
}
"""Of the producer that fills it: with its own batches of 16 KiB, a gigabyte takes this one node so
long that some of them expire."""

SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{inner}
listeners=PLAINTEXT://127.0.0.1:{outer},CONTROLLER://127.0.0.1:{inner}
advertised.listeners=PLAINTEXT://127.0.0.1:{outer}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
offsets.topic.replication.factor=1
num.partitions={queues}
log.dirs={folder}
"""


def jars_of(name: str) -> Path:
    """The folder with the jars of `broker` or `connector`, fetched once."""
    pom = HERE / "kafka" / f"{name}-pom.xml"
    folder = BUILD / f"kafka-{name}-{jars.digest(pom)}"
    if not folder.exists():
        made = folder.with_suffix(".new")
        jars.run(
            ["mvn", "-B", "-q", "-f", str(pom), jars.COPY, "-DincludeScope=runtime",
             f"-DoutputDirectory={made}"]
        )  # fmt: skip
        made.rename(folder)
    return folder


def connector_settings() -> dict[str, str]:
    """What a session needs to know of the connector. SystemExit under another PySpark."""
    import pyspark

    if not pyspark.__version__.startswith(f"{CONNECTOR_RELEASE}."):
        raise SystemExit(
            f"this is PySpark {pyspark.__version__}, Spark's Kafka connector is there for "
            f"{CONNECTOR_RELEASE}: make spark-{CONNECTOR_RELEASE}, then run this with "
            f"build/spark-{CONNECTOR_RELEASE}/bin/python"
        )
    return {"spark.driver.extraClassPath": f"{jars_of('connector')}/*"}


class Kafka:
    """One broker that is its own controller (KRaft)."""

    def __init__(self, folder: Path, *, queues: int) -> None:
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        folder.mkdir(parents=True)
        config = folder / "server.properties"
        config.write_text(
            SETTINGS.format(inner=free_port(), outer=port, queues=queues, folder=folder / "log")
        )
        java = ["java", *JVM, "-cp", f"{jars_of('broker')}/*"]
        name = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        jars.run([*java, "kafka.tools.StorageTool", "format", "-t", name, "-c", str(config)])
        self.process = Process([*java, "kafka.Kafka", str(config)], folder=folder, name="kafka")
        try:
            until("Kafka listens", self._listens, within_s=60)
        except BaseException:
            self.process.kill()
            raise

    def fill(self, rows: DataFrame, topic: str) -> None:
        """Write the rows of a topic of ours, each to the partition with the number of its queue."""
        fields = {"tags": "tags", "keys": "keys[0]", "number": "properties['number']"}
        headers = ", ".join(
            f"struct('{name}' as key, cast({field} as binary) as value)"
            for name, field in fields.items()
        )
        columns = ["cast(msgId as binary) as key", "body as value", "queueId as partition"]
        writer = rows.selectExpr(*columns, f"array({headers}) as headers").write.format("kafka")
        writer = writer.option("kafka.bootstrap.servers", self.address).options(**WRITING)
        writer.option("topic", topic).option("includeHeaders", "true").save()

    def source(self, spark: SparkSession, topic: str, *, has_headers: bool) -> Any:
        """The topic as a frame."""
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", self.address)
        reader = reader.option("includeHeaders", str(has_headers).lower())
        return reader.option("subscribe", topic).load()

    def kill(self) -> None:
        """End the broker."""
        self.process.kill()

    def _listens(self) -> bool:
        host, port = self.address.split(":")
        with socket.socket() as door:
            return door.connect_ex((host, int(port))) == 0
