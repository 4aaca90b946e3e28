"""The Spark source and sink on a real Spark, with real brokers. They need PySpark and Java."""
