"""Replication of the log over RocketMQ's protocol: what a master sends to its slaves, and what a
slave does with it. No I/O: bytes and the time come in, bytes go out."""
