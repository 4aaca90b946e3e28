"""The topic `orders` as a streaming table, how many there are by tag, and the large ones in a topic
of their own."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()
NAME_SERVER = spark.conf.get("spark.shop.nameServer")


@dp.table
def orders() -> DataFrame:
    """What comes into the topic."""
    reader = spark.readStream.format("escrowmq").option("nameServer", NAME_SERVER)
    reader = reader.option("subscribe", "orders").option("startingOffsets", "earliest")
    return reader.load().select("msgId", "tags", F.col("body").cast("string").alias("amount"))


@dp.materialized_view
def by_tag() -> DataFrame:
    """How many there are."""
    return spark.read.table("orders").groupBy("tags").count()


dp.create_sink("large", "escrowmq", {"nameServer": NAME_SERVER, "topic": "large-orders"})


@dp.append_flow(target="large")
def large_orders() -> DataFrame:
    """The large ones."""
    large = spark.readStream.table("orders").where("amount >= 20")
    return large.select(F.col("amount").alias("body"))
