"""Requests of driver and executors to name servers and brokers, over blocking connections."""
