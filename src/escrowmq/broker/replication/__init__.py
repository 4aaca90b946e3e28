"""Copies of the log: a master's slaves, and a slave's master."""
