"""Requests of Spark's driver and executors to name servers and brokers, over blocking
connections."""
