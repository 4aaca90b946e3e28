"""Reads and writes topics with PySpark. It imports nothing of the store, the broker or the
transactions: it speaks over the wire, and reads files by `codec` alone."""
