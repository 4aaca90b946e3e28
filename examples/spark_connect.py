"""A topic over Spark Connect: the client has no JVM, and the server's Python has EscrowMQ.

    python examples/spark_connect.py 127.0.0.1:9876 [sc://server:15002]

Without a server's address Spark starts one on this machine. It counts what the topic `orders` has,
and copies it into `orders-copy`, exactly once however often it is run.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession


def main(nameserver: str, remote: str = "local[2]") -> None:
    """Count and copy."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.remote(remote).getOrCreate()
    orders = spark.read.format("escrowmq").option("nameServer", nameserver)
    print(orders.option("subscribe", "orders").load().count(), "orders")
    stream = spark.readStream.format("escrowmq").option("nameServer", nameserver)
    stream = stream.option("subscribe", "orders").option("startingOffsets", "earliest")
    checkpoint = os.environ.get("CHECKPOINT") or str(Path(tempfile.gettempdir()) / "orders-copy")
    query = (
        stream.load()
        .select("body", "tags", "keys")
        .writeStream.format("escrowmq")
        .option("nameServer", nameserver)
        .option("topic", "orders-copy")
        .option("transactional", "true")
        .option("producerGroup", "orders-copy-job")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(orders.option("subscribe", "orders-copy").load().count(), "copied")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
