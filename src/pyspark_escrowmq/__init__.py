"""What PySpark looks for: it imports every top-level module named `pyspark_*`, and registers its
`DefaultSource`. With this package installed, `spark.read.format("escrowmq")` works."""

from escrowmq.pipeline.datasource import EscrowMQSource as DefaultSource

__all__ = ["DefaultSource"]
