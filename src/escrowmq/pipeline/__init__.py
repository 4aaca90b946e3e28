"""Reads and writes topics with PySpark. It imports nothing of the store, the broker or the
transactions: it uses the wire protocol, and reads store files with `codec` alone."""
